// The processes and the host of one server, from its "now".
import { t, figure, element } from "../texts.js";
import { holder, put } from "./tiles.js";

const keyOf = (npu) => `${npu.npu}.${npu.chip}`;

export function showProcesses(now) {
  const table = document.querySelector("#processes tbody");
  if (!table) return;
  const place = new Map(now.npus.map((npu, index) => [keyOf(npu), index]));
  const rows = now.processes.map((process) => ({ ...process, at: place.get(keyOf(process)) })).sort((a, b) => (a.at ?? 999) - (b.at ?? 999) || (a.pid ?? 0) - (b.pid ?? 0));
  put(document.getElementById("process-count"), String(rows.length));
  const signature = JSON.stringify(rows.map(({ pid, at, memory_mb: mb, attempt, user }) => [pid, at, mb, attempt, user]));
  if (table.dataset.signature === signature) return;  // a selection in the table stays
  table.dataset.signature = signature;
  if (rows.length) return table.replaceChildren(...rows.map((process) => processRow(process, now.holders, now.npus[process.at]?.held)));
  const none = element("td", "quiet", t("no process")), line = element("tr");
  none.colSpan = 6;
  line.append(none);
  table.replaceChildren(line);
}

function processRow(process, names, held) {
  const { pid, user, at, memory_mb: mb, command, name } = process, { job, text } = holder(process, names, false, held);
  const line = element("tr"), says = command || name || "—", whose = element("td", "fit", job ? undefined : text);
  if (job) { const link = element("a", "", text); link.href = `/jobs/${job}/`; whose.append(link); }
  const what = element("td", "mono clip whole", says);
  what.title = says;
  const labelled = (css, label, text) => { const cell = element("td", css, text); cell.dataset.label = label; return cell; };
  const userWord = document.querySelector("#processes [data-word]").dataset.word;
  line.append(
    labelled("number mono", "PID", String(pid ?? "—")), labelled("", userWord, user || "—"),
    labelled("number", "NPU", String(at ?? "—")), labelled("number", "MB", figure(mb)), what, whose,
  );
  return line;
}

const decimal = (value, digits) => (value === null || value === undefined ? "—" : value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }));
const gib = (mb) => decimal(mb === null || mb === undefined ? null : mb / 1024, 1);
const share = (part, whole) => (part === null || part === undefined || !whole ? null : Math.min(100, (100 * part) / whole));

export function showHost(body, h) {
  const figures = {
    cpu_pct: [decimal(h.cpu_pct, 0), h.cpu_pct ?? null], load1: [decimal(h.load1, 2), share(h.load1, h.cpus)],
    mem: [gib(h.mem_used_mb), share(h.mem_used_mb, h.mem_total_mb)], disk: [decimal(h.disk_used_gb, 0), share(h.disk_used_gb, h.disk_total_gb)],
    rx_kbps: [decimal(h.rx_kbps, 0), null], tx_kbps: [decimal(h.tx_kbps, 0), null],
  };
  for (const [key, [value, pct]] of Object.entries(figures)) {
    const node = body.querySelector(`.host-figure[data-key=${key}]`);
    put(node?.querySelector("[data-field=value]"), value);
    if (pct !== null) node?.querySelector("rect")?.setAttribute("width", pct.toFixed(1));
  }
}
