// What the server knows of a whole log, however little of it is loaded: hits of a search, errors, levels, processes.

export class Away extends Error {}     // the console was not reached, or cannot do this for such a log
export class Refused extends Error {}  // it was, and says in two sentences why not

export class Remote {
  // `urls`: { find, firstError, filtered, facets }, each may be missing; `attempt()` names the log.
  constructor(urls, attempt) { Object.assign(this, { urls, attempt }); }

  has(name) { return Boolean(this.urls[name]); }

  async ask(name, params = {}, signal = undefined) {
    if (!this.has(name)) throw new Away(name);
    const attempt = this.attempt(), query = new URLSearchParams({ ...(attempt && { attempt }), ...filled(params) });
    let answer, json;
    try {
      answer = await fetch(`${this.urls[name]}?${query}`, { headers: { Accept: "application/json" }, signal });
      json = await answer.json();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Away(name);
    }
    if (answer.ok && !answer.redirected) return json;
    if (answer.status >= 400 && answer.status < 500 && answer.status !== 404 && json?.error) throw new Refused([json.error.what, json.error.do].filter(Boolean).join(" "));
    throw new Away(name);
  }

  // The first line with an error after `line`, null where none follows. Each answer is one second of work at most.
  async errorAfter(line) {
    for (let after = line; ;) {
      const { line: found, scanned_to: to, total } = await this.ask("firstError", { after });
      if (found) return found;
      if (to <= after || (total && to >= total)) return null;
      after = to;
    }
  }
}

// Empty values say nothing and would only lengthen the address.
const filled = (params) => Object.fromEntries(Object.entries(params).filter(([, value]) => value !== "" && value !== null && value !== undefined && value !== false)
  .map(([name, value]) => [name, value === true ? "1" : value]));
