// The live part of a page, which the server draws anew on request.

// Its nodes as a document, or null where the console does not give it: signed out, refused, away.
export async function fetchPart(address = location.pathname + location.search) {
  const answer = await fetch(address, { headers: { "X-Part": "1" } }).catch(() => null);
  if (!answer?.ok || answer.redirected) return null;
  return new DOMParser().parseFromString(await answer.text(), "text/html");
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
