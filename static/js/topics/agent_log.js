// The log of a server's agent in the viewer of job logs: a piece of it is what an attempt is there.
import { subscribe } from "../live.js";
import { Viewer } from "../log/viewer.js";
import { typing } from "../frame.js";

const { topic, piece, newest, ended, lines, started } = JSON.parse(document.getElementById("log-config").textContent);
const viewer = new Viewer(document.getElementById("log"), { url: lines, attempt: piece, start: started, newest, ended });
let current = piece;

subscribe(topic, {
  after: () => ({ after: viewer.store.high, ...(current && { attempt: current }) }),
  message(type, data, seq) {
    if (type === "log") linesCame(data);
    else if (type === "head") { if (!data?.attempt || data.attempt === current) viewer.head(seq); else another(); }
    else if (type === "behind") { if (data.attempt === current) viewer.head(data.total); }
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

function polled(json) {
  if (json.n) linesCame({ attempt: json.attempt, first: json.first, n: json.n, text: json.text });
  viewer.store.done = json.done;
  viewer.tell();
}

addEventListener("keydown", (event) => {
  if (typing(event.target) || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const act = viewer.tools.keys()[event.key];
  if (act) { event.preventDefault(); act(); }
});

viewer.open();
