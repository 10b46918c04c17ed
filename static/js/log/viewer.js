// The log of one attempt: follows its end or stands still where the reader is, folds by step, searches, links lines.
// The markup is templates/deployments/_log.html; parts are found by their data-log attribute.
import { figure, t } from "../texts.js";
import { chosen, covers, extended, hashOf } from "./choice.js";
import { Find, nextError } from "./find.js";
import { draw, showMore, words } from "./row.js";
import { Scroller } from "./scroller.js";
import { Store } from "./store.js";

const NEAR = 600;
const kept = (name, other) => { try { return localStorage.getItem(name) ?? other; } catch { return other; } };
const keep = (name, value) => { try { localStorage.setItem(name, value); } catch { /* private mode */ } };

export class Viewer {
  constructor(root, { url, attempt, start, newest, ended }) {
    Object.assign(this, { root, newest, ended, following: false, seen: 0, range: chosen(), loading: false, problem: "" });
    this.part = (name) => root.querySelector(`[data-log="${name}"]`);
    this.pane = this.part("lines");
    this.view = { times: kept("log-times", "off"), start, folded: new Set() };
    this.store = new Store({ url, attempt, changed: (how) => this.#changed(how) });
    this.scroller = new Scroller(this.pane, (row) => this.#draw(row));
    this.find = new Find({ field: this.part("find"), out: this.part("hits"), show: (row) => this.reveal(row), redraw: () => this.scroller.show() });
    this.#listen();
    this.#wrap(kept("log-wrap", innerWidth <= 640 ? "1" : "0") === "1");
    this.part("times").value = this.view.times;
    root.dataset.times = this.view.times;
  }

  // Loads the chosen lines, else the end.
  async open() {
    await this.#load(() => (this.range ? this.store.jump(this.range.from) : this.store.tail(innerWidth <= 640 ? 200 : 500)));
    if (this.range) this.reveal(this.store.rows.at(this.range.from)); else this.follow(true);
    this.#chosenTools();
  }

  // One message of the topic job:<id>.
  live(message) { this.store.live(message).catch(() => {}); }
  head(total) { this.store.head(total)?.catch(() => {}); }

  async #load(work) {
    if (this.loading) return;
    this.loading = true;
    try { await work(); this.problem = ""; } catch { this.problem = t("Lines could not be loaded. Scroll to try again."); }
    this.loading = false;
    this.tell();
  }

  #rows() {
    const { list } = this.store.rows, { folded } = this.view;
    return folded.size ? list.filter((row) => row.type === "step" || !folded.has(row.step)) : list;
  }

  #changed(how) {
    const rows = this.#rows(), touched = this.store.rows.touched;
    const sameStart = rows[0] === this.scroller.rows[0] && this.shownFrom === rows[0];
    if (sameStart && how !== "reset" && how !== "older") this.scroller.grown(rows); else this.scroller.show(rows);
    this.shownFrom = rows[0];
    touched.forEach((row) => this.scroller.redraw(row));
    touched.clear();
    if (this.find.word) this.find.update(rows); else this.find.rows = rows;
    if (this.following) this.scroller.toEnd();
    this.tell();
  }

