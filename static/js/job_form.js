// The form of a new job: what it would do stands beside it and follows what is typed.
import { fetchPart } from "./part.js";

const form = document.getElementById("job-form");
const aside = document.getElementById("consequence");
let timer = 0, asked = 0;

async function show() {
  const query = new URLSearchParams(new FormData(form));
  query.delete("csrfmiddlewaretoken");
  const turn = (asked += 1);
  const fresh = await fetchPart(`${location.pathname}?${query}`);
  if (!fresh || turn !== asked) return;
  aside.replaceChildren(...fresh.body.childNodes);
}

form.addEventListener("input", (event) => {
  if (event.target.name === "kind") return;
  clearTimeout(timer);
  timer = setTimeout(show, 250);
});

// Another kind has other fields: the page is asked for again with what was chosen.
form.querySelector("[name=kind]").addEventListener("change", (event) => {
  const server = form.querySelector("[name=server]").value;
  location.search = new URLSearchParams({ kind: event.target.value, server });
});
