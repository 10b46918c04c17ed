// The list of jobs: rows are drawn anew by the server when one of them changes, at most once a second.
import { subscribe } from "../live.js";
import { fetchPart, together } from "../part.js";

const list = document.getElementById("job-rows");

const redraw = together(async () => {
  const fresh = await fetchPart();
  if (fresh) place(fresh);
}, { after: 1000 });

function place(fresh) {
  const focus = list.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  list.replaceChildren(...fresh.body.childNodes);
  if (focus) list.querySelector(`a[href="${CSS.escape(focus)}"]`)?.focus();
}

const polled = (json) => place(new DOMParser().parseFromString(json.html, "text/html"));

subscribe("jobs", { message: redraw, poll: { url: `${location.pathname}${location.search}`, every_ms: 5000, apply: polled } });

// Filters act at once; without scripts the button does it.
const form = document.getElementById("job-filters");
form.querySelectorAll("select").forEach((select) => select.addEventListener("change", () => form.requestSubmit()));
