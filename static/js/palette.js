// Ctrl+K: part of a name, a bus id, a number or a ticket; the server answers, arrows move, Enter goes.
import { t, element, shape } from "./texts.js";

const dialog = document.getElementById("palette");
const field = dialog.querySelector("input");
const list = dialog.querySelector("ul");
const note = dialog.querySelector("p");
let asked = 0;

const options = () => [...list.children];

function select(option) {
  for (const other of options()) other.setAttribute("aria-selected", String(other === option));
  if (option) field.setAttribute("aria-activedescendant", option.id);
  else field.removeAttribute("aria-activedescendant");
  option?.scrollIntoView({ block: "nearest" });
}

function row({ title, note: aside, icon, url }, i) {
  const option = element("li", "", undefined);
  option.id = `palette-${i}`;
  option.setAttribute("role", "option");
  option.dataset.href = url;
  option.append(shape(icon, "icon"), element("span", "", title), element("small", "", aside ?? ""));
  return option;
}

async function ask() {
  const mine = asked += 1;
  let results = [];
  let says = "";
  try {
    const answer = await fetch(`${dialog.dataset.url}?q=${encodeURIComponent(field.value.trim())}`, { headers: { Accept: "application/json" } });
    results = (await answer.json()).results;
    says = results.length ? "" : t("Nothing matches.");
  } catch {
    says = t("Search did not answer. Try again.");
  }
  if (mine !== asked) return; // a later key has its own answer
  list.replaceChildren(...results.map(row));
  note.textContent = says;
  select(list.firstElementChild);
}

function open() {
  field.value = "";
  ask();
  dialog.showModal();
}

const go = (option) => { if (option) location.href = option.dataset.href; };

let wait = 0;
field.addEventListener("input", () => { clearTimeout(wait); wait = setTimeout(ask, 120); });
field.addEventListener("keydown", (event) => {
  const all = options(), at = all.findIndex((option) => option.getAttribute("aria-selected") === "true");
  if (event.key === "ArrowDown") { event.preventDefault(); select(all[(at + 1) % all.length]); }
  if (event.key === "ArrowUp") { event.preventDefault(); select(all[(at - 1 + all.length) % all.length]); }
  if (event.key === "Enter") go(all[at]);
});
dialog.addEventListener("click", (event) => {
  if (event.target === dialog) dialog.close();
  go(event.target.closest("[role=option]"));
});
addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") { event.preventDefault(); open(); }
});
document.querySelectorAll("[data-open=palette]").forEach((button) => button.addEventListener("click", open));
