// Pointer, keys and form of the fleet page.
import { typing } from "../frame.js";
import { METRICS } from "./model.js";
import { wireChosen } from "./chosen.js";

export function wire(view) {
  wireChosen();
  document.querySelector("[data-open=saved-filters]")?.addEventListener("click", (event) => {
    event.preventDefault();
    const box = document.getElementById("saved-filters");
    box.open = !box.open;
    if (box.open) box.querySelector("a, input:not([type=hidden])")?.focus();
  });
  const { root, form, wall } = view;
  root.addEventListener("point", (event) => show(view, event));
  root.addEventListener("leave", (event) => leave(view, event));
  root.addEventListener("open", (event) => { location.href = `/servers/${encodeURIComponent(event.detail.name)}/`; });
  form.addEventListener("input", ({ target }) => { if (target.name in view.asked) view.choose({ [target.name]: target.value }); });
  form.addEventListener("submit", (event) => event.preventDefault());
  addEventListener("keydown", (event) => keys(view, event));
  addEventListener("themechange", () => view.maps.forEach((map) => map.draw()));
  addEventListener("scroll", () => view.card.hide(), { passive: true });
  document.addEventListener("pointerdown", (event) => { if (!event.target.closest("canvas, .hover-card")) view.card.hide(); });
  if (wall) new ResizeObserver(() => view.maps[0]?.lay()).observe(wall.parentElement);
}

function show(view, event) {
  const map = view.maps.find((one) => one.canvas === event.target);
  if (!event.detail || !map) return view.card.hide();
  // A finger leaves the card standing, so that its link can be reached.
  view.card.show(event.detail, map.box(event.detail), !map.cursor && matchMedia("(hover: none)").matches);
}

// The keyboard cursor goes from row to row, in the order of the page.
function leave(view, event) {
  const { dx, dy, x } = event.detail;
  const after = (a, b) => (a.canvas.compareDocumentPosition(b.canvas) & Node.DOCUMENT_POSITION_FOLLOWING ? -1 : 1);
  const order = view.maps.filter((map) => map.canvas.offsetParent).sort(after);
  const next = order[order.findIndex((map) => map.canvas === event.target) + (dy || dx)];
  if (!next) return;
  view.maps.forEach((map) => { map.canvas.tabIndex = map === next ? 0 : -1; });
  next.canvas.focus();
  next.enter({ x: dy ? x : dx > 0 ? 0 : Infinity });
}

function keys(view, event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.key === "Escape" && event.target.id === "find") view.choose({ find: "" });
  if (typing(event.target)) return;
  if (event.key === "/") { event.preventDefault(); document.getElementById("find").focus(); }
  if (event.key === "t") view.form.querySelector("[data-view]")?.click();
  const metric = Object.keys(METRICS)[Number(event.key) - 1];
  if (metric && view.asked.view === "squares") view.choose({ metric });
}
