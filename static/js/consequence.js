// What a form would do stands beside it and follows what is chosen.
import { fetchPart } from "./part.js";

const PAUSE_MS = 250;

// `query()` gives what is chosen as URLSearchParams; `other(query)` opens the page for another kind, where there is one.
export function follow(form, query, other) {
  const aside = document.getElementById("consequence");
  let timer = 0, asked = 0;

  async function show() {
    const turn = (asked += 1);
    const fresh = await fetchPart(`${location.pathname}?${query()}`);
    if (fresh && turn === asked) aside.replaceChildren(...fresh.body.childNodes);
  }

  form.addEventListener("input", (event) => {
    if (event.target.name === "kind") return;
    clearTimeout(timer);
    timer = setTimeout(show, PAUSE_MS);
  });
  form.elements.kind?.addEventListener("change", () => other(query()));
  if ([...form.elements].some(isTouched)) show();  // typed before this script was there, or kept by the browser
}

// Does a field hold something else than the page was made with?
function isTouched(field) {
  if (field.type === "checkbox" || field.type === "radio") return field.checked !== field.defaultChecked;
  if (field.options) {  // where none is marked, the browser takes the first
    return field.selectedIndex !== Math.max(0, [...field.options].findIndex((option) => option.defaultSelected));
  }
  return field.type !== "hidden" && field.defaultValue !== undefined && field.value !== field.defaultValue;
}
