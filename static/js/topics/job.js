// The page of one job: its log line by line, and everything above the log, which the server draws anew.
import { subscribe } from "../live.js";
import { fetchPart, together } from "../part.js";
import { Viewer } from "../log/viewer.js";
import { took } from "../times.js";
import { listenToKeys } from "../log/keys.js";

const { job, attempt, lines, started, newest, ...config } = JSON.parse(document.getElementById("log-config").textContent);
const viewer = new Viewer(document.getElementById("log"), { ...config, url: lines, attempt, start: started, newest });
const live = document.getElementById("job-live");

// State, steps and report come as one fragment, at most twice a second, and after the lines that caused it.
const redraw = together(async () => {
  const fresh = await fetchPart();
  if (!fresh || live.querySelector("dialog[open]")) return;
  for (const part of live.querySelectorAll("[data-part]")) {
    const next = fresh.querySelector(`[data-part="${part.dataset.part}"]`);
    if (next && next.innerHTML !== part.innerHTML) swap(part, next);
  }
}, { before: 300, after: 200 });

// Focus, open details and a note that is being written survive the exchange.
function swap(part, next) {
  const typed = [...part.querySelectorAll("input.input[id]")].map((one) => [one.id, one.value]);
  const focus = part.contains(document.activeElement) ? document.activeElement.id : "";
  const open = [...part.querySelectorAll("details[open]")].map((one) => one.id);
  part.replaceChildren(...next.childNodes);
  for (const [id, value] of typed) { const one = document.getElementById(id); if (one && value) one.value = value; }
  open.forEach((id) => { const one = id && document.getElementById(id); if (one) one.open = true; });
  if (focus) document.getElementById(focus)?.focus();
}

const EVENT = /^\d+\tv\t/m;
let current = attempt;

subscribe(`job:${job}`, {
  after: () => ({ after: viewer.store.high, ...(current && { attempt: current }) }),
  message(type, data, seq) {
    if (type === "log") linesCame(data);
    else if (type === "head") { if (!data?.attempt || data.attempt === current) viewer.head(seq); }
    else if (type === "behind") viewer.head(data.total);
    else if (type === "state") stateChanged(data.state);
  },
  poll: { url: () => `${lines}?after=${viewer.store.high}&n=1000${current ? `&attempt=${current}` : ""}`, every_ms: 2000, apply: polled },
});

// Lines of another attempt belong to another log; where none was there yet, this is the one.
function linesCame(data) {
  current ??= viewer.store.attempt = data.attempt;
  if (data.attempt !== current) { redraw(); return; }
  viewer.live(data);
  if (EVENT.test(data.text)) redraw();
}

function stateChanged(name) {
  viewer.ended = newest && ["succeeded", "failed", "cancelled"].includes(name);
  viewer.tell();
  redraw();
}

let polledState = "";
function polled(json) {
  if (json.n) linesCame({ attempt: json.attempt, first: json.first, n: json.n, text: json.text });
  viewer.store.done = json.done;
  if (json.state !== polledState) stateChanged(polledState = json.state);
}

listenToKeys(viewer);

// Anything on the page that names a line of this log goes there: steps, report items.
live.addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='#L']");
  if (link && link.getAttribute("href") === location.hash) { event.preventDefault(); viewer.toLine(Number(location.hash.slice(2))); }
  const opener = event.target.closest("[data-dialog]");
  if (opener) { event.preventDefault(); document.getElementById(opener.dataset.dialog).showModal(); }
});

// A step or job under way counts on between two messages.
setInterval(() => {
  for (const node of live.querySelectorAll("[data-since]")) node.textContent = took((Date.now() - Number(node.dataset.since)) / 1000);
}, 1000);

viewer.open();
