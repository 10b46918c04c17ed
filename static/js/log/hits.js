// The hits of one search. The server goes through the log in parts of a second each, from its first line to its last;
// what it has told so far is kept as spans (`from`, `to`] with a count, and those of their lines that it named.

export class Hits {
  constructor(query, remote) {
    Object.assign(this, { query, remote, parts: [], count: 0, to: 0, total: 0, complete: false, marks: new Map(), stopped: false });
    this.abort = new AbortController();
  }

  // Goes on until the end of the log is reached; `told` is called after each part.
  async scan(told) {
    if (this.busy) return;
    this.busy = true;
    try {
      do {
        const json = await this.#ask({ after: this.to, n: 500 });
        this.parts.push({ from: this.to, to: json.scanned_to, count: json.count, lines: this.#lines(json) });
        this.count += json.count;
        this.complete = json.complete || json.scanned_to <= this.to;
        this.to = Math.max(this.to, json.scanned_to);
        this.total = json.total;
        told();
      } while (!this.complete && !this.stopped);
    } finally { this.busy = false; }
  }

  // The next hit after `line` (or, with `by` −1, the one before it), from the other end where there is none; else null.
  async step(line, by) {
    const known = this.#known(line, by);
    if (known !== undefined) return known;
    return await this.#toward(line, by) ?? this.#toward(by > 0 ? 0 : Number.MAX_SAFE_INTEGER, by);
  }

  // The place of a hit among all, from 1; null while that is not known.
  place(line) {
    let before = 0;
    for (const part of this.parts) {
      if (line > part.to) { before += part.count; continue; }
      const at = part.lines.length === part.count ? part.lines.indexOf(line) : -1;
      return at < 0 ? null : before + at + 1;
    }
    return null;
  }

  stop() { this.stopped = true; this.abort.abort(); }

  // Where every hit was named there is nothing to ask; undefined where there is.
  #known(line, by) {
    if (!this.complete || this.parts.some((part) => part.lines.length !== part.count)) return undefined;
    const lines = this.parts.flatMap((part) => part.lines);
    if (!lines.length) return null;
    return by > 0 ? lines.find((one) => one > line) ?? lines[0] : lines.findLast((one) => one < line) ?? lines.at(-1);
  }

  async #toward(line, by) {
    for (let at = line; ;) {
      const json = await this.#ask(by > 0 ? { after: at, n: 1, stop: 1 } : { before: Math.min(at, 10 ** 15), n: 1 });
      const lines = this.#lines(json);
      if (lines.length) return by > 0 ? lines[0] : lines.at(-1);
      if (json.complete || json.scanned_to === at || (by < 0 && json.scanned_to <= 1)) return null;
      at = json.scanned_to;
    }
  }

  #ask(range) { return this.remote.ask("find", { ...this.query, ...range }, this.abort.signal); }

  #lines({ hits }) {
    for (const { n, spans } of hits) if (this.marks.size < 50_000) this.marks.set(n, spans ?? null);
    return hits.map((hit) => hit.n);
  }
}

// The same of the lines that are loaded, for when the console is not reached.
export class LoadedHits {
  constructor(test) { Object.assign(this, { test, lines: [], complete: true, local: true, marks: new Map() }); }

  get count() { return this.lines.length; }

  update(rows) { this.lines = rows.filter(this.test).map((row) => row.n); }

  async step(line, by) {
    if (!this.lines.length) return null;
    return by > 0 ? this.lines.find((one) => one > line) ?? this.lines[0] : this.lines.findLast((one) => one < line) ?? this.lines.at(-1);
  }

  place(line) { const at = this.lines.indexOf(line); return at < 0 ? null : at + 1; }

  stop() {}
}
