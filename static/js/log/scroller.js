// Shows a long list of rows of differing height with few elements: blocks of rows near the view are drawn, spacers
// stand for the others. Heights are guessed until a block was drawn, then measured.

const BLOCK = 100, MARGIN = 800, LINE = 18, HEADING = 29;

export class Scroller {
  // `draw(row)` makes an element; `pane` scrolls.
  constructor(pane, draw) {
    Object.assign(this, { pane, draw, rows: [], heights: [], blocks: new Map() });
    this.before = document.createElement("div");
    this.after = document.createElement("div");
    pane.replaceChildren(this.before, this.after);
    pane.addEventListener("scroll", () => this.#soon(), { passive: true });
    this.count = 0;
  }

  // Other rows, or the same drawn anew. What stood at the top of the view stays there.
  show(rows = this.rows) {
    const anchor = this.top();
    this.rows = rows;
    this.count = rows.length;
    this.heights = [];
    this.#clear();
    this.#guess();
    this.render();
    if (anchor) this.#restore(anchor);
  }

  // Rows were added at the end, or the last one changed. What is drawn stays, so that a selection survives.
  grown(rows) {
    const keep = Math.max(0, Math.min(this.count, rows.length) - 1), from = Math.floor(keep / BLOCK);
    this.rows = rows;
    this.count = rows.length;
    this.heights.length = Math.min(this.heights.length, from);
    this.#guess();
    for (const [i, block] of this.blocks) {
      if (i < from) continue;
      [...block.children].slice(i === from ? keep % BLOCK : 0).forEach((node) => node.remove());
      block.append(...rows.slice(i * BLOCK + block.children.length, (i + 1) * BLOCK).map((row) => this.draw(row)));
      if (block.children.length) this.heights[i] = block.offsetHeight;
      else { block.remove(); this.blocks.delete(i); }
    }
    this.render();
  }

  // Draws one row anew, where it is drawn.
  redraw(row) {
    const i = this.rows.lastIndexOf(row);
    if (i >= 0) this.node(i)?.replaceWith(this.draw(row));
  }

  #clear() {
    this.blocks.forEach((block) => block.remove());
    this.blocks.clear();
  }

  #guess() {
    for (let i = this.heights.length; i * BLOCK < this.rows.length; i += 1) {
      const rows = this.rows.slice(i * BLOCK, (i + 1) * BLOCK);
      this.heights.push(rows.reduce((sum, row) => sum + (row.type === "step" ? HEADING : LINE), 0));
    }
  }

  #soon() {
    this.frame ??= requestAnimationFrame(() => { this.frame = undefined; this.render(); });
  }

  render() {
    // Measuring may move blocks into or out of the view; twice is enough, and a third time is never needed.
    for (let pass = 0; pass < 3 && this.#pass(); pass += 1);
    this.rendered?.();
  }

  #pass() {
    const top = this.pane.scrollTop - MARGIN, bottom = top + this.pane.clientHeight + 2 * MARGIN;
    let at = 0, above = 0, below = 0;
    const wanted = [];
    this.heights.forEach((height, i) => {
      if (at + height < top) above += height;
      else if (at > bottom) below += height;
      else wanted.push(i);
      at += height;
    });
    const fresh = this.#place(wanted);
    this.before.style.height = `${above}px`;
    this.after.style.height = `${below}px`;
    return this.#measure(fresh, above);
  }

  // Makes exactly the wanted blocks stand between the spacers; those that are new.
  #place(wanted) {
    for (const [i, block] of this.blocks) if (!wanted.includes(i)) { block.remove(); this.blocks.delete(i); }
    const fresh = [];
    let next = this.after;
    for (const i of wanted.toReversed()) {
      let block = this.blocks.get(i);
      if (!block) {
        block = document.createElement("div");
        block.append(...this.rows.slice(i * BLOCK, (i + 1) * BLOCK).map((row) => this.draw(row)));
        this.blocks.set(i, block);
        fresh.push(i);
      }
      if (block.nextSibling !== next) this.pane.insertBefore(block, next);
      next = block;
    }
    return fresh;
  }

  #measure(fresh, above) {
    let moved = 0;
    for (const i of fresh) {
      const height = this.blocks.get(i).offsetHeight, by = height - this.heights[i];
      if (!by) continue;
      // A block above the view that turned out taller would push what is read downwards.
      const start = this.heights.slice(0, i).reduce((sum, one) => sum + one, 0);
      if (start + this.heights[i] <= this.pane.scrollTop) this.pane.scrollTop += by;
      this.heights[i] = height;
      moved += 1;
    }
    return moved > 0 && above >= 0;
  }

  // The row at the top of the view and how far it is scrolled away.
  top() {
    const edge = this.pane.getBoundingClientRect().top;
    for (const [i, block] of [...this.blocks].sort(([a], [b]) => a - b)) {
      if (block.getBoundingClientRect().bottom <= edge) continue;
      const at = [...block.children].findIndex((node) => node.getBoundingClientRect().bottom > edge);
      if (at >= 0 && this.rows[i * BLOCK + at]) return { row: this.rows[i * BLOCK + at], offset: block.children[at].getBoundingClientRect().top - edge };
    }
    return null;
  }

  // Whether a row is drawn and within the view.
  sees(row) {
    const node = this.node(this.rows.indexOf(row));
    if (!node) return false;
    const a = node.getBoundingClientRect(), b = this.pane.getBoundingClientRect();
    return a.bottom > b.top && a.top < b.bottom;
  }

  #restore({ row, offset }) {
    const i = this.rows.indexOf(row);
    if (i >= 0) this.toIndex(i, offset);
  }

  // Brings a row into view: `offset` px below the top, or the middle.
  toRow(row, offset = this.pane.clientHeight / 2 - LINE) {
    const i = this.rows.indexOf(row);
    if (i >= 0) this.toIndex(i, offset);
    return i >= 0;
  }

  toIndex(i, offset) {
    const block = Math.floor(i / BLOCK);
    this.pane.scrollTop = this.heights.slice(0, block).reduce((sum, one) => sum + one, 0) + (i % BLOCK) * LINE - offset;
    this.render();
    const node = this.node(i);
    if (node) this.pane.scrollTop += node.getBoundingClientRect().top - this.pane.getBoundingClientRect().top - offset;
    this.render();
  }

  // The element of a row, where it is drawn.
  node(i) {
    return this.blocks.get(Math.floor(i / BLOCK))?.children[i % BLOCK];
  }

  toEnd() {
    this.pane.scrollTop = this.pane.scrollHeight;
    this.render();
    this.pane.scrollTop = this.pane.scrollHeight;
  }

  get ended() {
    return this.pane.scrollTop + this.pane.clientHeight >= this.pane.scrollHeight - 6;
  }
}
