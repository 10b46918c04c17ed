// One websocket a page. Topic modules call subscribe(); nothing here knows what a message means.
//
//   const stop = subscribe("job:42", {
//     after: () => 1800,                 // or { after, attempt }: what the server needs to resume
//     message: (type, data, seq) => …,   // in the order sent
//     error: ({ code, what, do }) => …,  // the topic was refused, in words
//     state: (state) => …,               // live | polling | stalled, also as a `live-state` event on document
//     poll: { url, every_ms, apply },    // used while websockets are blocked; url may be a function
//   });
//
// A socket that was never answered three times in a row is taken as blocked: every subscription with a poll is polled,
// and the socket is tried again every 30 s. A socket that worked and broke is tried again at once, then with pauses.
import { Poller } from "./polling.js";
import { t } from "./texts.js";

// A socket that says nothing is asked after QUIET_MS; without an answer for LATE_MS it counts as stalled, and after
// SILENCE_MS it is given up.
const QUIET_MS = 5_000, LATE_MS = 5_000, SILENCE_MS = 50_000, RETRY_MS = 30_000, BLOCKED_AFTER = 3;

// Keys of texts.js; console/context.py brings them in the reader's language.
const WHY = {
  lost: "The connection to the console broke. Trying again.",
  blocked: "Websockets do not get through, probably a proxy on the way. The page asks every few seconds instead.",
  late: "The console has stopped answering. Values stand still until it goes on.",
  unreachable: "The console does not answer. Values stand still until it does.",
  transport: "The console cannot reach its Redis. Values stand still until it can.",
  signed_out: "You are signed out. Sign in again to go on.",
};

const entries = new Set();
const poller = new Poller(entries, polled);
let socket = null, timer = 0, failures = 0, heard = 0, pinged = 0, now = { state: "", since: 0, reason: "" };

export function subscribe(topic, handlers) {
  const entry = { topic, ...handlers };
  entries.add(entry);
  if (socket?.readyState === WebSocket.OPEN) ask(entry);
  else if (!socket && !timer) connect();
  if (now.state) entry.state?.(now.state);
  poller.add(entry);
  return () => {
    entries.delete(entry);
    poller.remove(entry);
    if (![...entries].some((other) => other.topic === topic)) send({ op: "unsubscribe", topic });
  };
}

// The state that was told last: { state, since (ms), reason }.
export const liveState = () => now;

function connect() {
  clearTimeout(timer);
  timer = 0;
  // Some proxies accept the handshake and pass nothing on: only an answer says that the way is open.
  let answered = false;
  const mine = socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws/`);
  mine.onopen = () => { heard = Date.now(); pinged = 0; entries.forEach(ask); };
  mine.onmessage = (event) => {
    if (mine !== socket) return;
    if (!answered) works();
    answered = true;
    hear(event.data);
  };
  mine.onclose = (event) => { if (mine === socket) closed(event, answered); };
}

function works() {
  failures = 0;
  poller.stop();
  tell("live", "");
}

function ask(entry) {
  const from = entry.after?.() ?? {};
  send({ op: "subscribe", topic: entry.topic, ...(typeof from === "number" ? { after: from } : from) });
}

function send(message) {
  if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message));
}

function hear(text) {
  heard = Date.now();
  pinged = 0;
  if (now.reason === t(WHY.late)) tell("live", "");
  let message;
  try { message = JSON.parse(text); } catch { return; }
  const { topic, type, data, seq } = message;
  // The hub tells of its own Redis: values stand still although the socket is open.
  if (type === "stalled") return tell("stalled", t(WHY.transport));
  if (type === "live") return resume();
  for (const entry of [...entries].filter((one) => one.topic === topic)) {
    if (type === "error") entry.error?.(data);
    else if (type !== "subscribed") entry.message?.(type, data, seq);
  }
}

function resume() {
  tell("live", "");
  entries.forEach(ask);
}

function closed(event, answered) {
  socket = null;
  if (event.code === 4401) return tell("stalled", t(WHY.signed_out));  // trying again would not help
  failures = answered ? 0 : failures + 1;
  if (failures < BLOCKED_AFTER) tell("stalled", t(WHY.lost));
  else if (!poller.running) fallBack();
  if (!timer) timer = setTimeout(connect, pause(answered));
}

function fallBack() {
  poller.start();
  tell([...entries].some((entry) => entry.poll) ? "polling" : "stalled", t(WHY.blocked));
}

function polled(problem) {
  const wasAway = now.reason === t(WHY.unreachable);
  tell(problem ? "stalled" : "polling", t(WHY[problem || "blocked"]));
  if (wasAway && !problem && !socket) connect();  // no proxy was in the way: the console is back
}

// Jittered, so that a restarted console is not asked by every page in the same moment.
function pause(answered) {
  if (failures >= BLOCKED_AFTER) return RETRY_MS;
  return (answered ? 300 : 500 * 2 ** failures) * (0.5 + Math.random());
}

function tell(state, reason, since = Date.now()) {
  if (state === now.state && reason === now.reason) return;
  now = { state, since: state === now.state ? now.since : since, reason };
  for (const entry of entries) entry.state?.(state);
  document.dispatchEvent(new CustomEvent("live-state", { detail: now }));
}

// A silent socket may be dead without a close, or the console may stand still: ask, say so, and give up in the end.
setInterval(() => {
  if (socket?.readyState !== WebSocket.OPEN) return;
  const at = Date.now();
  if (at - heard > SILENCE_MS) socket.close();
  else if (!pinged && at - heard > QUIET_MS) { pinged = at; send({ op: "ping" }); }
  else if (pinged && at - pinged > LATE_MS && now.state === "live") tell("stalled", t(WHY.late), heard);
}, 1000);

function soon() {
  if (!entries.size || socket) return;
  connect();
}

addEventListener("online", soon);
addEventListener("pageshow", (event) => { if (event.persisted) soon(); });
addEventListener("pagehide", () => { const old = socket; socket = null; old?.close(); clearTimeout(timer); timer = 0; });
document.addEventListener("visibilitychange", () => { if (!document.hidden) soon(); });
