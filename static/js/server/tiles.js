// NPU tiles of one server, patched from its "now": figures, memory bar, sparkline, who holds it.
import { t, figure, element } from "../texts.js";

const SVG = "http://www.w3.org/2000/svg", SPARK_S = 600, GAP_S = 90, HIGH = 28;
const WORDS = { free: "free", ours: "ours", foreign: "foreign", unexplained: "unexplained", held: "on hold", cordoned: "cordoned", unreadable: "unreadable" };

// Whose a process is, as monitoring/services/server_page.py says it: { job, text }.
export function holder({ attempt, pid, user, name }, names, short = false, held = null) {
  const job = Number(/^a(\d{1,15})-/.exec(attempt ?? "")?.[1]) || null;
  if (job) return { job, text: t("job #%(id)s", { id: job }) };
  if (held?.kind === "replica" && attempt === `e${held.id}`) return { job, text: t("replica %(n)s of %(name)s", held) };
  if (attempt) return { job, text: names?.[pid] ?? t("ours") };
  return { job, text: short ? [user, name].filter(Boolean).join(" ") || `pid ${pid}` : t("foreign process") };
}

export const put = (node, text) => { if (node && node.textContent !== text) node.textContent = text; };

function shapeOf(health) {
  if (health === null || health === undefined) return ["stale", "state-unknown"];
  return health === "OK" ? ["ok", "state-ok"] : ["critical", "state-critical"];
}

export class Tile {
  constructor(node, points) {
    this.node = node;
    this.points = points;
  }

  #field(name) { return this.node.querySelector(`[data-field=${name}]`); }

  show(npu, processes, names, at) {
    for (const name of ["aicore", "temp_c", "power_w"]) put(this.#field(name), figure(npu[name]));
    put(this.#field("memory"), `${figure(npu.hbm_used_mb)} / ${figure(npu.hbm_total_mb)} MB`);
    this.#health(npu.health);
    this.#bar(npu, processes);
    this.#holder(npu, processes, names);
    this.points.push([at, npu.aicore]);
    this.spark(at);
  }

  #health(health) {
    const [css, symbol] = shapeOf(health), node = this.#field("health");
    node.className = `state ${css}`;
    node.querySelector("use").setAttribute("href", `${document.body.dataset.icons}#${symbol}`);
    put(node.querySelector("small"), health ?? "—");
    this.node.classList.toggle("critical", css === "critical");
  }

  #bar(npu, processes) {
    const bar = this.node.querySelector(".bar"), total = npu.hbm_total_mb, used = npu.hbm_used_mb;
    bar.replaceChildren();
    if (!total || used === null) return;
    const sum = (ours) => processes.filter((process) => Boolean(process.attempt) === ours).reduce((mb, process) => mb + (process.memory_mb ?? 0), 0);
    const ours = sum(true), foreign = sum(false);
    let start = 0;
    for (const [css, mb] of [["other", Math.max(0, used - ours - foreign)], ["ours", ours], ["foreign", foreign]]) {
      const rect = document.createElementNS(SVG, "rect"), width = Math.min(100 - start, (100 * mb) / total);
      for (const [name, value] of Object.entries({ class: css, x: start.toFixed(1), width: Math.max(0, width).toFixed(1), height: 6 })) rect.setAttribute(name, value);
      bar.append(rect);
      start += width;
    }
  }

  #holder(npu, processes, names) {
    const found = new Map(processes.map((process) => holder(process, names, true, npu.held)).map(({ job, text }) => [text, [text, job]]));
    const parts = found.size ? [...found.values()] : [[t(WORDS[npu.occ] ?? "unreadable"), null]];
    const node = this.#field("holder");
    if (node.textContent.trim() === parts.map(([text]) => text).join(" · ")) return;
    node.replaceChildren(...parts.flatMap(([text, job], i) => {
      const item = job ? element("a", "", text) : document.createTextNode(text);
      if (job) item.href = `/jobs/${job}/`;
      return i ? [" · ", item] : [item];
    }));
  }

  // Lines between points; a hole of a minute and a half, or an unknown value, is left open.
  spark(now) {
    const svg = this.node.querySelector(".spark");
    while (this.points.length && this.points[0][0] < now - SPARK_S) this.points.shift();
    const runs = [[]];
    let last = null;
    for (const [at, value] of this.points) {
      if (value === null || (last !== null && at - last > GAP_S)) runs.push([]);
      if (value !== null) runs.at(-1).push([SPARK_S - (now - at), HIGH - 1 - (value / 100) * (HIGH - 2)]);
      last = at;
    }
    svg.replaceChildren(...runs.filter((run) => run.length > 1).flatMap(line));
  }
}

function line(run) {
  const points = run.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");
  const area = document.createElementNS(SVG, "polygon"), stroke = document.createElementNS(SVG, "polyline");
  area.setAttribute("class", "area");
  area.setAttribute("points", `${run[0][0].toFixed(1)},${HIGH} ${points} ${run.at(-1)[0].toFixed(1)},${HIGH}`);
  stroke.setAttribute("points", points);
  return [area, stroke];
}
