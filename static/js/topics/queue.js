// The page of queues: drawn anew by the server when a job moves, and every few seconds for the ages.
import { subscribe } from "../live.js";
import { exchange, fetchPart, polledPart, together } from "../part.js";

const live = document.getElementById("queue-live");

const redraw = together(async () => {
  const fresh = await fetchPart();
  if (fresh) exchange(live, fresh);
}, { after: 2000 });

const polled = (json) => exchange(live, polledPart(json));
const poll = { url: () => location.pathname + location.search, every_ms: 5000, apply: polled };
subscribe("jobs", { message: redraw, poll });
setInterval(() => { if (!document.hidden) redraw(); }, 5000);
