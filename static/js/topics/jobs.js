// The list of jobs: rows are drawn anew by the server when one of them changes, at most once a second.
import { subscribe } from "../live.js";

const list = document.getElementById("job-rows");
let wanted = false, drawing = false;

async function redraw() {
  wanted = true;
  if (drawing) return;
  drawing = true;
  while (wanted) {
    wanted = false;
    await replace().catch(() => {});
    await new Promise((done) => setTimeout(done, 1000));
  }
  drawing = false;
}

async function replace() {
  const answer = await fetch(location.pathname + location.search, { headers: { "X-Part": "1" } });
  if (!answer.ok || answer.redirected) return;
  place(await answer.text());
}

function place(html) {
  const fresh = new DOMParser().parseFromString(html, "text/html");
  const focus = list.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  list.replaceChildren(...fresh.body.childNodes);
  if (focus) list.querySelector(`a[href="${CSS.escape(focus)}"]`)?.focus();
}

subscribe("jobs", { message: redraw, poll: { url: `${location.pathname}${location.search}`, every_ms: 5000, apply: (json) => place(json.html) } });

// Filters act at once; without scripts the button does it.
const form = document.getElementById("job-filters");
form.querySelectorAll("select").forEach((select) => select.addEventListener("change", () => form.requestSubmit()));
