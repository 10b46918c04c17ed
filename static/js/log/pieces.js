// A log in pieces, of an engine or an agent: each start begins a new one. A piece is to the viewer what an attempt is.
import { subscribe } from "../live.js";
import { listenToKeys } from "./keys.js";
import { Viewer } from "./viewer.js";

// Shows the piece of the page's config and follows its topic; other messages than lines go to `other(type, data)`.
export function followed(topic, { piece, lines, started, newest, ...config }, other = () => {}) {
  const viewer = new Viewer(document.getElementById("log"), { ...config, url: lines, attempt: piece, start: started, newest });
  let current = piece;

  // Lines of another start stand in another piece; where none was there yet, this is the one.
  const another = () => { if (newest) document.getElementById("newer").hidden = false; };
  const linesCame = (data) => {
    current ??= viewer.store.attempt = data.attempt;
    if (data.attempt !== current) return another();
    viewer.live(data);
  };

  subscribe(topic, {
    after: () => ({ after: viewer.store.high, ...(current && { attempt: current }) }),
    message(type, data, seq) {
      if (type === "log") linesCame(data);
      else if (type === "head") { if (!data?.attempt || data.attempt === current) viewer.head(seq); else another(); }
      else if (type === "behind") { if (data.attempt === current) viewer.head(data.total); }
      else other(type, data);
    },
    poll: {
      url: () => `${lines}?after=${viewer.store.high}&n=1000${current ? `&attempt=${current}` : ""}`, every_ms: 2000,
      apply(json) {
        if (json.n) linesCame({ attempt: json.attempt, first: json.first, n: json.n, text: json.text });
        viewer.store.done = json.done;
        viewer.tell();
      },
    },
  });
  listenToKeys(viewer);
  viewer.open();
  return viewer;
}
