// Search: over the whole log on the server, and in the loaded lines where the server is not reached.
import { figure, t } from "../texts.js";
import { Away, Refused } from "./remote.js";
import { Hits, LoadedHits } from "./hits.js";
import { words } from "./row.js";

const PAUSE_MS = 250;  // after the last key

export class Find {
  constructor(viewer) {
    Object.assign(this, { viewer, field: viewer.part("find"), out: viewer.part("hits"), text: "", hits: null, at: 0, row: null, place: null });
    this.options = { regex: false, case: false };
    this.field.addEventListener("input", () => { clearTimeout(this.timer); this.timer = setTimeout(() => this.search(), PAUSE_MS); });
    this.field.addEventListener("keydown", (event) => {
      if (event.key === "Enter") { event.preventDefault(); this.#enter(event.shiftKey ? -1 : 1); }
      if (event.key === "Escape") { event.stopPropagation(); this.clear(); this.field.blur(); }
    });
    viewer.part("next").addEventListener("click", () => this.step(1));
    viewer.part("before").addEventListener("click", () => this.step(-1));
    for (const name of ["regex", "case"]) viewer.part(name).addEventListener("click", () => this.#toggle(name));
  }

  get query() { return { q: this.text, ...this.options, ...this.viewer.filter.query }; }

  clear() { this.field.value = ""; return this.search(); }

  // Looks for what stands in the field, from what the reader sees on.
  async search() {
    clearTimeout(this.timer);
    this.hits?.stop();
    this.text = this.field.value.trim();
    Object.assign(this, { hits: null, at: 0, row: null, place: null });
    this.viewer.say("");
    this.#tell();
    if (!this.text) return this.viewer.scroller.show();
    const from = this.viewer.place(), hits = this.hits = new Hits(this.query, this.viewer.remote);
    try {
      await Promise.all([this.#count(hits), this.#go(hits, from, 1)]);
    } catch (error) { this.#failed(hits, error, from); }
  }

  async #count(hits) {
    await hits.scan(() => { if (hits === this.hits) { this.place ??= hits.place(this.at); this.#tell(); } });
    if (hits === this.hits) this.viewer.scroller.show();
  }

  async #go(hits, from, by) {
    const line = await hits.step(from, by);
    if (hits !== this.hits) return;
    if (line === null) return this.#tell();
    const next = this.place === null ? null : this.place + by;
    this.at = line;
    this.place = hits.place(line) ?? (next >= 1 && (line - from) * by > 0 ? next : null);
    this.row = await this.viewer.toLine(line);
    this.viewer.scroller.show();
    this.#tell();
  }

  // The console is away: the loaded lines are searched. A regular expression runs there only, where it is bounded.
  #failed(hits, error, from) {
    if (hits !== this.hits || error.name === "AbortError") return;
    hits.stop();
    this.hits = null;
    if (error instanceof Refused) this.viewer.say(error.message);
    else if (!(error instanceof Away)) throw error;
    else if (this.options.regex) this.viewer.say(t("The console does not answer, so no regular expression can be searched. Switch .* off to search the loaded lines."));
    else {
      this.hits = new LoadedHits((row) => this.hit(row));
      this.update(this.viewer.shown.rows.list);
      return this.#go(this.hits, from, 1);
    }
    this.#tell();
  }

  // A key pressed before the pause is over means: now.
  #enter(by) {
    if (/^:\d{1,12}$/.test(this.field.value.trim())) return this.#line();
    if (this.field.value.trim() !== this.text || !this.hits) return this.search();
    this.step(by);
  }

  #line() {
    const n = Number(this.field.value.trim().slice(1));
    clearTimeout(this.timer);
    this.field.value = "";
    this.field.blur();
    this.viewer.goto(n);
  }

  async step(by) {
    const { hits } = this;
    if (!hits) return;
    try { await this.#go(hits, this.at || this.viewer.place(), by); } catch (error) { this.#failed(hits, error, this.at); }
  }

  // Other rows are loaded, or the log has grown.
  update(rows) {
    const { hits } = this;
    if (!hits) return;
    if (hits.local) hits.update(rows);
    else if (hits.complete && this.viewer.store.total > hits.to) {
      hits.complete = false;
      this.more = setTimeout(() => this.#count(hits).catch((error) => { if (hits === this.hits && error.name !== "AbortError") hits.complete = true; }), 1000);
    }
    this.place = hits.place(this.at) ?? this.place;
    this.#tell();
  }

  #toggle(name) {
    this.options[name] = !this.options[name];
    this.viewer.part(name).setAttribute("aria-pressed", String(this.options[name]));
    if (this.field.value.trim()) this.search();
  }

  // Whether a row holds the word; of a regular expression only the server can tell.
  hit(row) {
    if (!this.text || !this.hits) return false;
    if (this.options.regex) return this.hits.marks.has(row.n);
    return this.options.case ? words(row).includes(this.text) : words(row).toLowerCase().includes(this.text.toLowerCase());
  }

  isCurrent(row) { return row === this.row || (this.at > 0 && row.n <= this.at && row.last >= this.at); }

  #tell() {
    const { hits, out, place } = this;
    const busy = hits && !hits.complete, count = hits ? `${figure(hits.count)}${busy ? "+" : ""}` : "";
    out.textContent = !this.text || !hits ? "" : !hits.count ? (busy ? t("searching …") : t("no match")) : place ? `${figure(place)} / ${count}` : t("%(n)s hits", { n: count });
    out.title = hits?.local ? t("The console does not answer: only the loaded lines were searched.") : busy && hits.total ? t("%(n)s of %(of)s lines searched", { n: figure(hits.to), of: figure(hits.total) }) : "";
    out.classList.toggle("local", Boolean(hits?.local));
    out.classList.toggle("busy", Boolean(busy));
    this.viewer.part("steps").hidden = !hits?.count;
    this.viewer.part("only").hidden = Boolean(hits?.local) || !this.viewer.remote.has("filtered");
  }

  // Marks what was found in the element of a row.
  mark(node, row) {
    if (this.options.regex) { if (row.raw === row.text && row.n === row.last) markSpans(node, this.hits.marks.get(row.n) ?? []); return; }
    markWord(node, this.text, this.options.case);
  }
}

function texts(node) {
  const walker = document.createTreeWalker(node, NodeFilter.SHOW_TEXT), found = [];
  while (walker.nextNode()) found.push(walker.currentNode);
  return found;
}

function wrap(text) {
  const mark = document.createElement("mark");
  text.replaceWith(mark);
  mark.append(text);
}

function markWord(node, word, exact) {
  const needle = exact ? word : word.toLowerCase(), at = (text) => (exact ? text.data : text.data.toLowerCase()).indexOf(needle);
  for (let text of texts(node)) {
    for (let i = at(text); i >= 0; i = at(text)) {
      const hit = text.splitText(i);
      text = hit.length > needle.length ? hit.splitText(needle.length) : document.createTextNode("");
      wrap(hit);
    }
  }
}

// Spans are [start, end] in the text of the row; it stands in one text node.
function markSpans(node, spans) {
  const text = texts(node)[0];
  for (const [from, to] of spans.toReversed()) {
    if (!text || to <= from || to > text.length) continue;
    const hit = text.splitText(from);
    hit.splitText(to - from);
    wrap(hit);
  }
}

// The next row after line `from` that tells of an error; the first one where none follows; undefined where there is none.
export function nextError(rows, from) {
  const isError = (row) => row.level === "error";
  return rows.find((row) => row.n > from && isError(row)) ?? rows.find(isError);
}
