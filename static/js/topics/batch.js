// The pages of batches: drawn anew by the server when something has moved, at most once a second.
import { subscribe } from "../live.js";

const live = document.getElementById("batch-live");
let wanted = false, drawing = false;

async function redraw() {
  wanted = true;
  if (drawing) return;
  drawing = true;
  while (wanted) {
    wanted = false;
    await replace().catch(() => {});
    await new Promise((done) => setTimeout(done, 1000));
  }
  drawing = false;
}

async function replace() {
  const answer = await fetch(location.pathname + location.search, { headers: { "X-Part": "1" } });
  if (answer.ok && !answer.redirected) place(await answer.text());
}

// The focus and the place of a table that scrolls sideways survive the exchange.
function place(html) {
  const fresh = new DOMParser().parseFromString(html, "text/html");
  const focus = live.contains(document.activeElement) ? document.activeElement : null;
  const id = focus?.id, href = focus?.getAttribute("href"), left = live.querySelector(".table-scroll")?.scrollLeft ?? 0;
  live.replaceChildren(...fresh.body.childNodes);
  const again = id ? document.getElementById(id) : href && live.querySelector(`a[href="${CSS.escape(href)}"]`);
  again?.focus({ preventScroll: true });
  const scroll = live.querySelector(".table-scroll");
  if (scroll) scroll.scrollLeft = left;
}

const poll = { url: () => location.pathname + location.search, every_ms: 5000, apply: (json) => place(json.html) };
subscribe(live.dataset.topic, { message: redraw, poll });
if (live.dataset.topic === "batches") subscribe("jobs", { message: redraw });  // their counts follow the jobs
