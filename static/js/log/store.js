// The part of a log that is loaded: one unbroken range of lines, [low, high] of `total`.
// Live lines go on at its end; a hole is fetched over HTTP; the far end is let go when the range grows too long.

import { parse, Rows } from "./records.js";

const STEP = 1000, MOST = 60_000;

// What is loaded of a log, and work on it in the order asked for: answers that overtake would tear the range.
export class Range {
  constructor() {
    this.clear(1);
    this.queue = Promise.resolve();
  }

  get atEnd() { return this.high >= this.total; }
  get atStart() { return this.low <= 1; }

  clear(low) {
    this.rows = new Rows();
    this.low = low;
    this.high = low - 1;
  }

  turn(work) { return this.queue = this.queue.then(work, work); }
}

export class Store extends Range {
  // `url` takes after=, before= and n=; `changed(how)` is called with reset, older, newer or live.
  constructor({ url, attempt, changed }) {
    super();
    Object.assign(this, { url, attempt, changed, total: 0, done: false, missed: 0 });
  }

  tail(n = 500) { return this.turn(async () => this.#replace(await this.#ask({ n }))); }

  older() {
    return this.turn(async () => {
      if (this.atStart) return;
      const answer = await this.#ask({ before: this.low, n: STEP });
      if (!answer.n || answer.first + answer.n !== this.low) return;
      this.rows.prepend(parse(answer.text, answer.first));
      this.low = answer.first;
      this.#trim("end");
      this.changed("older");
    });
  }

  newer() { return this.turn(() => this.#newer()); }

  async #newer(how = "newer") {
    if (this.atEnd) return false;
    const answer = await this.#ask({ after: this.high, n: STEP });
    if (!answer.n || answer.first !== this.high + 1) return false;
    this.#append(answer);
    this.changed(how);
    return true;
  }

  // Loads around a line, unless it is there already.
  jump(line) {
    return this.turn(async () => {
      if (line >= this.low && line <= this.high) return;
      if (this.high >= this.low && line > this.high && line - this.high < 2 * STEP) { while (line > this.high && await this.#newer()); return; }
      this.#replace(await this.#ask({ after: Math.max(0, line - 300), n: 600 }));
    });
  }

  // A message of the topic: raw records from `first`. What is known is dropped, what is missing is fetched.
  live({ first, n, text }) {
    this.total = Math.max(this.total, first + n - 1);
    return this.turn(async () => {
      const last = first + n - 1;
      // Without an unbroken way to the end (the reader is far up) new lines are only counted.
      if (last <= this.high || (this.high < first - 1 && !this.follows)) return this.changed("live");
      while (this.high < first - 1 && await this.#newer("live"));
      if (last <= this.high || this.high < first - 1) return;
      const records = parse(text, first).slice(this.high + 1 - first);
      this.#append({ first: this.high + 1, n: records.length, records });
      this.changed("live");
    });
  }

  // The end moved to `total` without its lines.
  head(total) {
    this.total = Math.max(this.total, total);
    if (this.follows && this.high < total) return this.turn(async () => { while (await this.#newer("live")); });
    this.changed("live");
  }

  async #ask(range) {
    const json = await this.read(range);
    this.total = Math.max(this.total, json.total);
    this.done = json.done;
    this.attempt ??= json.attempt;
    return json;
  }

  // One answer: { first, n, total, text, done, … } of after=, before= or the tail.
  async read(range) {
    const query = new URLSearchParams({ ...(this.attempt && { attempt: this.attempt }), ...range });
    const answer = await fetch(`${this.url}?${query}`, { headers: { Accept: "application/json" } });
    if (!answer.ok) throw new Error(`${answer.status}`);
    return answer.json();
  }

  #replace(answer) {
    this.clear(answer.n ? answer.first : this.total + 1);
    this.#append(answer);
    this.changed("reset");
  }

  #append({ first, n, text, records = parse(text, first) }) {
    records.forEach((record) => this.rows.push(record));
    this.high = first + n - 1;
    this.done ||= this.rows.ended;
    this.#trim("start");
  }

  #trim(from) {
    if (this.high - this.low < MOST) return;
    if (from === "start") this.low = this.rows.dropBefore(this.high - MOST * 0.8) ?? this.low;
    else this.high = this.rows.dropAfter(this.low + MOST * 0.8) ?? this.high;
  }
}
