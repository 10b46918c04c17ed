// The pages of campaigns: drawn anew by the server when something has moved, at most once a second. What is being typed
// into a note stays.
import { subscribe } from "../live.js";
import { exchange, fetchPart, polledPart, together } from "../part.js";

const live = document.getElementById("campaign-live");

function draw(fresh) {
  const note = document.getElementById("note"), typed = note?.value;
  const caret = document.activeElement === note ? note?.selectionStart : null;
  exchange(live, fresh);
  const again = document.getElementById("note");
  if (again && typed) again.value = typed;
  if (again && caret !== null && caret !== undefined) again.setSelectionRange(caret, caret);
}

const redraw = together(async () => {
  const fresh = await fetchPart();
  if (fresh) draw(fresh);
}, { after: 1000 });

const poll = { url: () => location.pathname + location.search, every_ms: 5000, apply: (json) => draw(polledPart(json)) };
subscribe(live.dataset.topic, { message: redraw, poll });
for (const other of live.dataset.also.split(" ").filter(Boolean)) subscribe(other, { message: redraw });
