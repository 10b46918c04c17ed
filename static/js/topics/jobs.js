// The list of jobs: rows are drawn anew by the server when one of them changes, at most once a second.
import { subscribe } from "../live.js";
import { exchange, fetchPart, polledPart, together } from "../part.js";

const list = document.getElementById("job-rows");

const redraw = together(async () => {
  const fresh = await fetchPart();
  if (fresh) exchange(list, fresh);
}, { after: 1000 });

const polled = (json) => exchange(list, polledPart(json));

subscribe("jobs", { message: redraw, poll: { url: `${location.pathname}${location.search}`, every_ms: 5000, apply: polled } });

// Filters act at once; without scripts the button does it.
const form = document.getElementById("job-filters");
form.querySelectorAll("select").forEach((select) => select.addEventListener("change", () => form.requestSubmit()));
