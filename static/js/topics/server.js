// The server page, kept true by the topic server:<id>: a reading a second.
import { subscribe } from "../live.js";
import { t, ago, span } from "../texts.js";
import { Tile, put } from "../server/tiles.js";
import { showProcesses, showHost } from "../server/panels.js";

const read = (id) => JSON.parse(document.getElementById(id).textContent);
const { now: first, at: servedAt, sparks } = read("server-data");
const looks = read("server-states");
const body = document.getElementById("server-body");
const contact = document.getElementById("last-contact");
const chip = document.getElementById("server-state");
const LATE_S = 5, SILENT_S = 15, OFFLINE_S = 60;

// What this page's own clock said at the console's second 0.
const zero = performance.now() / 1000 - servedAt;
const heardAt = ({ seen }) => seen === null ? null : Math.min(performance.now() / 1000, zero + seen);

let tiles = new Map(), now = first, heard = heardAt(first);

const keyOf = (npu) => `${npu.npu}.${npu.chip}`;
const shape = (reading) => `${reading.npus.map((npu) => keyOf(npu) + (npu.occ === "cordoned" ? "!" : "") + (npu.held ? `${npu.held.kind}${npu.held.id}${npu.held.until}` : "")).join(" ")}|${reading.mark}|${reading.error ? reading.error.meaning ?? "?" : ""}`;

function bind(points) {
  tiles = new Map([...body.querySelectorAll(".npu-tile")].map((node) => [node.dataset.key, new Tile(node, points[node.dataset.key] ?? [])]));
}

function take(reading) {
  if (reading.seq === now.seq && reading.seen === now.seen) return;
  const changed = shape(reading) !== shape(now);
  now = reading;
  heard = heardAt(reading);
  if (changed) return renew();
  const at = Date.now() / 1000;
  reading.npus.forEach((npu) => tiles.get(keyOf(npu))?.show(npu, on(npu), now.holders, at));
  showProcesses(reading);
  showHost(body, reading.host ?? {});
  age();
}

const on = (npu) => now.processes.filter((process) => process.npu === npu.npu && process.chip === npu.chip);

// Other NPUs, or a reading that became (un)readable: the page's own HTML takes the place of what is shown.
let renewing = 0;
function renew() {
  renewing ||= setTimeout(async () => {
    try {
      const page = new DOMParser().parseFromString(await (await fetch(location.href)).text(), "text/html");
      body.replaceChildren(...page.getElementById("server-body").childNodes);
      document.querySelector(".banners").replaceChildren(...page.querySelector(".banners").childNodes);
      const fresh = JSON.parse(page.getElementById("server-data").textContent);
      const points = Object.fromEntries([...tiles].map(([key, tile]) => [key, tile.points]));
      bind({ ...fresh.sparks, ...points });
      now = fresh.now;  // it may be older than the reading that asked for it: the next one then asks again
    } finally {
      renewing = 0;
    }
  }, 300);
}

// The state follows from when the server was last heard, as the console judges it too; while the page itself is cut
// off, the server is not blamed for it.
let cutOff = false;
document.addEventListener("live-state", (event) => { cutOff = event.detail.state === "stalled"; });

function age() {
  const seconds = heard === null ? null : performance.now() / 1000 - heard;
  put(contact, seconds === null ? "—" : ago(seconds));
  const late = seconds === null || seconds > LATE_S;
  body.classList.toggle("late", late);
  if (cutOff) return;
  const state = seconds === null ? "never" : seconds > OFFLINE_S ? "offline" : seconds > SILENT_S ? "silent" : now.state === "maintenance" ? "maintenance" : "live";
  const [symbol, css, word] = looks[state];
  chip.className = `chip ${css}`;
  chip.querySelector("use").setAttribute("href", `${document.body.dataset.icons}#${symbol}`);
  put(chip.querySelector("span"), state === "silent" || state === "offline" ? t("%(state)s for %(span)s", { state: word, span: span(seconds) }) : word);
}

// A job of this server changed its state: its table is read again.
let jobsTimer = 0;
function jobChanged(_type, job) {
  if (job.server !== now.name) return;
  jobsTimer ||= setTimeout(async () => {
    jobsTimer = 0;
    const page = new DOMParser().parseFromString(await (await fetch(location.href)).text(), "text/html");
    document.getElementById("server-jobs").replaceWith(page.getElementById("server-jobs"));
  }, 500);
}

bind(sparks);
for (const tile of tiles.values()) tile.spark(Date.now() / 1000);
age();
setInterval(age, 1000);
subscribe(`server:${first.id}`, {
  message: (type, data) => { if (type === "sample") take(data); },
  poll: { url: `${location.pathname}now.json`, every_ms: 2000, apply: take },
});
subscribe("jobs", { message: jobChanged });
