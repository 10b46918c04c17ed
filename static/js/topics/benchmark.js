// Benchmarks of a deployment: drawn anew as each degree is measured; the plot of what was measured.
import { subscribe } from "../live.js";
import { drawn } from "../bench_plot.js";
import { exchange, fetchPart, polledPart, together } from "../part.js";

const live = document.getElementById("benchmark-live");
let stop = () => {}, followed = "";

function place(fresh) {
  if (!fresh) return;
  exchange(live, fresh);
  follow();
  drawn(live);
}

const redraw = together(async () => place(await fetchPart()), { after: 700 });

// The job of the run that is under way; a run that has ended is left alone.
function follow() {
  const job = live.querySelector("[data-job]")?.dataset.job ?? "";
  if (job === followed) return;
  stop();
  stop = () => {};
  followed = job;
  const poll = { url: () => location.pathname + location.search, every_ms: 3000, apply: (json) => place(polledPart(json)) };
  if (job) stop = subscribe(`job:${job}`, { message: (type) => { if (type === "state") redraw(); }, poll });
}

document.getElementById("take-guide")?.addEventListener("click", (event) => {
  const form = document.getElementById("benchmark-form").elements, { concurrency, tpot } = event.target.dataset;
  form["p-target_concurrency"].value = concurrency;
  form["p-target_tpot_ms"].value = tpot;
  const wanted = form["p-degrees"].value.split(/[\s,，、;]+/).filter(Boolean);
  if (!wanted.includes(concurrency)) form["p-degrees"].value = [...wanted, concurrency].join(", ");
});

follow();
drawn(live);
