// Whether lines come as they are written, in the log's own bar: live, polling, stalled since when, or complete.
import { liveState } from "../live.js";
import { t } from "../texts.js";

const LOOKS = { live: ["ok", "state-ok"], polling: ["info", "state-running"], stalled: ["warning", "state-warning"], complete: ["", "state-succeeded"] };
const two = (n) => String(n).padStart(2, "0");

export function clock(ms) {
  const at = new Date(ms);
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

// "live", "polling", "stalled since 14:03:21", "complete"; "" before anything is known.
export function connectionText({ state, since }, complete) {
  if (complete) return t("complete");
  return state === "stalled" && since ? t("stalled since %(clock)s", { clock: clock(since) }) : state && t(state);
}

export function showConnection(node, complete) {
  const now = liveState(), text = connectionText(now, complete);
  node.hidden = !text;
  if (node.lastElementChild.textContent === text) return;
  const [look, icon] = LOOKS[complete ? "complete" : now.state] ?? LOOKS.stalled;
  node.className = `chip ${look}`;
  node.title = complete ? "" : now.reason;
  node.querySelector("use")?.setAttribute("href", `${document.body.dataset.icons}#${icon}`);
  node.lastElementChild.textContent = text;
}
