// The page of a clean-up: it is drawn anew when the look has ended, and says how much is ticked.
import { subscribe } from "../live.js";
import { exchange, fetchPart, polledPart, together } from "../part.js";

const live = document.getElementById("cleanup-live");
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];
let watched = "", stop = () => {};

// Ticks survive, where what they stand for is still listed.
function place(fresh) {
  if (!fresh) return;
  const ticked = new Set([...live.querySelectorAll("[name=target]:checked")].map((box) => box.value));
  exchange(live, fresh);
  for (const box of live.querySelectorAll("[name=target]")) box.checked ||= ticked.has(box.value);
  watch();
  sum();
}

const redraw = together(async () => place(await fetchPart()), { after: 300 });
const poll = { url: () => location.pathname, every_ms: 3000, apply: (json) => place(polledPart(json)) };

function watch() {
  const job = live.querySelector("[data-job]")?.dataset.job ?? "";
  if (job === watched) return;
  stop();
  watched = job;
  stop = job ? subscribe(`job:${job}`, { message: (type) => { if (type === "state") redraw(); }, poll }) : () => {};
}

function sum() {
  const told = document.getElementById("cleanup-sum");
  if (!told) return;
  const boxes = [...live.querySelectorAll("[name=target]:checked")];
  let size = boxes.reduce((all, box) => all + Number(box.dataset.bytes), 0), unit = 0;
  while (size >= 1024 && unit < UNITS.length - 1) { size /= 1024; unit += 1; }
  told.textContent = boxes.length ? `${boxes.length} ${live.dataset.sum} · ${unit ? size.toFixed(1) : size} ${UNITS[unit]}` : "";
}

live.addEventListener("change", sum);
watch();
sum();
