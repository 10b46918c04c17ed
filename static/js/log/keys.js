// The keys of the viewer; templates/deployments/_log_keys.html lists them in the dialog of `?`.
import { typing } from "../frame.js";

export function listenToKeys(viewer) {
  addEventListener("keydown", (event) => {
    if (typing(event.target) || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const act = viewer.tools.keys()[event.key];
    if (act) { event.preventDefault(); act(); }
  });
}
