// The pages of batches: drawn anew by the server when something has moved, at most once a second.
import { subscribe } from "../live.js";
import { fetchPart, together } from "../part.js";

const live = document.getElementById("batch-live");

const redraw = together(async () => {
  const fresh = await fetchPart();
  if (fresh) place(fresh);
}, { after: 1000 });

// The focus and the place of a table that scrolls sideways survive the exchange.
function place(fresh) {
  const focus = live.contains(document.activeElement) ? document.activeElement : null;
  const id = focus?.id, href = focus?.getAttribute("href"), left = live.querySelector(".table-scroll")?.scrollLeft ?? 0;
  live.replaceChildren(...fresh.body.childNodes);
  const again = id ? document.getElementById(id) : href && live.querySelector(`a[href="${CSS.escape(href)}"]`);
  again?.focus({ preventScroll: true });
  const scroll = live.querySelector(".table-scroll");
  if (scroll) scroll.scrollLeft = left;
}

const polled = (json) => place(new DOMParser().parseFromString(json.html, "text/html"));
const poll = { url: () => location.pathname + location.search, every_ms: 5000, apply: polled };
subscribe(live.dataset.topic, { message: redraw, poll });
if (live.dataset.topic === "batches") subscribe("jobs", { message: redraw });  // their counts follow the jobs
