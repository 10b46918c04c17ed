// The frame: the live chip, menus that close, copy buttons, the dialog of keys.
import { t, span } from "./texts.js";

const chip = document.getElementById("live-chip");
const keys = document.getElementById("keys");
let live = null;

const LOOKS = { live: ["ok", "state-ok"], polling: ["info", "state-running"], stalled: ["warning", "state-warning"] };
const WHY = {
  live: "Values arrive as they are measured.",
  polling: "Websockets do not get through, so this page asks again every few seconds.",
  stalled: "Nothing has arrived. What you see is the last that was known.",
};

// live.js tells {state, since, reason}; `since` in epoch milliseconds, `reason` already in the reader's language.
function showLive() {
  if (!live) return;
  const [look, icon] = LOOKS[live.state] ?? LOOKS.stalled;
  const since = live.since ? (Date.now() - live.since) / 1000 : null;
  const word = live.state === "stalled" && since > 1 ? t("stalled %(span)s", { span: span(since) }) : t(live.state);
  chip.hidden = false;
  chip.className = `chip ${look}`;
  chip.title = live.reason || t(WHY[live.state] ?? "");
  chip.querySelector("use").setAttribute("href", `${document.body.dataset.icons}#${icon}`);
  if (chip.lastElementChild.textContent !== word) chip.lastElementChild.textContent = word;
}

document.addEventListener("live-state", (event) => { live = event.detail; showLive(); });
setInterval(() => { if (live?.state === "stalled") showLive(); }, 1000);

// Without a secure context (plain http by address) there is no clipboard API.
export async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

document.addEventListener("click", async (event) => {
  for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
  const button = event.target.closest("[data-act=copy]");
  if (button) {
    await copy(button.dataset.copy ?? button.parentElement.querySelector("pre, code").textContent);
    const before = button.getAttribute("aria-label");
    button.setAttribute("aria-label", t("Copied"));
    button.classList.add("done");
    setTimeout(() => { button.setAttribute("aria-label", before); button.classList.remove("done"); }, 1500);
  }
  if (event.target.closest("[data-open=keys]")) keys.showModal();
  if (event.target.closest("[data-close]") || event.target === keys) event.target.closest("dialog").close();
});

export const typing = (target) => target.closest?.("input, select, textarea, [contenteditable]");

addEventListener("keydown", (event) => {
  if (event.key === "Escape") document.querySelectorAll("details.menu[open]").forEach((menu) => { menu.open = false; menu.querySelector("summary").focus(); });
  if (event.key === "?" && keys && !typing(event.target) && !event.ctrlKey && !event.metaKey) keys.showModal();
});
