// The form of an evaluation: what it would do stands beside it; other copies are taken as soon as they are chosen.
import { follow } from "./consequence.js";

const form = document.getElementById("evaluate-form");
const copies = document.getElementById("copies");

function query() {
  const chosen = new URLSearchParams(new FormData(form));
  chosen.delete("csrfmiddlewaretoken");
  return chosen;
}

if (form) follow(form, query, () => {});
copies?.addEventListener("change", (event) => {
  if (event.target.name === "place") copies.elements.parent.value = "";  // another server has others
  copies.requestSubmit();
});
