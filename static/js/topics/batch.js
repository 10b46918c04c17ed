// The pages of batches: drawn anew by the server when something has moved, at most once a second.
import { subscribe } from "../live.js";
import { exchange, fetchPart, polledPart, together } from "../part.js";

const live = document.getElementById("batch-live");

const redraw = together(async () => {
  const fresh = await fetchPart();
  if (fresh) exchange(live, fresh);
}, { after: 1000 });

const polled = (json) => exchange(live, polledPart(json));
const poll = { url: () => location.pathname + location.search, every_ms: 5000, apply: polled };
subscribe(live.dataset.topic, { message: redraw, poll });
if (live.dataset.topic === "batches") subscribe("jobs", { message: redraw });  // their counts follow the jobs
