// The page of a support bundle: drawn anew by the server as parts arrive, at most once a second. What was opened stays.
import { subscribe } from "../live.js";
import { exchange, fetchPart, polledPart, together } from "../part.js";

const live = document.getElementById("support-live");
const parts = () => [...live.querySelectorAll("details.support-part")];

function draw(fresh) {
  const open = parts().map((one) => one.open);
  exchange(live, fresh);
  parts().forEach((one, n) => { one.open = open[n] ?? false; });
}

const redraw = together(async () => {
  const fresh = await fetchPart();
  if (fresh) draw(fresh);
}, { after: 1000 });

const poll = { url: () => location.pathname + location.search, every_ms: 5000, apply: (json) => draw(polledPart(json)) };
subscribe(live.dataset.topic, { message: redraw, poll });
subscribe("jobs", { message: redraw });  // a job that ends without sending leaves gaps
