// The fleet page, kept true by the topics fleet, fleet:<metric> and fleet:rows.
import { subscribe } from "../live.js";
import { View } from "../fleet/view.js";
import { wire } from "../fleet/input.js";
import { watchVisible } from "../fleet/visible.js";
import { isStale } from "../fleet/model.js";

const TOLD_AT_MOST = 60;  // servers whose rows ingest tells every second
const MOST_IDS = 200;
const started = performance.now();

let view, stopSteps = null, stopWatching = null;

// Colour steps of the metric that is shown. The hub sends all of them first, then what changes.
function follow() {
  stopSteps?.();
  if (!view.maps.length) return;
  stopSteps = subscribe(`fleet:${view.asked.metric}`, {
    message: (_type, { gen, z }) => {
      if (gen !== view.fleet.gen) return layoutChanged(gen);
      for (const [server, n] of view.fleet.applySteps(z)) view.mapOf(server)?.drawOne(server, n);
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

// Calls of `later` within `ms` become one.
function once(ms, later) {
  let timer = 0;
  return () => { timer ||= setTimeout(() => later().finally(() => { timer = 0; }), ms); };
}

async function readNow(ids) {
  const answer = await ask(`/fleet.json?ids=${ids.join(",")}`);
  view.fleet.merge(answer?.servers ?? []).forEach((server) => view.redraw(server));
}

// Servers whose state or holder changed are read again together.
const wanted = new Set();
const readWanted = once(600, async () => {
  while (wanted.size) {
    const ids = [...wanted].slice(0, MOST_IDS);
    ids.forEach((id) => wanted.delete(id));
    await readNow(ids);
  }
});

// Another set of servers or NPUs: the page's own HTML is fetched and takes the place of what is shown.
const readPage = once(1000, async () => {
  const answer = await fetch(location.href).catch(() => null);
  if (!answer?.ok) return;  // the next message of the topic asks again
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const block = page.getElementById("fleet-data");
  if (!block || Boolean(page.querySelector("#wall")) !== Boolean(view.wall)) return location.reload();
  for (const id of ["fleet-table", "fleet-strips"]) {
    const old = document.getElementById(id), fresh = page.getElementById(id);
    if (old && fresh) old.replaceChildren(...fresh.childNodes);
  }
  view.start(JSON.parse(block.textContent));
  follow();  // steps told while the page was on its way belong to a layout that was not shown yet: ask for all again
  watch();
});

function layoutChanged(gen) {
  if (gen !== null && gen !== view.fleet.gen) readPage();
}

function onFleet(type, data) {
  if (type === "layout") layoutChanged(data.gen);
  if (type !== "server") return;
  const server = view.fleet.applyState(data);
  if (server) {
    view.redraw(server);
    view.strips.update(view.fleet, view.asked);
    view.rows?.headings(view.fleet);
  }
  wanted.add(data.id);
  readWanted();
}

function onRows(_type, data) {
  for (const [id, value] of Object.entries(data)) {
    const server = view.fleet.byId.get(Number(id));
    if (!server) continue;
    view.rows.figures(server, value);
    if (!isStale(server)) view.fleet.touch(server);  // the last row of a server that fell silent is told too
  }
}

function polled(block) {
  if (block.gen === view.fleet.gen) view.renew(block);
  else readPage();
}

// A long table reads again what is on the screen.
function watch() {
  stopWatching?.();
  const long = view.rows && view.fleet.servers.length > TOLD_AT_MOST;
  stopWatching = long ? watchVisible(view.rows.table, readNow) : null;
}

const jobsChanged = once(500, async () => {
  const jobs = await ask("/fleet/jobs.json");
  if (jobs) view.strips.jobs(jobs);
});

const root = document.getElementById("fleet");
if (root) {
  view = new View(root, follow);
  wire(view);
  requestAnimationFrame(() => setTimeout(() => { document.body.dataset.cellsShownMs = (performance.now() - started).toFixed(0); }));
  subscribe("fleet", { message: onFleet, poll: { url: "/fleet.json", every_ms: view.wall ? 10_000 : 3000, apply: polled } });
  subscribe("jobs", { message: jobsChanged });
  if (view.rows) subscribe("fleet:rows", { message: onRows });
  follow();
  watch();
  setInterval(() => { if (view.rows) view.fleet.servers.forEach((server) => view.rows.age(server, view.fleet)); }, 1000);
}
