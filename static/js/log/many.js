// Lines of many logs by time, as far as they are loaded: rows in order, and for each log where the loaded part begins
// (`before`) and ends (`after`). A place is "key:piece.line" of every log, joined by "~"; the server reads it.

import { parse, Rows } from "./records.js";
import { t } from "../texts.js";

const STEP = 1000, MOST = 20_000, LATE = 2000;

export class Many {
  // `url` ends in ? or &; `changed(how)` is called with reset, older, grown or moved.
  constructor({ url, changed }) {
    Object.assign(this, { url, changed, sources: [], off: new Set(), rows: [], total: 0, atStart: false, atEnd: false });
    this.makers = new Map();  // source and piece → Rows that know only the last row
    this.before = new Map();
    this.after = new Map();
    this.queue = Promise.resolve();
  }

  // One request at a time, in the order asked for.
  #turn(work) { return this.queue = this.queue.then(work, work); }

  tail(n) {
    return this.#turn(async () => {
      const answer = await this.#ask({ n });
      this.makers.clear();
      this.rows = this.#made(answer.lines, this.makers);
      this.before = read(answer.before);
      this.after = read(answer.after);
      this.atStart = !answer.lines.length;
      this.atEnd = true;
      this.changed("reset");
    });
  }

  older() {
    return this.#turn(async () => {
      if (this.atStart || !this.before.size) return;
      const answer = await this.#ask({ before: write(this.before), n: STEP });
      this.atStart = !answer.lines.length;
      this.before = read(answer.before);
      this.rows = this.#made(answer.lines, new Map()).concat(this.rows);
      if (this.rows.length > MOST) this.#dropEnd(this.rows.length - MOST);
      this.changed("older");
    });
  }

  // What follows; `keep` says that the reader is elsewhere, and nothing above may go.
  newer(keep = false) {
    return this.#turn(async () => {
      if (keep && this.rows.length >= MOST) { this.atEnd = false; return; }
      const places = write(this.after);
      const answer = await this.#ask(places ? { after: places, n: STEP } : { n: STEP });
      this.atEnd = !answer.lines.length || !places;
      this.after = read(answer.after);
      if (!places) this.before = read(answer.before);
      const made = this.#made(answer.lines, this.makers), moved = this.#place(made);
      if (!keep && this.rows.length > MOST) { this.#dropStart(this.rows.length - MOST * 0.8); this.changed("moved"); }
      else if (answer.lines.length) this.changed(moved ? "moved" : "grown");
    });
  }

  // Lets go of the lines of these logs, and asks for no more of them.
  switchOff(keys) {
    keys.forEach((key) => this.off.add(key));
    return this.#turn(async () => {
      this.rows = this.rows.filter((row) => !this.off.has(row.source));
      keys.forEach((key) => { this.before.delete(key); this.after.delete(key); });
      this.changed("reset");
    });
  }

  switchOn(keys, n) {
    keys.forEach((key) => this.off.delete(key));
    return this.tail(n);
  }

  async #ask(range) {
    const query = new URLSearchParams({ ...range, ...(this.off.size && { off: [...this.off].join(",") }) });
    const answer = await fetch(`${this.url}${query}`, { headers: { Accept: "application/json" } });
    if (!answer.ok) throw new Error(`${answer.status}`);
    const json = await answer.json();
    Object.assign(this, { sources: json.sources, total: json.total, leftOut: json.left_out });
    return json;
  }

  // Rows of these lines, each made by the rows of its own log: what is redrawn or goes on belongs to that log alone.
  #made(lines, makers) {
    const made = [], gone = new Set();
    let key = 0;
    for (const [source, piece, n, ms, text] of lines) {
      const of = `${source} ${piece}`, maker = makers.get(of) ?? new Rows(), last = maker.list.at(-1);
      makers.set(of, maker);
      const row = next(maker, { ...parse(text, n)[0], n, ms });
      if (last && !maker.list.includes(last)) gone.add(last);
      key = ms || key;
      if (row) made.push(Object.assign(row, { source, piece, key }));
      forget(maker);
    }
    if (!gone.size) return made;
    this.rows = this.rows.filter((row) => !gone.has(row));
    return made.filter((row) => !gone.has(row));
  }

  // Puts new rows at the end, or before later ones of other logs: a server may send late. True where it did that.
  #place(made) {
    if (!made.length) return false;
    let at = this.rows.length;
    while (at > 0 && this.rows.length - at < LATE && this.rows[at - 1].key > made[0].key) at -= 1;
    const later = this.rows.splice(at), moved = later.length > 0;
    this.rows.push(...woven(later, made));
    return moved;
  }

  #dropStart(count) {
    for (const row of this.rows.splice(0, count)) this.before.set(row.source, [row.piece, row.last + 1]);
    this.atStart = false;
  }

  #dropEnd(count) {
    for (const row of this.rows.splice(-count).reverse()) this.after.set(row.source, [row.piece, row.n - 1]);
    this.makers.clear();
    this.atEnd = false;
  }
}

// The row that a record adds; null where it belongs to one that is there. Steps of different logs overlap, so here
// they are lines and fold nothing.
function next(maker, record) {
  const last = maker.list.at(-1);
  if (record.kind === "v" && record.text.includes('"step_end"')) return stepEnd(record);
  maker.push(record);
  const row = maker.list.at(-1);
  if (!row || row === last) return null;
  if (row.type !== "step") return row;
  maker.heading = null;
  return Object.assign(row, { type: "note", text: `${row.event.n}  ${row.text}`, event: null });
}

function stepEnd({ n, ms, text }) {
  let event;
  try { event = JSON.parse(text); } catch { return null; }
  if (event?.e !== "step_end" || event.state !== "failed") return null;
  const exit = Number.isInteger(event.exit) ? ` · ${t("exit code %(n)s", { n: event.exit })}` : "";
  return { n, last: n, ms, type: "note", text: `${event.n}  ${t("Failed")}${exit}`, level: "error", event: null };
}

function forget(maker) {
  maker.list = maker.list.slice(-1);
  maker.touched.clear();
  maker.aliases.clear();
}

// Both in one by their times, and no row before an earlier one of its own log.
export function woven(older, made) {
  const left = new Map(), all = [];
  for (const row of older) left.set(row.source, (left.get(row.source) ?? 0) + 1);
  let i = 0;
  for (const row of older) {
    while (i < made.length && made[i].key < row.key && !left.get(made[i].source)) all.push(made[i++]);
    all.push(row);
    left.set(row.source, left.get(row.source) - 1);
  }
  return all.concat(made.slice(i));
}

const WORD = /^([\w.]+):([\w-]+)\.(\d+)$/;

export function read(places) {
  const found = places ? places.split("~").map((word) => WORD.exec(word)) : [];
  return new Map(found.filter(Boolean).map(([, key, piece, line]) => [key, [piece, Number(line)]]));
}

export const write = (places) => [...places].map(([key, [piece, line]]) => `${key}:${piece}.${line}`).join("~");
