// The rows that the server rendered: put in order, hidden, and patched in place. Squares and table view alike.
import { t, span, figure, element } from "../texts.js";
import { summary, tally, isFaulty, isStale } from "./model.js";
import { matches, arrange, note } from "./query.js";

const LATE_S = 5;

export class Rows {
  // looks: { state: [symbol, class, word] }
  constructor(table, looks) {
    this.table = table;
    this.looks = looks;
    this.rows = new Map([...table.querySelectorAll("tr[data-id]")].map((row) => [Number(row.dataset.id), row]));
    this.columns = table.tHead.rows[0].cells.length;
  }

  // Puts the rows in the groups and order asked for; hides what does not match. Returns how many are shown.
  arrange(fleet, asked) {
    const before = [...this.table.tBodies];
    let shown = 0;
    for (const group of arrange(fleet.servers, asked)) {
      const body = element("tbody"), head = this.#head(group);
      body.append(head);
      let any = false;
      for (const server of group.servers) {
        const row = this.rows.get(server.id), fits = matches(server, asked);
        row.hidden = !fits;
        any ||= fits;
        shown += Number(fits);
        body.append(row);
      }
      body.hidden = !any;
      group.body = body;
      this.table.append(body);
    }
    before.forEach((body) => body.remove());
    return shown;
  }

  #head({ title, note: says }) {
    const line = element("tr", "group"), head = element("th");
    head.scope = "rowgroup";
    head.colSpan = this.columns;
    head.append(element("span", "", title), element("small", "", says));
    line.append(head);
    return line;
  }

  // Group heads count free NPUs, which change.
  headings(fleet) {
    for (const body of this.table.tBodies) {
      const servers = [...body.querySelectorAll("tr[data-id]")].map((row) => fleet.byId.get(Number(row.dataset.id))).filter(Boolean);
      const small = body.querySelector(".group small");
      if (small) put(small, note(servers));
    }
  }

  // State, holder and counts of one server, after it was read again or its state changed.
  patch(server, fleet) {
    const row = this.rows.get(server.id);
    if (!row) return;
    const [symbol, css, word] = this.#look(server);
    row.className = `server ${server.state}`;
    const name = row.querySelector(".name");
    if (name) {
      name.className = `name ${css}`;
      name.querySelector("use").setAttribute("href", `${document.body.dataset.icons}#${symbol}`);
      put(row.querySelector("[data-field=word]"), `, ${word}`);
    } else {
      const state = row.querySelector("[data-field=state]");
      state.className = `state ${css}`;
      state.querySelector("use").setAttribute("href", `${document.body.dataset.icons}#${symbol}`);
      put(row.querySelector("[data-field=word]"), word);
      const unknown = !server.npus.length && (server.state === "never" || server.error), counts = unknown ? {} : tally([server]);
      for (const field of ["free", "ours", "foreign", "faulty"]) put(row.querySelector(`[data-field=${field}]`), figure(counts[field]));
    }
    const holder = row.querySelector("[data-field=holder]");
    put(holder, server.holder);
    holder.title = server.holder;  // where the column cuts it
    this.figures(server, summary(server));
    this.age(server, fleet);
  }

  // A faulty NPU or a failed reading of a server that is heard goes before its state.
  #look(server) {
    const heard = !isStale(server);
    return this.looks[heard && isFaulty(server) ? "faulty" : heard && server.error ? "unreadable" : server.state];
  }

  figures(server, [aicore, hbm, hottest, power]) {
    const row = this.rows.get(server.id);
    for (const [field, value] of Object.entries({ aicore, hbm, hottest, power_w: power })) put(row?.querySelector(`[data-field=${field}]`), figure(value));
  }

  age(server, fleet) {
    const row = this.rows.get(server.id), age = fleet.age(server), stale = isStale(server);
    if (!row) return;
    const words = stale && age !== null ? t("%(state)s for %(span)s", { state: this.looks[server.state][2], span: span(age) }) : stale ? this.looks[server.state][2] : span(age);
    put(row.querySelector("[data-field=age]"), words);
    row.classList.toggle("late", stale || age === null || age > LATE_S);
  }
}

// Only what differs is written: assistive technology and selections stay in peace.
function put(node, text) {
  if (node && node.textContent !== text) node.textContent = text;
}
