// Raw records of a log into rows to show. A record is "<epoch ms>\t<kind>\t<text>"; its place is its line number.

import { plain, runs } from "./ansi.js";

const RECORD = /^(\d{1,15})\t([^\t])\t([^]*)$/;
const ERROR = /\b(?:ERROR|CRITICAL|FATAL|Traceback)\b|\b\w*(?:Error|Exception)\b: |^\[failed\] |\berror: /;
const WARNING = /\bWARN(?:ING)?\b|^\[warning\] /;
const PRINTED_ITEM = /^\[(?:ok|warning|failed|unknown)\] .+? {2}/;
const LONGEST = 256 * 1024;  // characters of one joined line that are kept; the raw log has the rest

// [{ n, ms, kind, text }]
export function parse(text, first) {
  if (!text) return [];
  return text.split("\n").map((line, i) => {
    const found = RECORD.exec(line);
    return found ? { n: first + i, ms: Number(found[1]), kind: found[2], text: found[3] } : { n: first + i, ms: 0, kind: "o", text: line };
  });
}

// Rows in order: { n, last, ms, type, text, level, step, … }. `type` is line, progress, gap, step, item or note;
// `n` … `last` are the records in it, `step` the number of the step it belongs to (null: not known yet, 0: none).
export class Rows {
  constructor() {
    this.list = [];
    this.step = null;      // number of the step that goes on
    this.heading = null;   // its row
    this.ended = false;    // the end of the stream was read
    this.style = null;     // colours that a line left switched on
    this.printed = new Map();  // items that a step printed, and those it reported, until both halves are there
    this.touched = new Set();  // rows above the end that changed; whoever draws them clears it
    this.aliases = new Map();  // line number of a record that has no row of its own → its row
  }

  push(record) {
    const row = this.#row(record);
    if (!row) return;
    row.step = this.step;
    this.list.push(row);
  }

  #row(record) {
    const { n, ms, kind, text } = record, before = this.list.at(-1);
    if (kind === "v") return this.#event(record);
    if (kind === "+" && before) return void join(before, record);
    if (before?.type === "progress" && "poe+".includes(kind)) this.list.pop();  // it was redrawn, or here is its final text
    if (kind === "g") return { n, last: n, ms, type: "gap", text: plain(text), level: "warning" };
    const row = { n, last: n, ms, type: kind === "p" ? "progress" : "line", stream: kind, raw: text, text: plain(text), level: "" };
    row.level = ERROR.test(row.text) ? "error" : WARNING.test(row.text) ? "warning" : "";
    if (this.style) row.style = this.style;
    if (text.includes("\x1b") || this.style) this.style = runs(text, this.style).style;
    return this.#printedItem(row);
  }

  // A check prints a line for each item and reports it as an event: one row, in the reader's language.
  #printedItem(row) {
    const key = PRINTED_ITEM.exec(row.text)?.[0];
    const item = key && this.printed.get(key);
    if (item?.type === "item") { this.aliases.set(row.n, item); return null; }
    if (key) this.printed.set(key, row);
    return row;
  }

  #event({ n, ms, text }) {
    let event;
    try { event = JSON.parse(text); } catch { event = null; }
    const name = event && typeof event === "object" ? event.e : undefined;
    if (name === "step") {
      this.step = event.n;
      this.style = null;
      this.printed.clear();
      return this.heading = { n, last: n, ms, type: "step", text: pair(event.title), level: "", event, state: "running" };
    }
    if (name === "step_end") {
      if (this.heading?.event.n === event.n) Object.assign(this.heading, { end: event, state: event.state, level: event.state === "failed" ? "error" : "" });
      this.touched.add(this.heading);
      this.aliases.set(n, this.heading);
      return null;
    }
    if (name === "item") return this.#item(n, ms, event);
    if (name === "told") {  // for the console's records, not for a reader: what it came to stands beside it in words
      if (this.heading) this.aliases.set(n, this.heading);
      return null;
    }
    if (name === "ended") { this.step = 0; this.ended = true; }
    const level = name === "ended" && event.state === "failed" ? "error" : "";
    return { n, last: n, ms, type: "note", text: name ? "" : plain(text), level, event: name ? event : null };
  }

  #item(n, ms, event) {
    const [zh, en] = Array.isArray(event.title) ? event.title.map(String) : ["", ""];
    const key = `[${event.verdict}] ${zh === en ? zh : `${zh} / ${en}`}  `;
    const level = { failed: "error", warning: "warning" }[event.verdict] ?? "";
    const row = { n, last: n, ms, type: "item", text: "", level, event };
    const printed = this.printed.get(key);
    this.printed.set(key, row);
    if (printed?.type !== "line") return row;
    Object.assign(printed, { type: "item", level, event });
    this.printed.set(key, printed);
    this.touched.add(printed);
    this.aliases.set(n, printed);
    return null;
  }

  // Older records in front. What a record means may hang on the one before it, so the seam is joined.
  prepend(records) {
    const older = new Rows();
    records.forEach((record) => older.push(record));
    const last = older.list.at(-1), first = this.list[0];
    if (last?.type === "progress" && first && "poe+".includes(first.stream ?? "")) older.list.pop();
    if (first?.stream === "+" && older.list.length) { join(older.list.at(-1), { n: first.n, text: first.raw }); this.list.shift(); }
    for (const row of this.list) {
      if (row.step !== null) break;
      row.step = older.step;
    }
    if (this.step === null) this.step = older.step;
    this.heading ??= older.heading;
    this.list = older.list.concat(this.list);
    older.aliases.forEach((row, n) => this.aliases.set(n, row));
  }

  // Let go of rows at one end; the first or last line that is left, undefined where nothing was dropped.
  dropBefore(n) {
    const at = this.list.findIndex((row) => row.n >= n);
    if (at < 1) return undefined;
    this.list = this.list.slice(at);
    return this.list[0].n;
  }

  dropAfter(n) {
    const at = this.list.findIndex((row) => row.n > n);
    if (at < 1) return undefined;
    const next = this.list[at].n;
    this.list = this.list.slice(0, at);
    this.step = this.list.at(-1).step;
    this.heading = this.list.findLast((row) => row.type === "step") ?? null;
    return next - 1;
  }

  // The row that holds line `n`, or the one before it; undefined where nothing is loaded there.
  at(n) {
    const known = this.aliases.get(n);
    if (known) return known;
    let low = 0, high = this.list.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.list[middle].n <= n) low = middle + 1; else high = middle;
    }
    return this.list[Math.max(0, low - 1)];
  }
}

function join(row, { n, text }) {
  row.last = n;
  const room = Math.max(0, LONGEST - (row.raw ?? row.text).length);
  row.cut = (row.cut ?? 0) + Math.max(0, text.length - room);
  if (!room) return;
  row.raw = (row.raw ?? row.text) + text.slice(0, room);
  row.text = plain(row.raw);
}

const zh = () => document.documentElement.lang.startsWith("zh");

// One of [zh, en] in the reader's language.
export const pair = (texts) => (Array.isArray(texts) ? plain(String(texts[zh() ? 0 : 1] ?? "")) : "");
