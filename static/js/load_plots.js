// Small plots of what engines do, of the last minutes in which the page was open: one SVG each, gaps as gaps.
// <svg data-plot="running waiting"> draws these numbers of `metrics`; <b data-plot-now="running"> shows the last one.
import { figure } from "./texts.js";

const SPAN_MS = 300_000, GAP_MS = 15_000, WIDE = 600, HIGH = 64;
const SVG = "http://www.w3.org/2000/svg";

export class LoadPlots {
  constructor(box) {
    this.box = box;
    this.points = [];
  }

  // One reading: numbers or null, and when it came (ms).
  add(metrics, at) {
    if (!this.box) return;
    this.points.push({ at, ...metrics });
    while (this.points[0].at < at - SPAN_MS) this.points.shift();
    this.box.hidden = this.points.length < 2;
    if (!this.box.hidden) this.#draw(at);
  }

  #draw(now) {
    for (const svg of this.box.querySelectorAll("[data-plot]")) {
      const names = svg.dataset.plot.split(" ");
      const most = Math.max(1, ...this.points.flatMap((point) => names.map((name) => point[name] ?? 0)));
      svg.replaceChildren(...names.flatMap((name) => this.#lines(name, most, now, names.length === 1)));
    }
    for (const node of this.box.querySelectorAll("[data-plot-now]")) node.textContent = figure(this.points.at(-1)[node.dataset.plotNow] ?? null);
  }

  // Paths of one number: a new one begins after a gap or where it was not known.
  #lines(name, most, now, filled) {
    const runs = [];
    let before = null;
    for (const point of this.points) {
      const value = point[name];
      if (typeof value !== "number") { before = null; continue; }
      if (before === null || point.at - before > GAP_MS) runs.push([]);
      before = point.at;
      runs.at(-1).push([WIDE * (1 - (now - point.at) / SPAN_MS), HIGH - 2 - (HIGH - 6) * (value / most)]);
    }
    return runs.flatMap((run) => this.#run(name, run, filled));
  }

  #run(name, run, filled) {
    const way = run.map(([x, y], n) => `${n ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
    const made = [path(name, way)];
    if (filled) made.unshift(path("area", `${way}L${run.at(-1)[0].toFixed(1)} ${HIGH}L${run[0][0].toFixed(1)} ${HIGH}Z`));
    return made;
  }
}

function path(css, d) {
  const node = document.createElementNS(SVG, "path");
  node.setAttribute("class", css);
  node.setAttribute("d", d);
  return node;
}
