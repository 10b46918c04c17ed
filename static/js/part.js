// The live part of a page, which the server draws anew on request.

import { subscribe } from "./live.js";

// Its nodes as a document, or null where the console does not give it: signed out, refused, away.
export async function fetchPart(address = location.pathname + location.search) {
  const answer = await fetch(address, { headers: { "X-Part": "1" } }).catch(() => null);
  if (!answer?.ok || answer.redirected) return null;
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

// The same of what a poll brings, {"html"}.
export const polledPart = (json) => new DOMParser().parseFromString(json.html, "text/html");

// Put the nodes of `fresh` into `live`; the focus and the place of a table that scrolls sideways survive it.
export function exchange(live, fresh) {
  const focus = live.contains(document.activeElement) ? document.activeElement : null;
  const id = focus?.id, href = focus?.getAttribute("href"), left = live.querySelector(".table-scroll")?.scrollLeft ?? 0;
  live.replaceChildren(...fresh.body.childNodes);
  const again = id ? document.getElementById(id) : href && live.querySelector(`a[href="${CSS.escape(href)}"]`);
  again?.focus({ preventScroll: true });
  const scroll = live.querySelector(".table-scroll");
  if (scroll) scroll.scrollLeft = left;
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

// A function that calls `draw` after `before` ms and rests for `after` ms; calls that come meanwhile become one.
export function together(draw, { before = 0, after }) {
  let wanted = false, drawing = false;
  return async () => {
    wanted = true;
    if (drawing) return;
    drawing = true;
    while (wanted) {
      wanted = false;
      if (before) await pause(before);
      await draw().catch(() => {});
      await pause(after);
    }
    drawing = false;
  };
}

// Draws `live` anew when its topic, or one of `also`, has moved, at most once a second; without a socket every five.
// `draw(document)` puts the new nodes in. Gives what asks for a drawing, for topics that are known later.
export function redrawn(live, draw, { also = [] } = {}) {
  const redraw = together(async () => {
    const fresh = await fetchPart();
    if (fresh) draw(fresh);
  }, { after: 1000 });
  const poll = { url: () => location.pathname + location.search, every_ms: 5000, apply: (json) => draw(polledPart(json)) };
  subscribe(live.dataset.topic, { message: redraw, poll });
  for (const topic of also) subscribe(topic, { message: redraw });
  return redraw;
}
