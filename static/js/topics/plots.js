// History of a server: panels over one time, marks of what happened, a table. Zooming asks again at a finer step.
import { axis, font, plotly, redrawnByTheme, role } from "../plotly.js";
import { element, figure, span as words, t } from "../texts.js";

const config = JSON.parse(document.getElementById("plot-config").textContent);
const place = document.getElementById("plot"), note = document.getElementById("plot-note");
const LATE_MS = 60_000, ROWS = 200;
// Eight that tell apart for most eyes; the next eight are dashed.
const LINES = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8a7500", "#7a6ff0"];
const PANELS = [
  { field: "aicore", title: "AI Core %", scale: 1, range: [0, 100] },
  { field: "hbm_used_mb", title: "HBM GB", scale: 1 / 1024 },
  { field: "temp_c", title: "Temperature °C", scale: 1 },
  { field: "power_w", title: "Power W", scale: 1 },
];
const ENGINES = { field: "generation_tokens_s", title: "Engines, tokens/s", scale: 1 };
const KINDS = { job: ["Jobs", "circle"], replica: ["Replicas", "square"], alert: ["Alerts", "triangle-up"] };

let data, range = config.span ? null : [config.since, config.until], drawing = false;

const local = (epoch) => {
  const at = new Date(epoch * 1000), two = (n) => String(n).padStart(2, "0");
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
};

function query() {
  const asked = new URLSearchParams(range ? { since: range[0], until: range[1] } : { span: config.span || 21600 });
  config.with.forEach((name) => asked.append("with", name));
  return asked;
}

async function load() {
  const asked = query();
  document.getElementById("plot-csv").href = `${config.csv}?${asked}`;
  try {
    const answer = await fetch(`${config.url}?${asked}`, { headers: { Accept: "application/json" } });
    if (!answer.ok) throw new Error(answer.status);
    data = await answer.json();
  } catch {
    note.textContent = t("The plots could not be loaded. They are tried again in a minute.");
    return;
  }
  await draw();
}

const panels = () => (Object.keys(data.engines).length ? [...PANELS, ENGINES] : PANELS);
const x = () => data.at.map((at) => local(at));
const name = (key) => (key in config.indices ? `NPU ${config.indices[key]}` : `NPU ${key}`);
const byIndex = (a, b) => (config.indices[a] ?? 999) - (config.indices[b] ?? 999) || a.localeCompare(b);

function line(title, values, panel, n, group, legend) {
  return {
    type: "scatter", mode: "lines", name: title, legendgroup: group, showlegend: legend, x: x(), connectgaps: false,
    y: values.map((one) => (one === null ? null : one * panel.scale)), yaxis: axisOf(panel), xaxis: "x",
    line: { color: LINES[n % LINES.length], width: 1.5, dash: n >= LINES.length ? "dot" : "solid" },
    hovertemplate: `%{y:,.1f}<extra>${title.replace(/[<>&]/g, " ")}</extra>`,
  };
}

const axisOf = (panel) => { const n = panels().indexOf(panel); return n ? `y${n + 1}` : "y"; };

function traces() {
  const made = [];
  const lines = data.together ? { [config.name]: data.together, ...data.others } : null;
  PANELS.forEach((panel, row) => {
    if (lines) Object.keys(lines).forEach((key, n) => made.push(line(key, lines[key][panel.field], panel, n, key, row === 0)));
    else Object.keys(data.npus).sort(byIndex).forEach((key, n) => made.push(line(name(key), data.npus[key][panel.field], panel, n, key, row === 0)));
  });
  if (panels().includes(ENGINES)) {
    Object.keys(data.engines).forEach((key, n) => made.push(line(data.engine_names[key] ?? `#${key}`, data.engines[key][ENGINES.field], ENGINES, n + 3, `e${key}`, true)));
  }
  return [...made, ...marks()];
}

const COLORS = { ok: "--ok", critical: "--critical", warning: "--warning", info: "--accent" };

function marks() {
  const last = `y${panels().length + 1}`;
  return Object.entries(KINDS).map(([kind, [title, symbol]], row) => {
    const rows = data.marks.filter((one) => one.kind === kind);
    return {
      type: "scatter", mode: "markers", name: t(title), showlegend: false, yaxis: last, xaxis: "x",
      x: rows.map((one) => local(one.at)), y: rows.map(() => 2 - row), text: rows.map((one) => one.text.slice(0, 120).replace(/[<>&]/g, " ")),
      customdata: rows.map((one) => one.link), hovertemplate: "%{text}<extra></extra>",
      marker: { symbol, size: 9, color: rows.map((one) => role(COLORS[one.look] ?? "--accent")) },
    };
  });
}

