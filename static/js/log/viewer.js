// The log of one attempt: follows its end or stands still where the reader is, folds by step, links lines.
// The markup is templates/deployments/_log.html; parts are found by their data-log attribute.
import { t } from "../texts.js";
import { chosen, covers, hashOf } from "./choice.js";
import { Find, nextError } from "./find.js";
import { draw } from "./row.js";
import { Scroller } from "./scroller.js";
import { tell } from "./status.js";
import { Store } from "./store.js";
import { Tools } from "./tools.js";

const NEAR = 600;  // px from an end at which more lines are asked for

export class Viewer {
  constructor(root, { url, attempt, start, newest, ended }) {
    Object.assign(this, { root, newest, ended, following: false, seen: 0, range: chosen(), loading: 0, problem: "" });
    this.part = (name) => root.querySelector(`[data-log="${name}"]`);
    this.pane = this.part("lines");
    this.view = { times: "off", start, folded: new Set() };
    this.store = new Store({ url, attempt, changed: (how) => this.#changed(how) });
    this.scroller = new Scroller(this.pane, (row) => this.#draw(row));
    this.find = new Find({ field: this.part("find"), out: this.part("hits"), show: (row) => this.reveal(row), redraw: () => this.scroller.show() });
    this.tools = new Tools(this);
    this.#watchScrolling();
  }

  // Loads the chosen lines, else the end.
  async open() {
    await this.#load(() => (this.range ? this.store.jump(this.range.from) : this.store.tail(innerWidth <= 640 ? 200 : 500)));
    if (this.range) this.reveal(this.store.rows.at(this.range.from)); else this.follow(true);
    this.tools.showChosen();
  }

  // One message of the topic job:<id>.
  live(message) { this.store.live(message).catch(() => {}); }
  head(total) { this.store.head(total)?.catch(() => {}); }

  tell() { tell(this); }

  async #load(work) {
    this.loading += 1;
    try { await work(); this.problem = ""; } catch { this.problem = t("Lines could not be loaded. Scroll to try again."); }
    this.loading -= 1;
    this.tell();
  }

  #rows() {
    const { list } = this.store.rows, { folded } = this.view;
    return folded.size ? list.filter((row) => row.type === "step" || !folded.has(row.step)) : list;
  }

  #changed(how) {
    const rows = this.#rows(), { touched, list } = this.store.rows;
    if (rows[0] === this.shownFrom && how !== "reset" && how !== "older") this.scroller.grown(rows); else this.scroller.show(rows);
    this.shownFrom = rows[0];
    touched.forEach((row) => this.scroller.redraw(row));
    touched.clear();
    this.find.update(list);
    if (this.following) this.scroller.toEnd();
    this.tell();
  }

  #draw(row) {
    const node = draw(row, this.view), body = node.querySelector(".log-text");
    if (covers(this.range, row)) node.classList.add("chosen");
    if (body && this.find.hit(row)) {
      this.find.mark(body);
      if (this.find.isCurrent(row)) node.classList.add("hit");
    }
    return node;
  }

  // Everything in view anew, for example in another width.
  redraw() {
    this.scroller.show();
    if (this.following) this.scroller.toEnd();
  }

  follow(on) {
    if (on && !this.store.atEnd) this.#load(() => this.store.tail());
    this.following = this.store.follows = on;
    this.seen = this.store.total;
    if (on) this.scroller.toEnd();
    this.tell();
  }

  fold(step) {
    if (!this.view.folded.delete(step)) this.view.folded.add(step);
    const rows = this.#rows();
    this.scroller.show(rows);
    this.shownFrom = rows[0];
    this.tell();
  }

  reveal(row) {
    if (!row) return;
    this.follow(false);
    if (row.type !== "step" && this.view.folded.has(row.step)) this.fold(row.step);
    this.cursor = row;
    this.scroller.toRow(row);
    this.tell();
  }

  async toLine(n) {
    await this.#load(() => this.store.jump(n));
    this.reveal(this.store.rows.at(n));
  }

  async start() {
    this.follow(false);
    if (!this.store.atStart) await this.toLine(1);
    this.pane.scrollTop = 0;
  }

  error() {
    const row = nextError(this.store.rows.list, this.cursor ?? this.scroller.top()?.row);
    if (!row) { this.part("hits").textContent = t("no error in the loaded lines"); return; }
    this.reveal(row);
    this.choose({ from: row.n, to: row.n });
  }

  choose(range) {
    this.range = range;
    history.replaceState(null, "", range ? hashOf(range) : location.pathname + location.search);
    this.scroller.show();
    this.tools.showChosen();
  }

  #watchScrolling() {
    let before = 0;
    this.pane.addEventListener("scroll", () => {
      const up = this.pane.scrollTop < before - 2;
      before = this.pane.scrollTop;
      if (this.following && up && !this.scroller.ended) this.follow(false);
      const left = this.pane.scrollHeight - before - this.pane.clientHeight;
      if (!this.loading && up && before < NEAR && !this.store.atStart) this.#load(() => this.store.older());
      if (!this.loading && left < NEAR && !this.store.atEnd && !this.following) this.#load(() => this.store.newer());
      this.tell();
    }, { passive: true });
    new ResizeObserver(() => this.redraw()).observe(this.pane);
  }
}
