// The page of one joining command: its steps are drawn anew as soon as one is reached or something is wrong.
import { subscribe } from "../live.js";
import { fetchPart, polledPart, together } from "../part.js";

const steps = document.getElementById("join-steps");
const commands = document.getElementById("commands");
let shown = "";

const redraw = together(async () => place(await fetchPart()), { after: 200 });

// Only what changed is put in, or a screen reader would read the same again.
function place(fresh) {
  if (!fresh || fresh.body.innerHTML.trim() === shown) return;
  shown = fresh.body.innerHTML.trim();
  steps.replaceChildren(...fresh.body.childNodes);
  if (steps.querySelector("[data-over]")) stop();
}

const polled = (json) => place(polledPart(json));
const poll = { url: () => location.pathname, every_ms: 2000, apply: polled };
const unsubscribe = subscribe(steps.dataset.topic, { message: redraw, poll });
const slowly = setInterval(redraw, 30_000);  // a command expires without a message

function stop() {
  unsubscribe();
  clearInterval(slowly);
}

commands.addEventListener("click", (event) => {
  if (!event.target.closest("[data-act=copy]")) return;
  const token = commands.querySelector("[name=csrfmiddlewaretoken]").value;
  fetch(commands.dataset.copied, { method: "POST", headers: { "X-CSRFToken": token } }).catch(() => {});
});
