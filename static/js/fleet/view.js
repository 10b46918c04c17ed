// What the fleet page shows: squares in rows, one wall, or a table, as the form asks. Knows no topic.
import { t } from "../texts.js";
import { Heatmap } from "../heatmap.js";
import { Fleet, METRICS } from "./model.js";
import { readForm, queryOf, batchQuery, editQuery, matches, arrange } from "./query.js";
import { Rows } from "./rows.js";
import { Strips } from "./strips.js";
import { Card } from "./card.js";

const read = (id) => JSON.parse(document.getElementById(id).textContent);

export class View {
  // `metricChanged` is called after the reader chose another metric.
  constructor(root, metricChanged) {
    this.root = root;
    this.metricChanged = metricChanged;
    this.form = document.getElementById("fleet-form");
    this.wall = document.querySelector("#wall canvas");
    this.looks = read("fleet-states");
    this.asked = readForm(this.form);
    this.strips = new Strips(document.getElementById("fleet-strips"), (changes) => this.choose(changes));
    this.maps = [];
    this.start(read("fleet-data"));
  }

  // Begins anew with a block whose servers are those of the table that stands in the page.
  start(block) {
    this.fleet = new Fleet(block, this.asked.metric);
    const table = document.getElementById("fleet-table");
    this.rows = table && new Rows(table, this.looks);
    this.card?.hide();
    this.card = new Card(document.getElementById("hover-card"), document.getElementById("readout"), this.fleet);
    if (!this.wall) this.maps = [];  // the wall's canvas stays, and so does its map
    this.rows?.rows.forEach((row, id) => this.#mapRow(row.querySelector("canvas"), this.fleet.byId.get(id)));
    this.draw();
  }

  #mapRow(canvas, server) {
    if (!canvas || !server) return;
    canvas.setAttribute("role", "application");
    canvas.setAttribute("aria-label", t("NPUs of %(name)s: arrow keys read each, Enter opens the server", { name: server.name }));
    canvas.tabIndex = this.maps.length ? -1 : 0;
    this.maps.push(new Heatmap(canvas, [{ servers: [server] }], { metric: this.asked.metric }));
  }

  // Newer values of the same servers.
  renew(block) {
    this.fleet.load({ ...block, limits: this.fleet.limits });
    const same = (server) => this.fleet.byId.get(server.id);
    for (const map of this.maps) {
      map.sections = map.sections.map((section) => ({ ...section, servers: section.servers.map(same) }));
      map.lay();
    }
    if (this.rows) this.fleet.servers.forEach((server) => this.rows.patch(server, this.fleet));
    this.strips.update(this.fleet, this.asked);
  }

  // Everything that depends on what is asked: order, filter, counts, addresses.
  draw() {
    const shown = this.wall ? this.#drawWall() : this.rows.arrange(this.fleet, this.asked);
    this.strips.update(this.fleet, this.asked);
    document.getElementById("no-match").hidden = shown > 0;
    for (const box of this.root.querySelectorAll(".card:not(#no-match)")) box.hidden = shown === 0;
    this.#links();
    this.#scale();
  }

  #drawWall() {
    const fitting = this.fleet.servers.filter((server) => matches(server, this.asked)), [map] = this.maps;
    if (!fitting.length) return 0;
    const says = ({ sim, title }) => (sim && this.asked.group !== "none" ? `${title} · ${t("simulated")}` : title);
    const sections = arrange(fitting, this.asked).map((group) => ({ ...group, title: says(group) }));
    this.wall.closest(".card").hidden = false;
    const without = (server) => (server.state === "live" ? t(server.error ? "unreadable" : "no NPU") : this.looks[server.state][2]);
    if (!map) this.maps = [new Heatmap(this.wall, sections, { metric: this.asked.metric, names: true, cell: 10, without })];
    else { Object.assign(map, { sections, metric: this.asked.metric }); map.lay(); }
    return fitting.length;
  }

  #links() {
    const csv = this.form.querySelector("[data-csv]"), other = this.form.querySelector("[data-view]");
    for (const many of this.form.querySelectorAll("[data-batch], [data-campaign]")) {
      many.href = `${many.pathname}?${batchQuery(this.fleet.servers, this.asked)}`;
    }
    const edit = this.form.querySelector("[data-edit]"), here = document.querySelector("[data-here]");
    if (edit) edit.href = `${edit.pathname}?${editQuery(this.fleet.servers, this.asked)}`;
    if (here) here.value = queryOf(this.asked).slice(1);
    csv.href = csv.pathname + queryOf(this.asked, { view: "squares" });
    if (other) other.href = `/${queryOf(this.asked, { view: other.dataset.view })}`;
  }

  #scale() {
    const [low, high] = this.fleet.limits[this.asked.metric], unit = METRICS[this.asked.metric][1];
    for (const [name, value] of Object.entries({ low, high })) {
      const node = document.querySelector(`[data-scale=${name}]`);
      if (node) node.textContent = `${value} ${unit}`;
    }
  }

  choose(changes) {
    const { metric } = this.asked;
    this.asked = { ...this.asked, ...changes };
    // The list of servers is a table by its address already.
    const kept = location.pathname === "/" ? this.asked : { ...this.asked, view: "squares" };
    history.replaceState(null, "", location.pathname + queryOf(kept));
    for (const [name, value] of Object.entries(changes)) if (this.form.elements[name]) this.form.elements[name].value = value;
    if (this.asked.metric !== metric) {
      this.fleet.setMetric(this.asked.metric);
      this.maps.forEach((map) => { map.metric = this.asked.metric; map.draw(); });
      this.metricChanged();
    }
    this.draw();
  }

  mapOf(server) { return this.wall ? this.maps[0] : this.maps.find((map) => map.places.has(server)); }

  redraw(server) {
    this.mapOf(server)?.drawServer(server);
    this.rows?.patch(server, this.fleet);
  }
}
