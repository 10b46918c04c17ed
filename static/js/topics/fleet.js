// The fleet page: squares or table of the JSON block, kept true by the topics fleet, fleet:<metric> and fleet:rows.
import { subscribe } from "../live.js";
import { t } from "../texts.js";
import { typing } from "../frame.js";
import { Heatmap } from "../heatmap.js";
import { Fleet, METRICS } from "../fleet/model.js";
import { readForm, queryOf, matches, arrange } from "../fleet/query.js";
import { Rows } from "../fleet/rows.js";
import { Strips } from "../fleet/strips.js";
import { Card } from "../fleet/card.js";
import { isStale } from "../fleet/square.js";

const started = performance.now();
const read = (id) => JSON.parse(document.getElementById(id).textContent);
const root = document.getElementById("fleet");
const form = document.getElementById("fleet-form");
const wall = document.querySelector("#wall canvas");
const looks = root && read("fleet-states");

let asked = form && readForm(form);
let fleet, rows, strips, card, maps = [], stopSteps = null, dead = 0;

function start(block) {
  fleet = new Fleet(block, asked.metric);
  const table = document.getElementById("fleet-table");
  rows = table && new Rows(table, looks);
  card?.hide();
  card = new Card(document.getElementById("hover-card"), document.getElementById("readout"), fleet);
  if (!wall) maps = [];  // the wall's canvas stays, and so does its map
  rows?.rows.forEach((row, id) => {
    const canvas = row.querySelector("canvas"), server = fleet.byId.get(id);
    if (!canvas || !server) return;
    canvas.setAttribute("role", "application");
    canvas.setAttribute("aria-label", t("NPUs of %(name)s: arrow keys read each, Enter opens the server", { name: server.name }));
    canvas.tabIndex = maps.length ? -1 : 0;
    maps.push(new Heatmap(canvas, [{ servers: [server] }], { metric: asked.metric }));
  });
  draw();
}

// Everything that depends on what is asked: order, filter, counts, addresses.
function draw() {
  let shown = 0;
  if (rows) shown = rows.arrange(fleet, asked);
  if (wall) shown = drawWall();
  strips.update(fleet, asked);
  document.getElementById("no-match").hidden = shown > 0;
  for (const box of root.querySelectorAll(".card:not(#no-match)")) box.hidden = shown === 0;
  links();
  scale();
}

function drawWall() {
  const fitting = fleet.servers.filter((server) => matches(server, asked));
  const sections = arrange(fitting, asked).map((group) => ({ ...group, title: group.sim ? `${group.title} · ${t("simulated")}` : group.title }));
  if (!fitting.length) return 0;
  wall.closest(".card").hidden = false;
  if (maps[0]) { maps[0].sections = sections; maps[0].metric = asked.metric; maps[0].lay(); }
  else maps = [new Heatmap(wall, sections, { metric: asked.metric, names: true, cell: 10, without })];
  return fitting.length;
}

const without = (server) => (server.state === "live" ? t(server.error ? "unreadable" : "no NPU") : looks[server.state][2]);

function links() {
  const csv = form.querySelector("[data-csv]"), view = form.querySelector("[data-view]");
  csv.href = csv.pathname + queryOf(asked, { view: "squares" });
  if (view) view.href = `/${queryOf(asked, { view: view.dataset.view })}`;
}

function scale() {
  const [low, high] = fleet.limits[asked.metric], unit = METRICS[asked.metric][1];
  for (const [name, value] of [["low", low], ["high", high]]) {
    const node = document.querySelector(`[data-scale=${name}]`);
    if (node) node.textContent = `${value} ${unit}`;
  }
}

function choose(changes) {
  const metric = asked.metric;
  asked = { ...asked, ...changes };
  history.replaceState(null, "", location.pathname + queryOf(location.pathname === "/" ? asked : { ...asked, view: "squares" }));
  for (const [name, value] of Object.entries(changes)) if (form.elements[name]) form.elements[name].value = value;
  if (asked.metric !== metric) {
    fleet.setMetric(asked.metric);
    maps.forEach((map) => { map.metric = asked.metric; map.draw(); });
    follow();
  }
  draw();
}

const mapOf = (server) => (wall ? maps[0] : maps.find((map) => map.places.has(server)));

function redraw(server) {
  mapOf(server)?.drawServer(server);
  rows?.patch(server, fleet);
}

// Colour steps of the metric that is shown. The hub sends all of them first, then what changes.
function follow() {
  stopSteps?.();
  if (rows && !maps.length) return;
  const metric = asked.metric;
  stopSteps = subscribe(`fleet:${metric}`, {
    message: (type, data) => {
      if (data.gen !== fleet.gen) return layoutChanged(data.gen);
      for (const [server, n] of fleet.applySteps(data.z)) mapOf(server)?.drawOne(server, n);
    },
  });
}

async function ask(url) {
  try {
    const answer = await fetch(url, { headers: { Accept: "application/json" } });
    return answer.ok ? await answer.json() : null;
  } catch {
    return null;  // the live chip tells that the console is away
  }
}

// Servers whose state or holder changed are read again together.
const wanted = new Set();
let asking = 0;
function readAgain(id) {
  wanted.add(id);
  asking ||= setTimeout(async () => {
    const ids = [...wanted].slice(0, 200);
    ids.forEach((one) => wanted.delete(one));
    asking = 0;
    const answer = await ask(`/fleet.json?ids=${ids.join(",")}`);
    fleet.merge(answer?.servers ?? []).forEach(redraw);
    if (wanted.size) readAgain([...wanted][0]);
  }, 600);
}

