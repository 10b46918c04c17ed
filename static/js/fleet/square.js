// One NPU as a square: filled = ours, outline = free, dot = foreign, half = memory without a process, two bars = on
// hold, one bar = cordoned, dashed = unreadable, cross = faulty, hatch = the server is silent.
import { FREE, OURS, FOREIGN, UNEXPLAINED, HELD, CORDONED, UNREADABLE, OCC, FAULTY, STEPS, UNKNOWN, isStale } from "./model.js";

const STOPS = ["--heat-0", "--heat-25", "--heat-50", "--heat-75", "--heat-100"];
const SHOWN_WHEN_FREE = new Set(["temp_c", "power_w"]);  // an idle chip has a temperature, but no load worth a colour

export function readColours() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  const stops = STOPS.map((name) => [1, 3, 5].map((at) => parseInt(read(name).slice(at, at + 2), 16)));
  const ramp = Array.from({ length: STEPS }, (_, step) => {
    const at = (step / (STEPS - 1)) * (stops.length - 1), low = Math.min(stops.length - 2, Math.floor(at));
    return `rgb(${stops[low].map((c, i) => Math.round(c + (stops[low + 1][i] - c) * (at - low))).join(" ")})`;
  });
  return {
    ramp, surface: read("--surface"), sunken: read("--sunken"), line: read("--cell-line"), edge: read("--heat-edge"), ink: read("--ink"),
    soft: read("--ink-2"), quiet: read("--ink-3"), critical: read("--critical"), stale: read("--stale"), focus: read("--focus"),
  };
}

export function square(pen, [x, y, wide], high, server, n, metric, c, cursor) {
  const npu = server.npus[n], held = npu[OCC], step = server.steps[n];
  const box = (inset, radius = 2) => { pen.beginPath(); pen.roundRect(x + inset, y + inset, wide - 2 * inset, high - 2 * inset, radius); };
  pen.clearRect(x - 1, y - 1, wide + 2, high + 2);
  pen.lineWidth = 1;
  if (held === OURS || held === FOREIGN) filled(pen, box, step, c);
  else outlined(pen, box, held, step, metric, c, x, y, wide, high);
  if (held === FOREIGN) dot(pen, x + wide / 2, y + high / 2, Math.min(wide, high), c);
  if (isStale(server)) hatch(pen, box, x, y, wide, high, c);
  if (npu[FAULTY]) cross(pen, box, x, y, wide, high, c);
  if (cursor) { pen.strokeStyle = c.focus; pen.lineWidth = 2; pen.strokeRect(x, y, wide, high); }
}

function filled(pen, box, step, c) {
  pen.fillStyle = step === UNKNOWN ? c.sunken : c.ramp[step];
  box(0); pen.fill();
  if (step < 5 || step === UNKNOWN) { pen.strokeStyle = step === UNKNOWN ? c.line : c.edge; box(.5, 1.5); pen.stroke(); }
}

function outlined(pen, box, held, step, metric, c, x, y, wide, high) {
  pen.strokeStyle = c.line;
  if (held === UNREADABLE) pen.setLineDash([2, 2]);
  box(.5, 1.5); pen.stroke(); pen.setLineDash([]);
  pen.fillStyle = c.line;
  if (held === FREE && SHOWN_WHEN_FREE.has(metric) && step !== UNKNOWN) { pen.fillStyle = c.ramp[step]; box(wide > 8 ? 3 : 2, 1); pen.fill(); }
  if (held === UNEXPLAINED) pen.fillRect(x + 1, y + high / 2, wide - 2, high / 2 - 1);
  if (held === HELD) { const bar = Math.max(1, wide / 8); pen.fillRect(x + wide * .3, y + high * .28, bar, high * .44); pen.fillRect(x + wide * .58, y + high * .28, bar, high * .44); }
  if (held === CORDONED) pen.fillRect(x + wide * .2, y + high / 2 - 1, wide * .6, 2);
}

function dot(pen, x, y, size, c) {
  const r = Math.min(3.4, size * .38);
  pen.fillStyle = c.surface; pen.beginPath(); pen.arc(x, y, r, 0, 7); pen.fill();
  pen.fillStyle = c.ink; pen.beginPath(); pen.arc(x, y, r * .56, 0, 7); pen.fill();
}

function hatch(pen, box, x, y, wide, high, c) {
  pen.save(); box(0); pen.clip();
  pen.fillStyle = c.surface; pen.globalAlpha = .55; pen.fillRect(x, y, wide, high); pen.globalAlpha = 1;
  pen.strokeStyle = c.stale; pen.beginPath();
  for (let d = -high; d < wide; d += 4) { pen.moveTo(x + d, y + high); pen.lineTo(x + d + high, y); }
  pen.stroke(); pen.restore();
  pen.strokeStyle = c.stale; box(.5, 1.5); pen.stroke();
}

function cross(pen, box, x, y, wide, high, c) {
  const i = Math.min(wide, high) * .28;
  pen.fillStyle = c.surface; box(0); pen.fill();
  pen.strokeStyle = c.critical; pen.lineWidth = 1.5; box(.75, 1.5); pen.stroke();
  pen.beginPath();
  pen.moveTo(x + i, y + i); pen.lineTo(x + wide - i, y + high - i);
  pen.moveTo(x + wide - i, y + i); pen.lineTo(x + i, y + high - i);
  pen.stroke();
}
