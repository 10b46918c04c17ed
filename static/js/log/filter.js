// Which lines are shown: all, or those of a level, of one process, or with the word that is searched.
// What is chosen stands in the address, so that a link brings the same view.
import { element, figure, t } from "../texts.js";
import { Away, Refused } from "./remote.js";
import { Sieve } from "./sieve.js";

const PARTS = 8;       // answers of a second of work each
const ENOUGH = 100;  // lines, for any screen
const LEVELS = { error: "Errors", warning: "Warnings", info: "Info", debug: "Debug" };

export class Filter {
  constructor(viewer) {
    const asked = new URLSearchParams(location.search);
    Object.assign(this, { viewer, level: asked.get("level") ?? "", rank: asked.get("rank") ?? "", word: null, facets: null, count: null });
    for (const name of ["level", "rank"]) viewer.part(name).addEventListener("change", (event) => { this[name] = event.target.value; this.apply(); });
    viewer.part("only").addEventListener("click", () => this.#only());
    viewer.part("unfilter").addEventListener("click", () => this.leave());
    viewer.part("level").hidden = viewer.part("rank").hidden = !viewer.remote.has("filtered");
    // Asked when they are wanted: most readers only look at the end.
    for (const name of ["level", "rank"]) viewer.part(name).addEventListener("focus", () => this.load());
  }

  // For searches within the view.
  get query() { return { level: this.level, rank: this.rank }; }

  get on() { return Boolean(this.level || this.rank !== "" || this.word); }

  async load() {
    const { viewer } = this, total = viewer.store.total;
    if (!viewer.remote.has("facets") || this.loading || total === this.known || (this.facets && viewer.store.total < 1.2 * this.known)) return;
    this.loading = true;
    try {
      await this.#counted();
      this.known = total;
    } catch { /* the choice stays as it is */ }
    this.loading = false;
  }

  // The server counts a second at a time; what each part tells is added up, and of a very long log PARTS must do.
  async #counted() {
    const levels = {}, ranks = new Set();
    for (let after = 0, n = 0; n < PARTS; n += 1) {
      const part = await this.viewer.remote.ask("facets", { after });
      for (const [name, count] of Object.entries(part.levels)) levels[name] = (levels[name] ?? 0) + count;
      part.ranks.forEach((name) => ranks.add(name));
      const whole = part.complete || part.scanned_to <= after;
      this.facets = { levels, whole, ranks: [...ranks].sort((a, b) => a.localeCompare(b, "en", { numeric: true })) };
      this.#options();
      if (whole) return;
      after = part.scanned_to;
    }
  }

  #options() {
    const { levels = {}, ranks = [], whole = true } = this.facets ?? {}, count = (name) => `${figure(levels[name])}${whole ? "" : "+"}`;
    const known = Object.keys(LEVELS).filter((name) => name in levels || name === "error" || name === "warning");
    fill(this.viewer.part("level"), this.level, [["", t("All levels")], ...known.map((name) => [name, `${t(LEVELS[name])}${name in levels ? ` (${count(name)})` : ""}`])]);
    fill(this.viewer.part("rank"), this.rank, [["", t("All processes")], ...ranks.map((name) => [String(name), /^\d+$/.test(name) ? t("Rank %(n)s", { n: name }) : String(name)])]);
    this.viewer.part("rank").hidden = !this.viewer.remote.has("filtered") || (ranks.length < 1 && this.rank === "");
    const badge = this.viewer.part("errors");
    badge.hidden = !("error" in levels);
    badge.textContent = badge.hidden ? "" : count("error");
  }

  #only() {
    const { find } = this.viewer;
    this.word = this.word ? null : find.text ? { q: find.text, ...find.options } : null;
    this.apply();
  }

  leave() {
    Object.assign(this, { level: "", rank: "", word: null });
    return this.apply();
  }

  // Shows what passes; the line that was read stays in view where it passes too.
  async apply() {
    const { viewer } = this, kept = viewer.following ? 0 : viewer.range?.from ?? viewer.cursor?.n ?? viewer.scroller.top()?.row.n ?? 0;
    this.#options();
    this.#address();
    viewer.say("");
    viewer.shown = this.on ? this.#sieve() : viewer.store;
    viewer.store.follows = viewer.following && !this.on;
    this.tell();
    try {
      if (this.on) await this.#fill();
      else await viewer.back(kept);
    } catch (error) { return this.#failed(error); }
    if (viewer.find.text && !this.word) viewer.find.search();
  }

  #sieve() {
    const { viewer } = this, query = { ...this.query, ...this.word };
    const sieve = new Sieve({ remote: viewer.remote, query, whole: viewer.store, changed: (how) => viewer.changed(sieve, how) });
    return sieve;
  }

  async #fill() {
    const { viewer } = this, sieve = viewer.shown;
    this.count = null;
    await sieve.tail();
    viewer.follow(true);
    this.#number(sieve).catch(() => {});
    // One answer goes through a part of the log; what passes may stand far up.
    while (sieve === viewer.shown && !sieve.atStart && sieve.rows.list.length < ENOUGH) await sieve.older();
  }

  // How many lines pass: a matter of seconds in a long log, so the count grows while it goes on.
  async #number(sieve) {
    let after = 0, count = 0;
    for (;;) {
      const json = await this.viewer.remote.ask("find", { ...sieve.query, after, n: 1 });
      if (sieve !== this.viewer.shown) return;
      count += json.count;
      this.count = { n: count, complete: json.complete };
      this.tell();
      if (json.complete || json.scanned_to <= after) return;
      after = json.scanned_to;
    }
  }

  #failed(error) {
    if (!(error instanceof Refused) && !(error instanceof Away)) throw error;
    Object.assign(this, { level: "", rank: "", word: null });
    this.viewer.shown = this.viewer.store;
    this.#options();
    this.#address();
    this.tell();
    this.viewer.changed(this.viewer.store, "reset");
    this.viewer.say(error instanceof Refused ? error.message : t("The console does not answer, so the log cannot be filtered. All loaded lines are shown."));
  }

  #address() {
    const url = new URL(location.href);
    for (const name of ["level", "rank"]) if (this[name] === "") url.searchParams.delete(name); else url.searchParams.set(name, this[name]);
    if (url.href !== location.href) history.replaceState(null, "", url);
  }

  tell() {
    const { viewer } = this, total = figure(viewer.store.total);
    viewer.part("only").setAttribute("aria-pressed", String(Boolean(this.word)));
    viewer.part("filter").hidden = !this.on;
    viewer.root.classList.toggle("filtered", this.on);
    if (!this.on) return;
    const what = [this.level && t(LEVELS[this.level] ?? this.level), this.rank !== "" && (/^\d+$/.test(this.rank) ? t("Rank %(n)s", { n: this.rank }) : this.rank), this.word && `“${this.word.q}”`].filter(Boolean).join(" · ");
    const count = this.count ? `${figure(this.count.n)}${this.count.complete ? "" : "+"}` : "…";
    viewer.part("filter-text").replaceChildren(element("b", "", what), ` ${t("%(n)s of %(of)s lines", { n: count, of: total })}`);
  }
}

function fill(select, value, choices) {
  const all = choices.some(([name]) => name === value) ? choices : [...choices, [value, value]];
  const same = select.options.length === all.length && all.every(([name, words], i) => select.options[i].value === name && select.options[i].text === words);
  if (!same) select.replaceChildren(...all.map(([name, words]) => new Option(words, name)));
  select.value = value;
}
