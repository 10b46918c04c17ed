// The server page, kept true by the topic server:<id>: a reading a second.
import { subscribe } from "../live.js";
import { t, ago, span, figure, element } from "../texts.js";
import { Tile, holder, put } from "../server/tiles.js";

const read = (id) => JSON.parse(document.getElementById(id).textContent);
const { now: first, at: servedAt, sparks } = read("server-data");
const looks = read("server-states");
const body = document.getElementById("server-body");
const contact = document.getElementById("last-contact");
const chip = document.getElementById("server-state");
const LATE_S = 5, SILENT_S = 15, OFFLINE_S = 60;

let tiles = new Map(), now = first, heard = first.seen === null ? null : performance.now() / 1000 - (servedAt - first.seen);

const keyOf = (npu) => `${npu.npu}.${npu.chip}`;
const shape = (reading) => `${reading.npus.map(keyOf).join(" ")}|${reading.error ? reading.error.meaning ?? "?" : ""}`;

function bind(points) {
  tiles = new Map([...body.querySelectorAll(".npu-tile")].map((node) => [node.dataset.key, new Tile(node, points[node.dataset.key] ?? [])]));
}

function take(reading) {
  if (reading.seq !== null && reading.seq === now.seq && reading.seen === now.seen) return;
  const changed = shape(reading) !== shape(now);
  now = reading;
  heard = performance.now() / 1000;
  if (changed) return renew();
  const at = Date.now() / 1000;
  reading.npus.forEach((npu) => tiles.get(keyOf(npu))?.show(npu, on(npu), now.holders, at));
  processes();
  host(reading.host ?? {});
  age();
}

const on = (npu) => now.processes.filter((process) => process.npu === npu.npu && process.chip === npu.chip);

function processes() {
  const table = document.querySelector("#processes tbody");
  if (!table) return;
  const place = new Map(now.npus.map((npu, index) => [keyOf(npu), index]));
  const rows = now.processes.map((process) => ({ ...process, at: place.get(keyOf(process)) })).sort((a, b) => (a.at ?? 999) - (b.at ?? 999) || (a.pid ?? 0) - (b.pid ?? 0));
  put(document.getElementById("process-count"), String(rows.length));
  const signature = JSON.stringify(rows.map(({ pid, at, memory_mb: mb, attempt, user }) => [pid, at, mb, attempt, user]));
  if (table.dataset.signature === signature) return;  // a selection in the table stays
  table.dataset.signature = signature;
  if (rows.length) return table.replaceChildren(...rows.map(processRow));
  const none = element("td", "quiet", t("no process")), line = element("tr");
  none.colSpan = 6;
  line.append(none);
  table.replaceChildren(line);
}

function processRow(process) {
  const { pid, user, at, memory_mb: mb, command, name } = process, { job, text } = holder(process, now.holders);
  const line = element("tr"), says = command || name || "—", whose = element("td", "fit", job ? undefined : text);
  if (job) { const link = element("a", "", text); link.href = `/jobs/${job}/`; whose.append(link); }
  const what = element("td", "mono clip whole", says);
  what.title = says;
  const labelled = (css, label, text) => { const cell = element("td", css, text); cell.dataset.label = label; return cell; };
  const userWord = document.querySelector("#processes [data-word]").dataset.word;
  line.append(
    labelled("number mono", "PID", String(pid ?? "—")), labelled("", userWord, user || "—"),
    labelled("number", "NPU", String(at ?? "—")), labelled("number", "MB", figure(mb)), what, whose,
  );
  return line;
}

const decimal = (value, digits) => (value === null || value === undefined ? "—" : value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }));
const gib = (mb) => decimal(mb === null || mb === undefined ? null : mb / 1024, 1);
const share = (part, whole) => (part === null || part === undefined || !whole ? null : Math.min(100, (100 * part) / whole));

function host(h) {
  const figures = {
    cpu_pct: [decimal(h.cpu_pct, 0), h.cpu_pct ?? null], load1: [decimal(h.load1, 2), share(h.load1, h.cpus)],
    mem: [gib(h.mem_used_mb), share(h.mem_used_mb, h.mem_total_mb)], disk: [decimal(h.disk_used_gb, 0), share(h.disk_used_gb, h.disk_total_gb)],
    rx_kbps: [decimal(h.rx_kbps, 0), null], tx_kbps: [decimal(h.tx_kbps, 0), null],
  };
  for (const [key, [value, pct]] of Object.entries(figures)) {
    const node = body.querySelector(`.host-figure[data-key=${key}]`);
    put(node?.querySelector("[data-field=value]"), value);
    if (pct !== null) node?.querySelector("rect")?.setAttribute("width", pct.toFixed(1));
  }
}

// Other NPUs, or a reading that became (un)readable: the page's own HTML takes the place of what is shown.
let renewing = 0;
function renew() {
  renewing ||= setTimeout(async () => {
    try {
      const page = new DOMParser().parseFromString(await (await fetch(location.href)).text(), "text/html");
      body.replaceChildren(...page.getElementById("server-body").childNodes);
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
