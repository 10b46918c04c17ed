// The viewer's bar, its keys and what a click on a line does.
import { figure, t } from "../texts.js";
import { chosen, covers, extended } from "./choice.js";
import { showMore, words } from "./row.js";

const WAYS = ["off", "relative", "local", "utc"];
const kept = (name, other) => { try { return localStorage.getItem(name) ?? other; } catch { return other; } };
const keep = (name, value) => { try { localStorage.setItem(name, value); } catch { /* private mode */ } };

export class Tools {
  constructor(viewer) {
    this.viewer = viewer;
    const on = (name, type, act) => viewer.part(name).addEventListener(type, act);
    on("lines", "click", (event) => this.#click(event));
    on("here", "click", (event) => this.#click(event));
    on("follow", "click", () => viewer.follow(!viewer.following));
    on("error", "click", () => viewer.error());
    on("wrap", "click", () => this.#wrap(!viewer.root.classList.contains("wrapped")));
    on("times", "change", (event) => this.#times(event.target.value));
    // frame.js copies what data-copy holds when the click reaches the document
    on("copy", "click", (event) => { event.currentTarget.dataset.copy = this.#chosenRows().map(words).join("\n"); });
    on("link", "click", (event) => { event.currentTarget.dataset.copy = location.href; });
    addEventListener("hashchange", () => this.#hash());
    // On a phone the button to follow stands at the thumb, while the log is in view.
    const inView = ([entry]) => viewer.root.classList.toggle("in-view", entry.isIntersecting);
    new IntersectionObserver(inView, { rootMargin: "-120px" }).observe(viewer.root);
    this.#wrap(kept("log-wrap", innerWidth <= 640 ? "1" : "0") === "1");
    this.#times(kept("log-times", "off"));
  }

  #click(event) {
    const { viewer } = this;
    const link = event.target.closest("a[href^='#L']"), more = event.target.closest("[data-more]"), step = event.target.closest("[data-step]");
    if (link) {
      event.preventDefault();
      viewer.follow(false);
      viewer.choose(extended(viewer.range, Number(link.textContent), event.shiftKey));
    } else if (more) {
      const row = viewer.store.rows.list.find((one) => one.n === Number(more.dataset.more));
      if (row) { showMore(row); viewer.scroller.redraw(row); viewer.scroller.show(); }
    } else if (step) viewer.fold(Number(step.dataset.step));
  }

  #hash() {
    const { viewer } = this;
    viewer.range = chosen();
    this.showChosen();
    if (viewer.range) viewer.toLine(viewer.range.from).then(() => viewer.scroller.show());
  }

  #chosenRows() {
    return this.viewer.store.rows.list.filter((row) => covers(this.viewer.range, row));
  }

  showChosen() {
    this.viewer.part("chosen").hidden = !this.viewer.range;
    this.viewer.part("copy").querySelector("span").textContent = t("Copy lines (%(n)s)", { n: figure(this.#chosenRows().length) });
  }

  #wrap(on) {
    this.viewer.root.classList.toggle("wrapped", on);
    this.viewer.part("wrap").setAttribute("aria-pressed", String(on));
    keep("log-wrap", on ? "1" : "0");
    this.viewer.redraw();
  }

  #times(asked) {
    const way = WAYS.includes(asked) ? asked : "off";
    this.viewer.view.times = this.viewer.root.dataset.times = way;
    this.viewer.part("times").value = way;
    keep("log-times", way);
    this.viewer.redraw();
  }

  // What each key does.
  keys() {
    const { viewer } = this;
    return {
      f: () => viewer.follow(!viewer.following), "/": () => viewer.part("find").focus(),
      n: () => viewer.find.step(1), N: () => viewer.find.step(-1), e: () => viewer.error(),
      g: () => viewer.start(), G: () => viewer.follow(true),
      w: () => this.#wrap(!viewer.root.classList.contains("wrapped")),
      t: () => this.#times(WAYS[(WAYS.indexOf(viewer.view.times) + 1) % WAYS.length]),
      Escape: () => viewer.range && viewer.choose(null),
    };
  }
}
