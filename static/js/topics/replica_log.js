// The log of a replica's engine in the viewer of job logs: a piece of it is what an attempt is there.
import { subscribe } from "../live.js";
import { Viewer } from "../log/viewer.js";
import { ENGINE } from "../log/row.js";
import { listenToKeys } from "../log/keys.js";
import { t } from "../texts.js";

const { replica, piece, lines, started, newest, ...config } = JSON.parse(document.getElementById("log-config").textContent);
const viewer = new Viewer(document.getElementById("log"), { ...config, url: lines, attempt: piece, start: started, newest });
let current = piece;

subscribe(`replica:${replica}`, {
  after: () => ({ after: viewer.store.high, ...(current && { attempt: current }) }),
  message(type, data, seq) {
    if (type === "log") linesCame(data);
    else if (type === "head") { if (!data?.attempt || data.attempt === current) viewer.head(seq); else another(); }
    else if (type === "behind") { if (data.attempt === current) viewer.head(data.total); }
    else if (type === "state") stateChanged(data);
  },
  poll: { url: () => `${lines}?after=${viewer.store.high}&n=1000${current ? `&attempt=${current}` : ""}`, every_ms: 2000, apply: polled },
});

// Lines of another start stand in another piece; where none was there yet, this is the one.
function linesCame(data) {
  current ??= viewer.store.attempt = data.attempt;
  if (data.attempt !== current) return another();
  viewer.live(data);
}

function another() { if (newest) document.getElementById("newer").hidden = false; }

const LOOKS = {
  starting: ["info", "state-running"], loading: ["info", "state-running"], ready: ["ok", "state-ok"], degraded: ["warning", "state-warning"],
  draining: ["stale", "state-stale"], stopped: ["", "state-cancelled"], failed: ["critical", "state-failed"],
};

function stateChanged({ state }) {
  const chip = document.querySelector("#replica-state > .chip"), look = LOOKS[state];
  if (!look || !chip) return;
  chip.className = `chip ${look[0]}`;
  chip.querySelector("use").setAttribute("href", `${document.body.dataset.icons}#${look[1]}`);
  chip.querySelector("span").textContent = t(ENGINE[state]);
}

function polled(json) {
  if (json.n) linesCame({ attempt: json.attempt, first: json.first, n: json.n, text: json.text });
  viewer.store.done = json.done;
  viewer.tell();
}

listenToKeys(viewer);

viewer.open();
