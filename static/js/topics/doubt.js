// On every page: the banner that says the console doubts itself, drawn anew by the server.
import { subscribe } from "../live.js";

const place = document.getElementById("doubt");

async function redraw() {
  const answer = await fetch(place.dataset.url, { headers: { "X-Requested-With": "fetch" } });
  if (!answer.ok || answer.redirected) return;
  const text = await answer.text();
  if (place.dataset.shown === text) return;
  place.dataset.shown = text;
  place.replaceChildren(...new DOMParser().parseFromString(text, "text/html").body.childNodes);
}

if (place) subscribe("doubt", { message: (_type, { on }) => { if (on || place.childElementCount) redraw(); } });
