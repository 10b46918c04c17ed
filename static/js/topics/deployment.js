// The page of one deployment. Each message holds the whole deployment: its load goes into the plots at once, and the
// parts that differ are drawn anew by the server, at most once a second. What was opened stays open.
import { subscribe } from "../live.js";
import { fetchPart, polledPart, together } from "../part.js";
import { took } from "../times.js";
import { LoadPlots } from "../load_plots.js";

const live = document.getElementById("deployment-live");
const plots = new LoadPlots(live.querySelector("[data-plots]"));

function draw(fresh) {
  for (const part of live.querySelectorAll("[data-part]")) {
    const next = fresh.querySelector(`[data-part="${part.dataset.part}"]`);
    if (next) swap(part, next);
  }
  live.querySelectorAll("[data-until]").forEach(tick);
}

// Focus and open details survive the exchange; they are compared as the server would have sent them.
function swap(part, next) {
  const open = new Set([...part.querySelectorAll("details[open][id]")].map((one) => one.id));
  const closed = new Set([...part.querySelectorAll("details[id]:not([open])")].map((one) => one.id));
  next.querySelectorAll("details[id]").forEach((one) => { one.open = open.has(one.id) || (one.open && !closed.has(one.id)); });
  if (next.innerHTML === part.innerHTML) return;
  const held = part.contains(document.activeElement) ? document.activeElement : null;
  const at = held ? [...part.querySelectorAll("a, button, summary, [tabindex]")].indexOf(held) : -1;
  part.replaceChildren(...next.childNodes);
  if (at >= 0) part.querySelectorAll("a, button, summary, [tabindex]")[at]?.focus({ preventScroll: true });
}

const redraw = together(async () => {
  const fresh = await fetchPart();
  if (fresh) draw(fresh);
}, { after: 1000 });

subscribe(live.dataset.topic, {
  message(type, data) {
    if (data?.metrics) plots.add(data.metrics, Date.now());
    redraw();
  },
  poll: { url: () => location.pathname + location.search, every_ms: 5000, apply: (json) => draw(polledPart(json)) },
});

// What still drains counts down between two messages.
function tick(node) { node.textContent = took(Math.max(0, Math.round((Number(node.dataset.until) - Date.now()) / 1000))); }
setInterval(() => live.querySelectorAll("[data-until]").forEach(tick), 1000);