function layout() {
  const all = panels(), part = 0.9 / all.length, made = {};
  all.forEach((panel, n) => {
    const top = 1 - n * part;
    made[n ? `yaxis${n + 1}` : "yaxis"] = axis({
      title: { text: t(panel.title), font: font() }, domain: [top - part + 0.025, top], rangemode: "tozero",
      ...(panel.range && { range: panel.range }), fixedrange: true, anchor: "x",
    });
  });
  made[`yaxis${all.length + 1}`] = axis({
    domain: [0, 0.08], range: [-0.6, 2.6], fixedrange: true, anchor: "x", showgrid: false, zeroline: false,
    tickvals: [2, 1, 0], ticktext: Object.values(KINDS).map(([title]) => t(title)),
  });
  return {
    ...made, height: innerWidth <= 640 ? 560 : 680, margin: { l: 56, r: 12, t: 8, b: 32 }, font: font(),
    paper_bgcolor: "transparent", plot_bgcolor: "transparent", hovermode: "x unified", dragmode: "zoom", hoversubplots: "axis",
    hoverlabel: { bgcolor: role("--surface"), font: { color: role("--ink") } },
    showlegend: false,
    xaxis: axis({ type: "date", anchor: `y${all.length + 1}`, showspikes: true, spikemode: "across", spikethickness: 1, spikecolor: role("--ink-2"), spikedash: "solid", range: [local(data.at[0] ?? 0), local((data.at.at(-1) ?? 0) + data.step_s)] }),
  };
}

async function draw() {
  const nothing = !Object.keys(data.npus).length && !Object.keys(data.engines).length;
  document.getElementById("plot-empty").hidden = !nothing;
  place.hidden = nothing && !data.marks.length;
  note.textContent = nothing ? "" : data.step_s === 60 ? t("one point a minute") : t("one point each %(span)s", { span: words(data.step_s) });
  table();
  legend();
  if (place.hidden) return;
  const library = await plotly(place.dataset.plotly).catch(() => null);
  if (!library) return;
  drawing = true;
  await library.react(place, traces(), layout(), { displayModeBar: false, responsive: true });
  drawing = false;
  listen();
}

// Plotly's own legend covers the lines of a narrow plot.
function legend() {
  const made = traces().filter((one) => one.showlegend).map((one) => {
    const item = element("li", one.line.dash === "dot" ? "dashed" : "", one.name);
    item.style.setProperty("--line-color", one.line.color);
    return item;
  });
  document.getElementById("plot-legend").replaceChildren(...made);
}

let listens = false;
function listen() {
  if (listens) return;
  listens = true;
  place.on("plotly_relayout", (change) => {
    if (drawing) return;
    const [from, to] = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
    if (from && to) zoom([Date.parse(from.replace(" ", "T")) / 1000, Date.parse(to.replace(" ", "T")) / 1000]);
    else if (change["xaxis.autorange"]) zoom(null);
  });
  place.on("plotly_click", ({ points }) => {
    const link = points.find((one) => typeof one.customdata === "string")?.customdata;
    if (link?.startsWith("/")) location.assign(link);
  });
}

function zoom(wanted) {
  range = wanted ? wanted.map(Math.round) : null;
  if (range && range[1] - range[0] < 120) range[1] = range[0] + 120;
  if (!range && !config.span) range = [config.since, config.until];
  history.replaceState(null, "", `?${query()}`);
  load();
}

// The newest rows of what is drawn; a file has all of them.
function table() {
  const node = document.getElementById("plot-table"), keys = Object.keys(data.npus).sort(byIndex);
  const head = element("thead"), body = element("tbody"), first = element("tr");
  const columns = keys.flatMap((key) => PANELS.map((panel) => [key, panel]));
  first.append(...[t("Time"), ...columns.map(([key, panel]) => `${name(key)} ${t(panel.title)}`)].map((title) => {
    const cell = element("th", "", title);
    cell.scope = "col";
    return cell;
  }));
  head.append(first);
  for (let n = data.at.length - 1; n >= Math.max(0, data.at.length - ROWS); n -= 1) {
    const row = element("tr"), time = element("th", "", local(data.at[n]));
    time.scope = "row";
    row.append(time, ...columns.map(([key, panel]) => element("td", "", figure(scaled(data.npus[key][panel.field][n], panel)))));
    body.append(row);
  }
  node.replaceChildren(node.caption, head, body);
}

const scaled = (value, panel) => (value === null ? null : value * panel.scale);

document.getElementById("plot-png").addEventListener("click", async () => {
  const library = await plotly(place.dataset.plotly).catch(() => null);
  library?.downloadImage(place, { format: "png", width: 1400, height: 800, filename: config.name });
});

// The live edge moves on while the page shows up to now.
setInterval(() => { if (!range && !document.hidden) load(); }, LATE_MS);
redrawnByTheme(() => data && draw());
load();
