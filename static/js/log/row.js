// One row of a log as an element. Text enters as text; long lines are folded until the reader asks for more.
import { element, figure, shape, t } from "../texts.js";
import { stamp, took } from "../times.js";
import { paint, plain } from "./ansi.js";
import { pair } from "./records.js";

const SHOWN = 2000, MORE = 32_000;
export const LOOKS = {
  running: ["info", "state-running"], succeeded: ["ok", "state-succeeded"], failed: ["critical", "state-failed"],
  cancelled: ["", "state-cancelled"], skipped: ["", "state-cancelled"],
  ok: ["ok", "state-ok"], warning: ["warning", "state-warning"], unknown: ["stale", "state-unknown"],
};
const look = (name) => LOOKS[name] ?? ["stale", "state-unknown"];

// `view`: { times, start, folded: Set of steps }.
export function draw(row, view) {
  if (row.type === "step") return heading(row, view);
  const node = element("div", `log-line ${row.type} ${row.level}`);
  const link = element("a", "", String(row.n)), body = element("span", "log-text");
  node.id = `L${row.n}`;
  link.href = `#L${row.n}`;
  link.setAttribute("aria-label", t("Line %(n)s", { n: row.n }));
  node.append(link);
  if (view.times !== "off") node.append(element("time", "", stamp(row.ms, view.times, view.start)));
  node.append(body);
  BODIES[row.type](body, row);
  return node;
}

const BODIES = {
  line: text,
  progress: text,
  gap: (body, row) => { body.textContent = t("%(n)s lines were lost here: the server could not keep them.", { n: figure(Number(row.text) || null) }); },
  note: (body, row) => { body.textContent = noteText(row); },
  item(body, row) {
    const { verdict, found, wanted, remedy } = row.event, [css, icon] = look(verdict);
    const mark = element("span", `log-verdict ${css}`);
    mark.append(shape(icon), element("span", "sr-only", t(String(verdict))));
    body.append(mark, element("b", "", pair(row.event.title)), element("span", "", plain(String(found ?? "—"))));
    if (wanted && wanted !== "—") body.append(element("small", "", t("wanted %(wanted)s", { wanted: plain(String(wanted)) })));
    if (remedy) body.append(element("small", "log-remedy", `→ ${pair(remedy)}`));
  },
};

function text(body, row) {
  const limit = row.shown ?? SHOWN;
  paint(body, row.raw.length > limit ? row.raw.slice(0, limit) : row.raw, row.style);
  const hidden = row.raw.length - limit + (row.cut ?? 0);
  if (row.raw.length > limit) {
    const more = element("button", "log-more", t("%(n)s more characters", { n: figure(hidden) }));
    more.type = "button";
    more.dataset.more = row.n;
    body.append(more);
  } else if (row.cut) body.append(element("small", "log-more", t("%(n)s more characters in the raw log", { n: figure(row.cut) })));
}

export const showMore = (row) => { row.shown = (row.shown ?? SHOWN) + MORE; };

// What one of the console's own events says.
export function noteText({ event, text: raw }) {
  if (!event) return raw;
  if (event.e === "started" && "replica" in event) return t("Engine started, process %(pid)s", { pid: event.pid ?? "—" });
  if (event.e === "engine") return engineText(event);
  if (event.e === "started") return t("Started on %(host)s, process %(pid)s", { host: plain(String(event.host ?? "—")), pid: event.pid ?? "—" });
  if (event.e === "waiting_reboot") return t(event.by_hand ? "Waits until somebody restarts the server, at most %(span)s" : "Waits for the server to restart, at most %(span)s", { span: took(Number(event.within_s)) });
  if (event.e === "rebooted") return t("The server has restarted, after %(span)s; the job goes on", { span: took(Number(event.took_s)) });
  if (event.e === "cancelling") return t({ interrupt: "Asked to stop (SIGINT)", terminate: "Told to end (SIGTERM)", kill: "Killed (SIGKILL)" }[event.rung] ?? "Cancelling");
  if (event.e === "ended") return [t({ succeeded: "Succeeded", failed: "Failed", cancelled: "Cancelled" }[event.state] ?? "Ended"), pair(event.reason)].filter(Boolean).join(": ");
  return plain(JSON.stringify(event));
}

// What its keeper says of an engine: the state, how far it is, and why.
export const ENGINE = { starting: "Starting", loading: "Loading", ready: "Ready", degraded: "Degraded", draining: "Draining", failed: "Failed", stopped: "Stopped" };

function engineText({ state, progress, reason }) {
  const count = typeof progress?.done === "number" && progress.of ? `${figure(progress.done)}/${figure(progress.of)}` : "";
  return [t(ENGINE[state] ?? String(state)), [pair(progress?.what), count].filter(Boolean).join(" "), pair(reason)].filter(Boolean).join(" · ");
}

// What a row reads as: searched and copied.
export function words(row) {
  if (row.type === "item") return [`[${row.event.verdict}]`, pair(row.event.title), row.event.found, row.event.wanted, pair(row.event.remedy)].filter(Boolean).map(String).map(plain).join("  ");
  return row.type === "note" ? noteText(row) : row.text;
}

function heading(row, view) {
  const node = element("button", `log-step ${look(row.state)[0]}`);
  node.type = "button";
  node.id = `L${row.n}`;
  node.dataset.step = row.event.n;
  node.setAttribute("aria-expanded", String(!view.folded.has(row.event.n)));
  const mark = shape(look(row.state)[1], "mark-shape");
  node.append(shape("down", "fold"), mark, element("span", "", `${row.event.n}  ${row.text}`), element("small", "", stepNote(row)));
  return node;
}

function stepNote({ end, state }) {
  if (!end) return "";
  if (state === "skipped") return t("skipped");
  const parts = [took(end.took_s ?? null)];
  if (state === "failed" && end.exit !== null && end.exit !== undefined) parts.push(t("exit code %(n)s", { n: end.exit }));
  return parts.join(" · ");
}
