// A filtered view: the lines of a log that pass, with their own numbers. To the viewer it looks like a store.
import { parse } from "./records.js";
import { Range } from "./store.js";

const STEP = 500, MOST = 20_000;

export class Sieve extends Range {
  // `query`: { level, rank, q, regex, case }; `whole` is the store of the whole log; `changed(how)` as there.
  constructor({ remote, query, whole, changed }) {
    super();
    Object.assign(this, { remote, query, whole, changed, follows: false, passed: null });
  }

  get total() { return this.whole.total; }
  get done() { return this.whole.done; }

  tail(n = STEP) {
    return this.turn(async () => {
      const answer = await this.#ask({ n });
      this.clear(answer.low);
      answer.records.forEach((record) => this.rows.push(record));
      this.high = Math.max(this.total, answer.records.at(-1)?.n ?? 0);
      this.changed("reset");
    });
  }

  // Goes up until lines came: a part of the log may hold none that passes.
  older() {
    return this.turn(async () => {
      while (!this.atStart) {
        const answer = await this.#ask({ before: this.low, n: STEP });
        if (answer.low >= this.low) return;
        this.low = answer.low;
        if (!answer.records.length) continue;
        this.rows.prepend(answer.records);
        if (this.rows.list.length > MOST) this.high = this.rows.dropAfter(this.rows.list[Math.floor(MOST * 0.8)].n) ?? this.high;
        break;
      }
      this.changed("older");
    });
  }

  newer() { return this.turn(() => this.#newer("newer")); }

  async #newer(how) {
    while (!this.atEnd) {
      const answer = await this.#ask({ after: this.high, n: STEP });
      if (answer.high <= this.high) return;
      this.high = answer.high;
      if (!answer.records.length) continue;
      answer.records.forEach((record) => this.rows.push(record));
      if (this.rows.list.length > MOST) this.low = this.rows.dropBefore(this.rows.list.at(-Math.floor(MOST * 0.8)).n) ?? this.low;
      this.changed(how);
      if (how === "newer") return;
    }
  }

  jump(line) {
    return this.turn(async () => {
      if (line >= this.low && line <= this.high) return;
      const answer = await this.#ask({ after: Math.max(0, line - 1), n: STEP });
      this.clear(line);
      this.high = answer.high;
      answer.records.forEach((record) => this.rows.push(record));
      this.changed("reset");
    });
  }

  // The whole log has grown; asked at most once a second.
  grown() {
    this.changed("live");
    if (!this.follows || this.later) return;
    this.later = setTimeout(() => { this.later = 0; this.turn(() => this.#newer("live")).catch(() => {}); }, 1000);
  }

  // { records, low, high }: what passed of the lines low … high.
  async #ask(range) {
    const json = await this.remote.ask("filtered", { ...this.query, ...range });
    const records = parse(json.text, 1).map((record, i) => ({ ...record, n: json.lines[i] }));
    this.whole.total = Math.max(this.whole.total, json.total ?? 0);
    const first = records[0]?.n ?? Infinity, last = records.at(-1)?.n ?? 0, down = "after" in range;
    return { records, low: down ? range.after + 1 : json.done ? 1 : Math.min(first, json.scanned_to ?? first), high: down ? Math.max(last, json.scanned_to ?? last, json.done ? this.total : 0) : last };
  }
}
