// The plot of benchmarks: output above, TTFT and TPOT below, against concurrency. Plotly is 1.4 MB and is loaded when
// there is something to draw; without it the table says the same.

import { plotly, role } from "./plotly.js";

// Each run has its own dash, each measure its own colour and marker: neither says it alone.
function traces({ runs, words }) {
  const last = runs.length - 1, made = [];
  runs.forEach((run, n) => {
    const old = n < last, x = run.points.map((one) => one.concurrency), after = runs.length > 1 ? ` ${run.name}` : "";
    const line = (color) => ({ color: role(color), width: 2, dash: old ? "dot" : "solid" });
    const add = (name, color, symbol, y, axis) => made.push({
      type: "scatter", mode: "lines+markers", name: name + after, x, y, yaxis: axis, line: line(color),
      marker: { symbol, size: 8 }, connectgaps: false, hovertemplate: `%{y:,.1f}<extra>${name}</extra>`,
    });
    add(words.rate, "--accent", "circle", run.points.map((one) => one.output_tokens_s), "y");
    add("TTFT p90", "--warning", "diamond", run.points.map((one) => one.ttft_ms?.p90), "y2");
    add("TPOT p90", "--ok", "square", run.points.map((one) => one.tpot_ms?.p90), "y2");
  });
  return made;
}

function layout({ runs, words, targets }) {
  const degrees = [...new Set(runs.flatMap((run) => run.points.map((one) => one.concurrency)))];
  const ink = role("--ink-2"), line = role("--line");
  const axis = { gridcolor: line, linecolor: line, zerolinecolor: line, tickfont: { color: ink }, automargin: true };
  const title = (text) => ({ text, font: { color: ink, size: 12 } });
  const shapes = targets?.tpot_ms ? [{
    type: "line", xref: "paper", x0: 0, x1: 1, yref: "y2", y0: targets.tpot_ms, y1: targets.tpot_ms,
    line: { color: role("--ok"), width: 1, dash: "dash" },
    label: { text: `TPOT ${words.target}`, font: { color: ink, size: 11 }, textposition: "end" },
  }] : [];
  return {
    height: 420, margin: { l: 56, r: 12, t: 8, b: 40 }, paper_bgcolor: "transparent", plot_bgcolor: "transparent",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: ink }, shapes, hovermode: "x unified",
    hoverlabel: { bgcolor: role("--surface"), font: { color: role("--ink") } },
    legend: { orientation: "h", y: 1.08, font: { color: ink } },
    xaxis: { ...axis, title: title(words.concurrency), type: "log", tickvals: degrees, anchor: "y2" },
    yaxis: { ...axis, title: title(words.rate), domain: [0.56, 1], rangemode: "tozero" },
    yaxis2: { ...axis, title: title(words.time), domain: [0, 0.46], type: "log", dtick: 1 },
  };
}

// Draw what the page's block holds, if it holds something.
export async function drawn(live) {
  const block = document.getElementById("bench-data"), place = document.getElementById("bench-plot");
  if (!block || !place) return;
  const data = JSON.parse(block.textContent);
  const library = await plotly(live.dataset.plotly).catch(() => null);
  if (!library || !place.isConnected) return;
  await library.react(place, traces(data), layout(data), { displayModeBar: false, responsive: true });
}

// The theme has its own colours.
new MutationObserver(() => {
  const live = document.getElementById("benchmark-live");
  if (live && window.Plotly) drawn(live);
}).observe(document.documentElement, { attributeFilter: ["data-theme"] });