// Another set of servers or NPUs: the page's own HTML is fetched and takes the place of what is shown.
let renewing = 0;
function layoutChanged(gen) {
  if (gen === null || gen === fleet.gen) return;
  renewing ||= setTimeout(async () => {
    try {
      const page = new DOMParser().parseFromString(await (await fetch(location.href)).text(), "text/html");
      const block = page.getElementById("fleet-data");
      if (!block || Boolean(page.querySelector("#wall")) !== Boolean(wall)) return location.reload();
      for (const id of ["fleet-table", "fleet-strips"]) {
        const old = document.getElementById(id), fresh = page.getElementById(id);
        if (old && fresh) old.replaceChildren(...fresh.childNodes);
      }
      start(JSON.parse(block.textContent));
    } finally {
      renewing = 0;
    }
  }, 1000);
}

function onFleet(type, data) {
  if (type === "layout") layoutChanged(data.gen);
  if (type !== "server") return;
  const server = fleet.applyState(data);
  if (!server) return readAgain(data.id);
  redraw(server);
  strips.update(fleet, asked);
  rows?.headings(fleet);
  readAgain(data.id);
}

function onRows(_type, data) {
  for (const [id, value] of Object.entries(data)) {
    const server = fleet.byId.get(Number(id));
    if (!server) continue;
    rows.figures(server, value);
    if (!isStale(server)) fleet.touch(server);  // the last row of a server that fell silent is told too
  }
}

function polled(block) {
  if (block.gen !== fleet.gen) return layoutChanged(block.gen);
  fleet.load({ ...block, limits: fleet.limits });
  const table = document.getElementById("fleet-table");
  if (table) rows = new Rows(table, looks);
  for (const map of maps) map.sections = map.sections.map((section) => ({ ...section, servers: section.servers.map((server) => fleet.byId.get(server.id)) }));
  maps.forEach((map) => map.lay());
  if (rows) fleet.servers.forEach((server) => rows.patch(server, fleet));
  strips.update(fleet, asked);
}

let jobsTimer = 0;
function jobsChanged() {
  jobsTimer ||= setTimeout(async () => { jobsTimer = 0; const jobs = await ask("/fleet/jobs.json"); if (jobs) strips.jobs(jobs); }, 500);
}

function show(event) {
  const map = maps.find((one) => one.canvas === event.target);
  if (!event.detail) card.hide();
  else card.show(event.detail, map.box(event.detail), map.cursor === null && matchMedia("(hover: none)").matches);
}

// The cursor goes from row to row.
function leave(event) {
  const visible = maps.filter((map) => map.canvas.offsetParent), at = visible.findIndex((map) => map.canvas === event.target);
  const order = visible.sort((a, b) => a.canvas.compareDocumentPosition(b.canvas) & Node.DOCUMENT_POSITION_FOLLOWING ? -1 : 1);
  const here = order.findIndex((map) => map.canvas === event.target), next = order[here + (event.detail.dy || event.detail.dx)];
  if (at < 0 || !next) return;
  maps.forEach((map) => { map.canvas.tabIndex = map === next ? 0 : -1; });
  next.canvas.focus({ preventScroll: false });
  next.enter({ x: event.detail.dy ? event.detail.x : event.detail.dx > 0 ? 0 : Infinity });
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.key === "Escape" && event.target.id === "find") return choose({ find: "" });
  if (typing(event.target)) return;
  if (event.key === "/") { event.preventDefault(); document.getElementById("find").focus(); }
  if (event.key === "t") form.querySelector("[data-view]")?.click();
  const metric = Object.keys(METRICS)[Number(event.key) - 1];
  if (metric && asked.view === "squares") choose({ metric });
}

function wire() {
  strips = new Strips(document.getElementById("fleet-strips"), choose);
  root.addEventListener("point", show);
  root.addEventListener("leave", leave);
  root.addEventListener("open", (event) => { location.href = `/servers/${encodeURIComponent(event.detail.name)}/`; });
  form.addEventListener("input", (event) => { if (event.target.name in asked) choose({ [event.target.name]: event.target.value }); });
  form.addEventListener("submit", (event) => event.preventDefault());
  addEventListener("keydown", keys);
  addEventListener("themechange", () => maps.forEach((map) => map.draw()));
  addEventListener("scroll", () => card.hide(), { passive: true });
  document.addEventListener("pointerdown", (event) => { if (!event.target.closest("canvas, .hover-card")) card.hide(); });
  if (wall) new ResizeObserver(() => maps[0]?.lay()).observe(wall.parentElement);
  document.addEventListener("live-state", (event) => { dead = event.detail.state === "stalled" ? event.detail.since : 0; });
}

function listen() {
  subscribe("fleet", { message: onFleet, poll: { url: "/fleet.json", every_ms: wall ? 10_000 : 3000, apply: polled } });
  subscribe("jobs", { message: jobsChanged });
  if (rows) subscribe("fleet:rows", { message: onRows });
  follow();
  setInterval(() => { if (rows) fleet.servers.forEach((server) => rows.age(server, fleet)); }, 1000);
}

if (root) {
  wire();
  start(read("fleet-data"));
  requestAnimationFrame(() => setTimeout(() => { document.body.dataset.cellsShownMs = (performance.now() - started).toFixed(0); }));
  listen();
}
