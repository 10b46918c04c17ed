// The page of queues: drawn anew by the server when a job moves, and every few seconds for the ages.
import { subscribe } from "../live.js";
import { fetchPart, together } from "../part.js";

const live = document.getElementById("queue-live");

function place(fresh) {
  const focus = live.contains(document.activeElement) ? document.activeElement : null;
  const href = focus?.getAttribute("href"), left = live.querySelector(".table-scroll")?.scrollLeft ?? 0;
  live.replaceChildren(...fresh.body.childNodes);
  if (href) live.querySelector(`a[href="${CSS.escape(href)}"]`)?.focus({ preventScroll: true });
  const scroll = live.querySelector(".table-scroll");
  if (scroll) scroll.scrollLeft = left;
}

const redraw = together(async () => {
  const fresh = await fetchPart();
  if (fresh) place(fresh);
}, { after: 2000 });

const polled = (json) => place(new DOMParser().parseFromString(json.html, "text/html"));
const poll = { url: () => location.pathname + location.search, every_ms: 5000, apply: polled };
subscribe("jobs", { message: redraw, poll });
setInterval(() => { if (!document.hidden) redraw(); }, 5000);
