// The card of one NPU: values at once from the page, exact ones from the server's own topic while it is open.
import { t, ago, span, element, figure } from "../texts.js";
import { METRICS, OCC, OURS, FOREIGN, FAULTY, OCCUPANCIES, isStale } from "./model.js";
import { subscribe } from "../live.js";

const WORDS = { free: "free", ours: "ours", foreign: "foreign", unexplained: "unexplained", held: "on hold", cordoned: "cordoned", unreadable: "unreadable" };
const ASK_AFTER_MS = 250;

export class Card {
  constructor(node, readout, fleet) {
    Object.assign(this, { node, readout, fleet, place: null, exact: null, stop: null, timer: 0 });
  }

  // `box` is where the square is on the screen; `keep` lets a finger reach the link.
  show(place, box, keep = false) {
    const [server] = place;
    if (this.place?.[0] !== server) { this.#leave(); this.timer = setTimeout(() => this.#ask(server), ASK_AFTER_MS); }
    this.place = place;
    this.box = box;
    this.node.classList.toggle("kept", keep);
    this.#draw();
    this.#say();
  }

  hide() {
    this.#leave();
    this.place = null;
    this.node.hidden = true;
  }

  #leave() {
    clearTimeout(this.timer);
    this.stop?.();
    this.stop = this.exact = null;
  }

  #ask(server) {
    this.stop = subscribe(`server:${server.id}`, {
      message: (type, data) => { if (type === "sample" || type === "now") this.#take(server, data); },
      poll: { url: `/servers/${encodeURIComponent(server.name)}/now.json`, every_ms: 2000, apply: (now) => this.#take(server, now) },
    });
  }

  #take(server, now) {
    if (this.place?.[0] !== server) return;
    this.exact = now;
    if (!isStale(server)) this.fleet.touch(server);
    this.#draw();
  }

  #lines() {
    const [server, n] = this.place, npu = server.npus[n], exact = this.exact?.npus?.[n];
    const value = (metric) => (exact ? exactValue(exact, metric) : npu[METRICS[metric][0]]);
    const unit = (metric, label) => [label, value(metric) === null ? "—" : `${figure(value(metric))} ${METRICS[metric][1]}`];
    const memory = server.family.includes("310") ? "DDR" : "HBM";
    const used = exact && exact.hbm_total_mb && exact.hbm_used_mb !== null ? [[memory, `${figure(exact.hbm_used_mb)} / ${figure(exact.hbm_total_mb)} MB`]] : [unit("hbm_pct", memory)];
    const lines = [unit("aicore_pct", "AI Core"), ...used, unit("temp_c", t("Temperature")), unit("power_w", t("Power")), [t("Occupancy"), t(WORDS[OCCUPANCIES[npu[OCC]]])]];
    if (exact?.held) lines.push([t("Kept for"), exact.held.n ? `${exact.held.name} · ${exact.held.n}` : exact.held.name]);
    if (npu[FAULTY]) lines.push([t("Health"), exact?.health ?? t("faulty")]);
    return lines;
  }

  #draw() {
    const [server, n] = this.place, age = this.fleet.age(server);
    const title = element("h4"), facts = element("dl");
    const name = element("a", "", t("%(name)s · NPU %(n)s", { name: server.name, n }));
    name.href = `/servers/${encodeURIComponent(server.name)}/#npu-${n}`;
    name.tabIndex = -1;
    title.append(name, element("span", "", isStale(server) ? t("last value %(span)s ago", { span: span(age) }) : ago(age)));
    for (const [label, value] of this.#lines()) facts.append(element("dt", "", label), element("dd", "", value));
    const chip = this.exact?.npus?.[n];
    const here = (this.exact?.processes ?? []).filter((process) => chip && process.npu === chip.npu && process.chip === chip.chip);
    const says = here.map((process) => element("p", "mono", [this.exact.holders?.[process.pid], `pid ${process.pid ?? "—"}`, process.user, process.name, `${figure(process.memory_mb)} MB`].filter(Boolean).join(" ")));
    this.node.replaceChildren(title, facts, ...says.slice(0, 4));
    // Until the exact values are there; of the whole server, so it would mislead at an NPU that nothing holds.
    if (!this.exact && server.holder && [OURS, FOREIGN].includes(server.npus[n][OCC])) this.node.append(element("p", "", server.holder));
    this.node.hidden = false;
    this.#put();
  }

  #put() {
    const { node, box } = this, high = node.offsetHeight;
    node.style.left = `${Math.max(8, Math.min(innerWidth - node.offsetWidth - 8, box.left - 20))}px`;
    node.style.top = box.top + box.height + high + 16 > innerHeight ? `${Math.max(8, box.top - high - 8)}px` : `${box.top + box.height + 8}px`;
  }

  #say() {
    const [server, n] = this.place;
    this.readout.textContent = `${t("%(name)s · NPU %(n)s", { name: server.name, n })}: ${this.#lines().map((line) => line.join(" ")).join(", ")}`;
  }
}

function exactValue(npu, metric) {
  if (metric === "aicore_pct") return npu.aicore;
  if (metric === "hbm_pct") return npu.hbm_total_mb && npu.hbm_used_mb !== null ? (100 * npu.hbm_used_mb) / npu.hbm_total_mb : null;
  return npu[metric];
}
