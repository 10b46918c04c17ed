// The list of deployments: drawn anew by the server when one has moved, at most once in two seconds. Its numbers move
// without a message, so it is also asked every ten seconds while somebody looks.
import { subscribe } from "../live.js";
import { exchange, fetchPart, polledPart, together } from "../part.js";

const EVERY_MS = 10_000;
const live = document.getElementById("deployments-live");

const redraw = together(async () => {
  const fresh = await fetchPart();
  if (fresh) exchange(live, fresh);
}, { after: 2000 });

const poll = { url: () => location.pathname + location.search, every_ms: 5000, apply: (json) => exchange(live, polledPart(json)) };
let state = "";
subscribe(live.dataset.topic, { message: redraw, poll, state: (name) => { state = name; } });
setInterval(() => { if (state === "live" && !document.hidden) redraw(); }, EVERY_MS);
