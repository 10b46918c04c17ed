// The page of a look at a download: it is drawn anew when the look has ended.
import { subscribe } from "../live.js";
import { exchange, fetchPart, polledPart, together } from "../part.js";

const live = document.getElementById("look-live");
let stop = () => {};

function place(fresh) {
  if (!fresh) return;
  exchange(live, fresh);
  if (!live.querySelector("[data-job]")) stop();
}

const redraw = together(async () => place(await fetchPart()), { after: 300 });
const job = live.querySelector("[data-job]")?.dataset.job;
const poll = { url: () => location.pathname, every_ms: 3000, apply: (json) => place(polledPart(json)) };
if (job) stop = subscribe(`job:${job}`, { message: (type) => { if (type === "state") redraw(); }, poll });
