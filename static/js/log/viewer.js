// One log: follows its end or stands still where the reader is, folds by step, links lines, searches and filters.
// The markup is templates/deployments/_log.html; parts are found by their data-log attribute.
import { figure, t } from "../texts.js";
import { chosen, covers, hashOf } from "./choice.js";
import { showConnection } from "./chip.js";
import { Filter } from "./filter.js";
import { Find, nextError } from "./find.js";
import { Away, Refused, Remote } from "./remote.js";
import { draw } from "./row.js";
import { Scroller } from "./scroller.js";
import { tell } from "./status.js";
import { Store } from "./store.js";
import { Tools } from "./tools.js";

const NEAR = 600;  // px from an end at which more lines are asked for

export class Viewer {
  // `store` is the whole log, `shown` what is seen of it: the same, or a filtered view.
  // `find`, `firstError`, `filtered`, `facets` are addresses of the whole log's services; `zip` of its archive.
  constructor(root, { url, attempt, start, newest, ended, zip, ...urls }) {
    Object.assign(this, { root, newest, ended, following: false, seen: 0, range: chosen(), loading: 0, problem: "", size: innerWidth <= 640 ? 200 : 500 });
    this.part = (name) => root.querySelector(`[data-log="${name}"]`);
    this.pane = this.part("lines");
    this.view = { times: "off", start, folded: new Set() };
    this.store = this.shown = new Store({ url, attempt, changed: (how) => this.changed(this.store, how) });
    this.remote = new Remote(urls, () => this.store.attempt);
    this.scroller = new Scroller(this.pane, (row) => this.#draw(row));
    this.filter = new Filter(this);
    this.find = new Find(this);
    this.tools = new Tools(this);
    if (zip) Object.assign(this.part("zip"), { href: zip, hidden: false });
    document.addEventListener("live-state", () => this.tell());
    this.#watchScrolling();
  }

  // Loads the chosen lines, else the end.
  async open() {
    await this.#load(() => (this.range ? this.store.jump(this.range.from) : this.store.tail(this.size)));
    if (this.range) this.reveal(this.store.rows.at(this.range.from)); else this.follow(true);
    this.tools.showChosen();
    if (this.filter.on) await this.filter.apply();
  }

  // One message of the topic job:<id>.
  live(message) { this.store.live(message).catch(() => {}); }
  head(total) { this.store.head(total)?.catch(() => {}); }

  tell() { showConnection(this.part("connection"), tell(this)); }

  // A sentence under the bar: what went wrong, or what was done. Empty: none.
  say(text, look = "problem") {
    const node = this.part("said");
    node.hidden = !text;
    node.dataset.look = look;
    if (node.textContent !== text) node.textContent = text;
    clearTimeout(this.silence);
    if (text && look === "note") this.silence = setTimeout(() => this.say(""), 4000);
  }

  async #load(work) {
    this.loading += 1;
    try { await work(); this.problem = ""; } catch { this.problem = t("Lines could not be loaded. Scroll to try again."); }
    this.loading -= 1;
    this.tell();
  }

  #rows() {
    const { list } = this.shown.rows, { folded } = this.view;
    return folded.size ? list.filter((row) => row.type === "step" || !folded.has(row.step)) : list;
  }

  // Lines of a store came or went; of another one than is shown, only their number matters.
  changed(store, how) {
    if (store !== this.shown) { if (store === this.store) this.shown.grown?.(); return; }
    const rows = this.#rows(), { touched, list } = this.shown.rows;
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
      this.find.mark(body, row);
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
    if (on && !this.shown.atEnd) this.#load(() => this.shown.tail(this.size));
    this.following = this.shown.follows = on;
    this.seen = this.store.total;
    if (on) this.scroller.toEnd();
    this.tell();
  }

  // From a filtered view to the whole log, at the line that was read; 0: its end.
  async back(line) {
    this.changed(this.store, "reset");
    if (line) await this.toLine(line); else this.follow(true);
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

  // Shows line `n`, loading what is around it; its row.
  async toLine(n) {
    await this.#load(() => this.shown.jump(n));
    const row = this.shown.rows.at(n);
    this.reveal(row);
    return row;
  }

  // A line that the reader names by its number.
  async goto(n) {
    if (n > this.store.total) return this.say(t("This log has %(n)s lines.", { n: figure(this.store.total) }));
    await this.toLine(n);
    this.choose({ from: n, to: n });
  }

  async start() {
    this.follow(false);
    if (!this.shown.atStart) await this.toLine(1);
    this.pane.scrollTop = 0;
  }

  // The line after which the reader looks for something: 0 while the end is followed, which is the whole log.
  place() {
    if (this.following) return 0;
    if (this.cursor && this.scroller.sees(this.cursor)) return this.cursor.last;
    return Math.max(0, (this.scroller.top()?.row.n ?? 1) - 1);
  }

  // The first error of the log, then the next one, round and round.
  async error() {
    const from = this.place();
    let line;
    try { line = await this.remote.errorAfter(from) ?? (from && await this.remote.errorAfter(0)); } catch (error) {
      if (error instanceof Refused) return this.say(error.message);
      if (!(error instanceof Away)) throw error;
      line = nextError(this.store.rows.list, from)?.n;
      if (!line) return this.say(t("no error in the loaded lines"), "note");
    }
    if (!line) return this.say(t("No error in this log."), "note");
    if (this.filter.on) await this.filter.leave();
    const row = await this.toLine(line);
    if (row) this.choose({ from: row.n, to: row.n });
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
      if (!this.loading && up && before < NEAR && !this.shown.atStart) this.#load(() => this.shown.older());
      if (!this.loading && left < NEAR && !this.shown.atEnd && !this.following) this.#load(() => this.shown.newer());
      this.tell();
    }, { passive: true });
    new ResizeObserver(() => this.redraw()).observe(this.pane);
  }
}
