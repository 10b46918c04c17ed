// The form of a new batch: whom and what it would hit stands beside it and follows what is typed.
import { fetchPart } from "./part.js";

const form = document.getElementById("batch-form");
const aside = document.getElementById("consequence");
let timer = 0, asked = 0;

// Everything that is chosen but the token and what was seen.
function query() {
  const chosen = new URLSearchParams(new FormData(form));
  chosen.delete("csrfmiddlewaretoken");
  chosen.delete("seen");
  return chosen;
}

async function show() {
  const turn = (asked += 1);
  const fresh = await fetchPart(`${location.pathname}?${query()}`);
  if (fresh && turn === asked) aside.replaceChildren(...fresh.body.childNodes);
}

form.addEventListener("input", (event) => {
  if (event.target.name === "kind") return;
  clearTimeout(timer);
  timer = setTimeout(show, 250);
});

// Another kind has other fields: the page is asked for again with what was chosen.
form.querySelector("[name=kind]").addEventListener("change", () => { location.search = query(); });
document.getElementById("batch-show").hidden = true;  // what it shows is there already
