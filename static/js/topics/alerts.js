// On every page: how many alerts are open, in the rail; on the page of alerts its rows, drawn anew by the server.
import { subscribe } from "../live.js";
import { fetchPart, together } from "../part.js";

const tally = document.getElementById("alert-tally");
const rows = document.getElementById("alert-rows");

const redraw = together(async () => {
  const fresh = await fetchPart();
  if (fresh) rows.replaceChildren(...fresh.body.childNodes);
}, { after: 1000 });

let shown = null;

function show({ open, critical }) {
  const said = `${open}/${critical}`;
  tally.textContent = open;
  tally.hidden = !open;
  tally.classList.toggle("critical", critical > 0);
  if (rows && shown !== null) redraw();
  shown = said;
}

if (tally) {
  const poll = { url: "/alerts/counts.json", every_ms: 15_000, apply: show };
  subscribe("alerts", { message: (type, data) => show(data), poll });
}
