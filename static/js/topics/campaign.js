// The pages of campaigns: drawn anew by the server when something has moved, at most once a second. What is being typed
// into a note stays, and so does what was opened and how far the board was moved.
import { subscribe } from "../live.js";
import { exchange, redrawn } from "../part.js";

const live = document.getElementById("campaign-live");
const followed = new Set();

function draw(fresh) {
  const note = document.getElementById("note"), typed = note?.value;
  const caret = document.activeElement === note ? note?.selectionStart : null;
  const open = new Map([...live.querySelectorAll("details")].map((one, n) => [n, one.open]));
  const left = live.querySelector(".board")?.scrollLeft ?? 0;
  exchange(live, fresh);
  live.querySelectorAll("details").forEach((one, n) => { one.open = open.get(n) ?? one.open; });
  live.querySelector(".board")?.scrollTo({ left, behavior: "instant" });
  const again = document.getElementById("note");
  if (again && typed) again.value = typed;
  if (again && caret !== null && caret !== undefined) again.setSelectionRange(caret, caret);
  follow();
}

const redraw = redrawn(live, draw);

// A campaign that was approved while the page was open has a batch since, whose jobs tell how far they are.
function follow() {
  for (const node of document.querySelectorAll("[data-also]")) {
    const topic = node.dataset.also;
    if (!followed.has(topic)) subscribe(topic, { message: redraw });
    followed.add(topic);
  }
}

follow();
