// Asks over HTTP what a blocked websocket cannot bring. Used by live.js only.

export class Poller {
  // `told` is called with "" when an answer came and with a reason's name when none did.
  constructor(entries, told) {
    this.entries = entries;
    this.told = told;
    this.running = false;
    this.timers = new Map();
  }

  start() {
    if (this.running) return;
    this.running = true;
    this.entries.forEach((entry) => this.add(entry));
  }

  stop() {
    this.running = false;
    for (const timer of this.timers.values()) clearTimeout(timer);
    this.timers.clear();
  }

  add(entry) {
    if (this.running && entry.poll && !this.timers.has(entry)) this.#later(entry, 0);
  }

  remove(entry) {
    clearTimeout(this.timers.get(entry));
    this.timers.delete(entry);
  }

  #later(entry, wait) {
    this.timers.set(entry, setTimeout(async () => {
      const problem = await ask(entry.poll);
      if (!this.running || !this.entries.has(entry)) return;
      this.told(problem);
      if (problem !== "signed_out") this.#later(entry, entry.poll.every_ms);
    }, wait));
  }
}

// "" or the name of what went wrong: unreachable, signed_out.
async function ask({ url, apply }) {
  let json;
  try {
    const answer = await fetch(typeof url === "function" ? url() : url, { headers: { Accept: "application/json" } });
    if (answer.redirected || answer.status === 401) return "signed_out";
    if (!answer.ok) return "unreachable";
    json = await answer.json();
  } catch {
    return "unreachable";
  }
  apply(json);
  return "";
}