  #draw(row) {
    const node = draw(row, this.view);
    if (covers(this.range, row)) node.classList.add("chosen");
    if (this.find.hit(row)) {
      const body = node.querySelector(".log-text");
      if (body) this.find.mark(body);
      if (this.find.isCurrent(row)) node.classList.add("hit");
    }
    return node;
  }

  follow(on) {
    if (on && !this.store.atEnd) this.#load(() => this.store.tail());
    this.following = this.store.follows = on;
    this.seen = this.store.total;
    if (on) this.scroller.toEnd();
    this.tell();
  }

  tell() {
    const { total, low, high, done } = this.store, unread = total - this.seen;
    // A job that ended before its server wrote anything has a log that stays empty.
    const complete = !this.newest || (done && high >= total) || (this.ended && !total);
    const state = complete ? t("complete") : this.following ? t("following") : t("paused");
    const whole = low <= 1 && high >= total;
    const count = whole ? t("%(n)s lines", { n: figure(total) }) : t("lines %(low)s–%(high)s of %(n)s", { low: figure(low), high: figure(Math.min(high, total)), n: figure(total) });
    this.part("status").textContent = this.problem || (total ? `${count} · ${state}` : complete ? t("This attempt wrote no log.") : t("No lines yet. They appear as the server sends them."));
    this.#followButton(complete, unread);
    this.root.classList.toggle("complete", complete);
    this.#here();
  }

  #followButton(complete, unread) {
    const button = this.part("follow");
    button.hidden = complete && this.scroller.ended && this.store.atEnd;
    button.setAttribute("aria-pressed", String(this.following && !complete));
    button.querySelector("span").textContent = complete ? t("To the end") : this.following ? t("Following") : unread > 0 ? t("Follow · %(n)s new", { n: figure(unread) }) : t("Follow");
  }

  // The heading of the step whose lines are at the top of the view.
  #here() {
    const bar = this.part("here"), top = this.scroller.top()?.row;
    const heading = top && top.step ? this.store.rows.list.findLast((row) => row.type === "step" && row.event.n === top.step && row.n <= top.n) : null;
    bar.hidden = !heading || heading === top;
    if (bar.hidden || bar.dataset.row === `${heading.n}${heading.state}`) return;
    bar.dataset.row = `${heading.n}${heading.state}`;
    const drawn = draw(heading, this.view);
    drawn.removeAttribute("id");
    bar.replaceChildren(drawn);
  }

  reveal(row) {
    if (!row) return;
    this.follow(false);
    if (this.view.folded.delete(row.step)) this.scroller.show(this.#rows());
    this.cursor = row;
    this.scroller.toRow(row);
    this.tell();
  }

  async toLine(n) {
    await this.#load(() => this.store.jump(n));
    this.reveal(this.store.rows.at(n));
  }

  error() {
    const row = nextError(this.store.rows.list, this.cursor ?? this.scroller.top()?.row);
    if (!row) { this.part("hits").textContent = t("no error in the loaded lines"); return; }
    this.reveal(row);
    this.#choose({ from: row.n, to: row.n });
  }

  async edge(start) {
    if (!start) { this.follow(true); return; }
    this.follow(false);
    if (!this.store.atStart) await this.toLine(1);
    this.pane.scrollTop = 0;
  }

  #choose(range) {
    this.range = range;
    history.replaceState(null, "", range ? hashOf(range) : location.pathname + location.search);
    this.scroller.show();
    this.#chosenTools();
  }

  #chosenTools() {
    const tools = this.part("chosen");
    tools.hidden = !this.range;
    if (!this.range) return;
    const count = this.store.rows.list.filter((row) => covers(this.range, row)).length;
    tools.querySelector("[data-log=copy] span").textContent = t("Copy lines (%(n)s)", { n: figure(count) });
  }

  #listen() {
    this.pane.addEventListener("click", (event) => this.#click(event));
    this.part("here").addEventListener("click", (event) => this.#click(event));
    let before = 0;
    this.pane.addEventListener("scroll", () => {
      const up = this.pane.scrollTop < before - 2;
      before = this.pane.scrollTop;
      if (this.following && up && !this.scroller.ended) this.follow(false);
      if (before < NEAR && !this.store.atStart && up) this.#load(() => this.store.older());
      const left = this.pane.scrollHeight - before - this.pane.clientHeight;
      if (left < NEAR && !this.store.atEnd && !this.following) this.#load(() => this.store.newer());
      this.tell();
    }, { passive: true });
    new ResizeObserver(() => { this.scroller.show(); if (this.following) this.scroller.toEnd(); }).observe(this.pane);
    // On a phone the button stands at the thumb, while the log is in view.
    new IntersectionObserver(([entry]) => this.root.classList.toggle("in-view", entry.isIntersecting), { rootMargin: "-120px" }).observe(this.root);
    const on = (name, type, act) => this.part(name).addEventListener(type, act);
    on("follow", "click", () => this.follow(!this.following));
    on("error", "click", () => this.error());
    on("wrap", "click", () => this.#wrap(!this.root.classList.contains("wrapped")));
    on("times", "change", (event) => this.#times(event.target.value));
    on("copy", "click", (event) => { event.currentTarget.dataset.copy = this.#copied(); });
    on("link", "click", (event) => { event.currentTarget.dataset.copy = location.href; });
    addEventListener("hashchange", () => this.#hash());
  }

  #click(event) {
    const link = event.target.closest("a[href^='#L']"), more = event.target.closest("[data-more]"), step = event.target.closest("[data-step]");
    if (link) {
      event.preventDefault();
      this.follow(false);
      this.#choose(extended(this.range, Number(link.textContent), event.shiftKey));
    } else if (more) {
      const row = this.store.rows.list.find((one) => one.n === Number(more.dataset.more));
      if (row) { showMore(row); this.scroller.redraw(row); this.scroller.show(); }
    } else if (step) this.#fold(Number(step.dataset.step));
  }

  #hash() {
    this.range = chosen();
    this.#chosenTools();
    if (this.range) this.toLine(this.range.from).then(() => this.scroller.show());
  }

  #fold(step) {
    const { folded } = this.view;
    if (!folded.delete(step)) folded.add(step);
    this.part("here").dataset.row = "";
    this.shownFrom = undefined;
    this.scroller.show(this.#rows());
    this.shownFrom = this.scroller.rows[0];
    this.tell();
  }

  #wrap(on) {
    this.root.classList.toggle("wrapped", on);
    this.part("wrap").setAttribute("aria-pressed", String(on));
    keep("log-wrap", on ? "1" : "0");
    this.scroller.show();
    if (this.following) this.scroller.toEnd();
  }

  #times(way) {
    this.view.times = this.root.dataset.times = way;
    this.part("times").value = way;
    keep("log-times", way);
    this.scroller.show();
    if (this.following) this.scroller.toEnd();
  }

  #copied() {
    return this.store.rows.list.filter((row) => covers(this.range, row)).map(words).join("\n");
  }

  // What a key does, or undefined.
  keys() {
    const ways = ["off", "relative", "local", "utc"];
    return {
      f: () => this.follow(!this.following), "/": () => this.part("find").focus(), n: () => this.find.step(1), N: () => this.find.step(-1),
      e: () => this.error(), g: () => this.edge(true), G: () => this.edge(false),
      w: () => this.#wrap(!this.root.classList.contains("wrapped")),
      t: () => this.#times(ways[(ways.indexOf(this.view.times) + 1) % ways.length]),
      Escape: () => this.range && this.#choose(null),
    };
  }
}
