// What the viewer says of itself: how much is loaded, whether it follows, and whose step is at the top of the view.
import { figure, t } from "../texts.js";
import { draw } from "./row.js";

// Shows it, and answers whether the log is complete.
export function tell(viewer) {
  const { total, high, done } = viewer.store;
  // A job that ended before its server wrote anything has a log that stays empty.
  const complete = !viewer.newest || (done && high >= total) || (viewer.ended && !total);
  viewer.part("status").textContent = viewer.problem || statusText(viewer, complete);
  viewer.root.classList.toggle("complete", complete);
  viewer.pane.style.setProperty("--log-digits", Math.max(4, String(total).length));
  followButton(viewer, complete);
  here(viewer);
  viewer.filter.tell();
  return complete;
}

function statusText({ store, shown, following }, complete) {
  const { total } = store, { low, high } = shown;
  if (!total) return complete ? t("This attempt wrote no log.") : t("No lines yet. They appear as the server sends them.");
  const state = complete ? t("complete") : following ? t("following") : t("paused");
  return shown === store ? `${countText(total, low, Math.min(high, total))} · ${state}` : state;
}

function countText(total, low, high) {
  if (total === 1) return t("1 line");
  if (low <= 1 && high >= total) return t("%(n)s lines", { n: figure(total) });
  return t("lines %(low)s–%(high)s of %(n)s", { low: figure(low), high: figure(high), n: figure(total) });
}

function followButton(viewer, complete) {
  const button = viewer.part("follow"), unread = viewer.store.total - viewer.seen;
  button.hidden = complete && viewer.scroller.ended && viewer.shown.atEnd;
  button.setAttribute("aria-pressed", String(viewer.following && !complete));
  button.querySelector("span").textContent = complete ? t("To the end")
    : viewer.following ? t("Following")
    : unread > 0 ? t("Follow · %(n)s new", { n: figure(unread) }) : t("Follow");
}

// The heading of the step whose lines are at the top of the view.
function here(viewer) {
  const bar = viewer.part("here"), top = viewer.scroller.top()?.row;
  const isHeading = (row) => row.type === "step" && row.event.n === top.step && row.n <= top.n;
  const heading = top?.step ? viewer.shown.rows.list.findLast(isHeading) : null;
  bar.hidden = !heading || heading === top;
  if (bar.hidden) return;
  bar.style.setProperty("--scrollbar", `${viewer.pane.offsetWidth - viewer.pane.clientWidth}px`);
  const key = `${heading.n} ${heading.state} ${viewer.view.folded.has(top.step)}`;
  if (bar.dataset.key === key) return;
  bar.dataset.key = key;
  const drawn = draw(heading, viewer.view);
  drawn.removeAttribute("id");
  bar.replaceChildren(drawn);
}
