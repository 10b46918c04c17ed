// Ticked rows of the table of servers: how many, a range by Shift, and none that the filter hides.
import { t } from "../texts.js";

export function wireChosen() {
  const form = document.getElementById("chosen-form"), table = document.getElementById("fleet-table");
  if (!form || !table) return;
  const button = form.querySelector("[data-chosen]");
  let last = null;

  const boxes = () => [...table.querySelectorAll("input[name=server]")].filter((box) => !box.closest("[hidden]"));

  function count() {
    const n = boxes().filter((box) => box.checked).length;
    form.hidden = n === 0;
    button.textContent = t("Edit %(n)s servers", { n });
  }

  table.addEventListener("click", (event) => {
    const box = event.target.closest("input[name=server]");
    if (!box) return;
    const all = boxes(), from = all.indexOf(last), to = all.indexOf(box);
    if (event.shiftKey && from >= 0) all.slice(Math.min(from, to), Math.max(from, to) + 1).forEach((one) => { one.checked = box.checked; });
    last = box;
    count();
  });
  // A row that the filter hides stays ticked on the page, but is not sent.
  form.addEventListener("submit", () => {
    const shown = new Set(boxes());
    table.querySelectorAll("input[name=server]").forEach((box) => { box.disabled = !shown.has(box); });
    setTimeout(() => table.querySelectorAll("input[name=server]").forEach((box) => { box.disabled = false; }));
  });
  addEventListener("pageshow", count);
  count();
}
