// Search in the lines that are loaded, and the way from one hit, or one error, to the next.
import { t } from "../texts.js";
import { words } from "./row.js";

export class Find {
  // `show(row)` brings a row into view; `redraw()` draws what is seen anew.
  constructor({ field, out, show, redraw }) {
    Object.assign(this, { field, out, show, redraw, word: "", hits: [], at: -1, rows: [] });
    field.addEventListener("input", () => { clearTimeout(this.timer); this.timer = setTimeout(() => this.search(), 150); });
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter") { event.preventDefault(); this.step(event.shiftKey ? -1 : 1); }
      if (event.key === "Escape") { field.value = ""; this.search(); field.blur(); }
    });
  }

  search() {
    this.word = this.field.value.trim().toLowerCase();
    this.at = -1;
    this.update(this.rows);
    this.#tell();
    this.redraw();
    if (this.hits.length) this.step(1);
  }

  // Other rows are loaded: the hits among them.
  update(rows) {
    const current = this.hits[this.at];
    this.rows = rows;
    if (!this.word && !this.hits.length) return;
    this.hits = this.word ? rows.filter((row) => this.hit(row)) : [];
    this.at = this.hits.indexOf(current);
    this.#tell();
  }

  hit(row) { return Boolean(this.word) && words(row).toLowerCase().includes(this.word); }

  step(by) {
    if (this.hits.length) {
      const from = this.at < 0 && by < 0 ? 0 : this.at;
      this.at = (from + by + this.hits.length) % this.hits.length;
      this.show(this.hits[this.at]);
      this.redraw();
    }
    this.#tell();
  }

  isCurrent(row) { return row === this.hits[this.at]; }

  #tell() {
    this.out.textContent = !this.word ? "" : this.hits.length ? `${Math.max(0, this.at) + 1} / ${this.hits.length}` : t("no match");
  }

  // Marks the word in the element of a row.
  mark(node) {
    const walker = document.createTreeWalker(node, NodeFilter.SHOW_TEXT), texts = [];
    while (walker.nextNode()) texts.push(walker.currentNode);
    for (let text of texts) {
      for (let at = text.data.toLowerCase().indexOf(this.word); at >= 0; at = text.data.toLowerCase().indexOf(this.word)) {
        const hit = text.splitText(at);
        if (hit.length > this.word.length) text = hit.splitText(this.word.length); else text = document.createTextNode("");
        const mark = document.createElement("mark");
        hit.replaceWith(mark);
        mark.append(hit);
      }
    }
  }
}

// The next row after `from` that tells of an error; the first one where none follows; undefined where there is none.
export function nextError(rows, from) {
  const start = rows.indexOf(from);
  const isError = (row) => row.level === "error";
  return rows.slice(start + 1).find(isError) ?? rows.find(isError);
}
