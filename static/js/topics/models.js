// The pages of models: drawn anew by the server when a job has told of one, at most once a second. What was opened and
// how far the graph was moved stays.
import { exchange, redrawn } from "../part.js";

const live = document.getElementById("models-live");

function draw(fresh) {
  const open = [...live.querySelectorAll("details")].map((one) => one.open);
  const graph = live.querySelector(".lineage");
  const left = graph?.scrollLeft ?? 0, top = graph?.scrollTop ?? 0;
  exchange(live, fresh);
  live.querySelectorAll("details").forEach((one, n) => { one.open = open[n] ?? one.open; });
  live.querySelector(".lineage")?.scrollTo({ left, top, behavior: "instant" });
}

// The model of the page stands where it is seen, in a graph that is wider than its place.
function center() {
  const graph = live.querySelector(".lineage"), here = graph?.querySelector(".here");
  if (!here) return;
  const a = graph.getBoundingClientRect(), b = here.getBoundingClientRect();
  const left = b.left - a.left - (a.width - b.width) / 2, top = b.top - a.top - (a.height - b.height) / 2;
  graph.scrollTo({ left, top, behavior: "instant" });
}

redrawn(live, draw);
center();
