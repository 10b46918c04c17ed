// The viewer's bar, its sheet on a phone, its keys, and what a click on a line does.
import { figure, t } from "../texts.js";
import { chosen, extended } from "./choice.js";
import { copyLines } from "./copying.js";
import { showMore } from "./row.js";

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
    on("copy", "click", () => copyLines(viewer, false));
    on("copy-numbered", "click", () => copyLines(viewer, true));
    on("unchoose", "click", () => viewer.choose(null));
    // frame.js copies what data-copy holds when the click reaches the document
    on("link", "click", (event) => { event.currentTarget.dataset.copy = location.href; });
    on("goto", "submit", (event) => { event.preventDefault(); this.#goto(); });
    addEventListener("hashchange", () => this.#hash());
    this.#sheet(on);
    // On a phone the button to follow stands at the thumb, while the log is in view.
    const inView = ([entry]) => viewer.root.classList.toggle("in-view", entry.isIntersecting);
    new IntersectionObserver(inView, { rootMargin: "-120px" }).observe(viewer.root);
    this.#wrap(kept("log-wrap", innerWidth <= 640 ? "1" : "0") === "1");
    this.#times(kept("log-times", "off"));
  }

  #sheet(on) {
    on("open-tools", "click", () => this.open(!this.viewer.root.classList.contains("tools-open")));
    on("close-tools", "click", () => this.open(false));
    this.viewer.part("tools").addEventListener("keydown", (event) => { if (event.key === "Escape" && this.open(false)) event.stopPropagation(); });
    this.viewer.root.addEventListener("click", (event) => { if (event.target === this.viewer.part("shade")) this.open(false); });
  }

  // The sheet of tools on a phone; focus goes in and comes back.
  open(yes) {
    const { root } = this.viewer, opener = this.viewer.part("open-tools"), was = root.classList.contains("tools-open");
    if (was === yes) return false;
    root.classList.toggle("tools-open", yes);
    opener.setAttribute("aria-expanded", String(yes));
    if (yes) { this.viewer.filter.load(); this.viewer.part("close-tools").focus(); } else opener.focus();
    return true;
  }

  #goto() {
    const field = this.viewer.part("line"), n = Number(field.value);
    if (!Number.isInteger(n) || n < 1) return;
    field.value = "";
    field.blur();
    this.open(false);
    this.viewer.goto(n);
  }

  #click(event) {
    const { viewer } = this;
    const link = event.target.closest("a[href^='#L']"), more = event.target.closest("[data-more]"), step = event.target.closest("[data-step]");
    if (link) {
      event.preventDefault();
      viewer.follow(false);
      viewer.choose(extended(viewer.range, Number(link.textContent), event.shiftKey));
    } else if (more) {
      const row = viewer.shown.rows.list.find((one) => one.n === Number(more.dataset.more));
      if (row) { showMore(row); viewer.scroller.redraw(row); viewer.scroller.show(); }
    } else if (step) viewer.fold(Number(step.dataset.step));
  }

  #hash() {
    const { viewer } = this;
    viewer.range = chosen();
    this.showChosen();
    if (viewer.range) viewer.toLine(viewer.range.from).then(() => viewer.scroller.show());
  }

  showChosen() {
    const { range, root } = this.viewer;
    this.viewer.part("chosen").hidden = !range;
    root.classList.toggle("has-chosen", Boolean(range));
    if (range) this.viewer.part("copy").querySelector("span").textContent = t("Copy lines (%(n)s)", { n: figure(range.to - range.from + 1) });
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
      c: () => copyLines(viewer, false), C: () => copyLines(viewer, true),
      Escape: () => { if (!this.open(false) && viewer.range) viewer.choose(null); },
    };
  }
}
