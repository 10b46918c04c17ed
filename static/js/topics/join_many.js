// The pages of a list of hosts: drawn anew by the server when something has moved, at most once a second.
import { subscribe } from "../live.js";
import { exchange, fetchPart, polledPart, together } from "../part.js";

const live = document.getElementById("join-many-live");

// The address of the page itself: a refused form has another.
const redraw = together(async () => {
  const fresh = await fetchPart(live.dataset.url);
  if (fresh) place(fresh);
}, { after: 1000 });

// What is being typed and ticked stays: while the console waits for that, nothing else moves.
function place(fresh) {
  if (live.querySelector("#confirm") && fresh.getElementById("confirm")) return;
  exchange(live, fresh);
  offerAll();
}

// The box that ticks all keys works by script only, so it is shown by script only.
function offerAll() {
  const all = document.getElementById("all-keys");
  if (all) all.hidden = false;
}

live.addEventListener("change", (event) => {
  const boxes = [...live.querySelectorAll("#confirm [name=row]")];
  const all = live.querySelector("#all-keys input");
  if (event.target === all) for (const box of boxes) box.checked = all.checked;
  else if (all && event.target.name === "row") all.checked = boxes.every((box) => box.checked);
});

const polled = (json) => place(polledPart(json));
const poll = { url: live.dataset.url, every_ms: 2000, apply: polled };
subscribe(live.dataset.topic, { message: redraw, poll });
// A process that was killed says nothing more; the console notices when it is asked.
setInterval(() => { if (live.querySelector("[data-under-way]")) redraw(); }, 10_000);
offerAll();
