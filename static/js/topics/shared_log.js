// One log behind a link: the viewer of jobs, which asks for what follows every two seconds. No socket, no session.
import { Viewer } from "../log/viewer.js";
import { typing } from "../frame.js";
import { t } from "../texts.js";

const EVERY_MS = 2000;
const { lines, started, ended } = JSON.parse(document.getElementById("log-config").textContent);
const viewer = new Viewer(document.getElementById("log"), { url: lines, attempt: null, start: started, newest: true, ended });

// True where it makes no sense to ask again: the log is whole, or the link works no longer.
async function ask() {
  const { store } = viewer;
  if (document.hidden) return false;
  const answer = await fetch(`${lines}?after=${store.high}&n=1000`, { headers: { Accept: "application/json" } });
  if ([404, 410].includes(answer.status)) {
    document.querySelector("#shared-note span").textContent = t("This link to a log works no longer.");
    return true;
  }
  if (!answer.ok) return false;
  const json = await answer.json();
  if (json.n) viewer.live(json);
  store.done = json.done;
  viewer.ended = json.done;
  viewer.tell();
  return json.done && store.high >= json.total;
}

async function again() {
  const over = await ask().catch(() => false);
  if (!over) setTimeout(again, EVERY_MS);
}

addEventListener("keydown", (event) => {
  if (typing(event.target) || event.ctrlKey || event.metaKey || event.altKey) return;
  const act = viewer.tools.keys()[event.key];
  if (act) { event.preventDefault(); act(); }
});

viewer.open().then(() => { if (!ended) setTimeout(again, EVERY_MS); });
