// The logs of several servers in one view by time: the newest lines first, older ones on scrolling up.
import { draw, showMore } from "../log/row.js";
import { Many } from "../log/many.js";
import { Scroller } from "../log/scroller.js";
import { Sources } from "../log/sources.js";
import { typing } from "../frame.js";
import { element, figure, t } from "../texts.js";

const NEAR = 600, EVERY_MS = 2000, FIRST = innerWidth <= 640 ? 200 : 500, WAYS = ["local", "utc", "relative"];
const root = document.getElementById("log"), part = (name) => root.querySelector(`[data-log="${name}"]`);
const config = JSON.parse(document.getElementById("log-config").textContent);
const view = { times: "local", start: 0, folded: new Set() };
let following = true, busy = 0, problem = "", cursor = null, shownFrom = null;

const many = new Many({ url: config.lines, changed });
const sources = new Sources(part("sources"), (keys, on) => load(() => (on ? many.switchOn(keys, FIRST) : many.switchOff(keys))));
const scroller = new Scroller(part("lines"), drawn);

function drawn(row) {
  const node = draw(row, view), source = sources.known.get(row.source), link = node.querySelector("a");
  const name = element("span", "many-name", source?.name ?? row.source);
  node.removeAttribute("id");
  node.dataset.colour = source?.colour ?? 0;
  name.title = source?.server ?? "";
  if (link) {
    link.href = `${source?.log ?? ""}${row.piece}#L${row.n}`;
    link.setAttribute("aria-label", t("Line %(n)s of %(name)s", { n: row.n, name: name.textContent }));
  }
  node.querySelector(".log-text")?.before(name);
  if (row === cursor) node.classList.add("chosen");
  return node;
}

function changed(how) {
  sources.show(many.sources);
  view.start ||= many.rows.find((row) => row.ms)?.ms ?? 0;
  if (how === "grown" && many.rows[0] === shownFrom) scroller.grown(many.rows); else scroller.show(many.rows);
  shownFrom = many.rows[0];
  if (following) scroller.toEnd();
}

async function load(work) {
  busy += 1;
  try { await work(); problem = ""; } catch { problem = t("The console does not answer. It is asked again."); }
  busy -= 1;
  tell();
}

function tell() {
  const { rows, total, off } = many, none = off.size && off.size >= sources.known.size;
  const count = rows.length ? t("%(n)s of %(total)s lines", { n: figure(rows.length), total: figure(total) }) : "";
  const empty = none ? t("Every log is switched off.") : t("No lines yet. They appear as the servers send them.");
  part("status").textContent = problem || (count ? `${count} · ${t(following ? "following" : "paused")}` : empty);
  part("follow").setAttribute("aria-pressed", String(following));
  part("follow").querySelector("span").textContent = t(following ? "Following" : "Follow");
}

function follow(on) {
  following = on;
  if (on && !many.atEnd) load(() => many.tail(FIRST));
  if (on) scroller.toEnd();
  tell();
}

function error() {
  const from = many.rows.indexOf(cursor ?? scroller.top()?.row), bad = (row) => row.level === "error";
  const row = many.rows.slice(from + 1).find(bad) ?? many.rows.find(bad);
  if (!row) { part("status").textContent = t("no error in the loaded lines"); return; }
  follow(false);
  cursor = row;
  scroller.show();
  scroller.toRow(row);
}

function wrap() {
  part("wrap").setAttribute("aria-pressed", String(root.classList.toggle("wrapped")));
  scroller.show();
  if (following) scroller.toEnd();
}

function times(way) {
  view.times = root.dataset.times = part("times").value = way;
  scroller.show();
  if (following) scroller.toEnd();
}

let top = 0;
part("lines").addEventListener("scroll", () => {
  const pane = part("lines"), up = pane.scrollTop < top - 2;
  top = pane.scrollTop;
  if (following && up && !scroller.ended) follow(false);
  if (busy) return;
  if (up && top < NEAR && !many.atStart) load(() => many.older());
  else if (!many.atEnd && pane.scrollHeight - top - pane.clientHeight < NEAR) load(() => many.newer());
}, { passive: true });
part("lines").addEventListener("click", (event) => {
  const more = event.target.closest("[data-more]"), row = more && many.rows[rowIndex(more.closest(".log-line"))];
  if (row) { showMore(row); scroller.redraw(row); scroller.show(); }
});
const rowIndex = (node) => many.rows.findIndex((row, i) => scroller.node(i) === node);
part("follow").addEventListener("click", () => follow(!following));
part("error").addEventListener("click", error);
part("wrap").addEventListener("click", wrap);
part("all").addEventListener("click", () => sources.all(true));
part("none").addEventListener("click", () => sources.all(false));
part("times").addEventListener("change", (event) => times(event.target.value));
new ResizeObserver(() => { if (following) scroller.toEnd(); }).observe(part("lines"));

const KEYS = {
  f: () => follow(!following), G: () => follow(true), e: error, w: wrap,
  t: () => times(WAYS[(WAYS.indexOf(view.times) + 1) % WAYS.length]),
};
addEventListener("keydown", (event) => {
  if (typing(event.target) || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const act = KEYS[event.key];
  if (act) { event.preventDefault(); act(); }
});

// The end moves: a page that is looked at asks for what follows. Who reads further up loses nothing above.
setInterval(() => { if (!document.hidden && !busy && (many.atEnd || problem)) load(() => many.newer(!following)); }, EVERY_MS);

root.dataset.times = view.times;
if (innerWidth <= 640) wrap();
load(() => many.tail(FIRST));
