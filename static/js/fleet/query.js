// Filter, grouping and order of the fleet, kept in the address; the same rules as monitoring/services/fleet_query.py.
import { t } from "../texts.js";
import { FREE, METRICS, OCC, FAULTY, OCCUPANCIES, isFaulty } from "./model.js";
import { isStale } from "./model.js";

const PLAIN = { metric: "aicore_pct", group: "rack", sort: "name", view: "squares", fleet: "", show: "", find: "" };

// What the server made of the address stands in the form: values that it does not know are gone already.
export function readForm(form) {
  return Object.fromEntries(Object.entries(PLAIN).map(([name, plain]) => [name, form.elements[name]?.value ?? plain]));
}

export function queryOf(asked, changes = {}) {
  const wanted = Object.entries({ ...asked, ...changes }).filter(([name, value]) => value !== PLAIN[name]);
  return wanted.length ? `?${new URLSearchParams(wanted)}` : "";
}

const TEXTS = ["name", "display", "family", "rack", "site", "labels", "holder"];
const NAMED_AT_MOST = 100;

// What the form of a batch is opened with: filtered servers by name, else all real ones. The form says where real and
// simulated ones would mix.
export function batchQuery(servers, asked) {
  const hit = asked.show || asked.find ? servers.filter((server) => matches(server, asked)) : [];
  if (!hit.length || hit.length > NAMED_AT_MOST) return new URLSearchParams({ fleet: asked.fleet || "real", find: asked.find });
  const sim = hit.filter((server) => server.sim).length;
  const fleet = sim === 0 ? "real" : sim === hit.length ? "simulated" : "both";
  return new URLSearchParams({ fleet, names: hit.map((server) => server.name).join(" ") });
}

// What the form of a bulk edit is opened with: the servers that are shown, by name where they are few.
export function editQuery(servers, asked) {
  const hit = servers.filter((server) => matches(server, asked));
  if (hit.length <= NAMED_AT_MOST) return new URLSearchParams(hit.map((server) => ["server", server.name]));
  return new URLSearchParams({ find: asked.find, fleet: asked.fleet || "both", ...(asked.find ? {} : { all: "1" }) });
}

export function matches(server, { fleet, show, find }) {
  if (fleet && server.sim !== (fleet === "simulated")) return false;
  if (show && !shows(server, show)) return false;
  const text = TEXTS.map((name) => server[name]).join(" ").toLowerCase();
  return find.toLowerCase().split(/\s+/).every((word) => hasWord(server, text, word));
}

// "rack:a1", "site:bj", "label:env=prod" and "label:env" ask for just that; other words may stand anywhere.
function hasWord(server, text, word) {
  const [, name, value] = /^(rack|site|label):(.*)$/s.exec(word) ?? [];
  if (!name) return text.includes(word);
  if (name === "label") return server.labels.toLowerCase().split(" ").some((label) => label && (label === value || label.startsWith(`${value}=`)));
  return server[name].toLowerCase().replaceAll(" ", "-") === value;
}

function shows(server, show) {
  if (show === "faulty") return isFaulty(server);
  const code = OCCUPANCIES.indexOf(show);
  return code >= 0 ? server.npus.some((npu) => npu[OCC] === code) : server.state === show;
}

const natural = new Intl.Collator("en", { numeric: true, sensitivity: "base" }).compare;

function worst(server, metric) {
  const stale = isStale(server), [at] = METRICS[metric];
  const rank = isFaulty(server) ? 0 : stale ? 1 : server.error ? 2 : 3;
  const known = stale ? [] : server.npus.map((npu) => npu[at]).filter((value) => value !== null);
  return [rank, -Math.floor((known.length ? known.reduce((a, b) => a + b, 0) / known.length : 0) / 10)];
}

// [{ sim, name, title, note, servers }] of the given servers, real ones first.
export function arrange(servers, asked) {
  const groups = new Map();
  for (const server of servers) {
    const name = asked.group === "none" ? "" : server[asked.group], key = `${Number(server.sim)} ${name}`;
    if (!groups.has(key)) groups.set(key, { sim: server.sim, name, servers: [] });
    groups.get(key).servers.push(server);
  }
  const list = [...groups.values()].sort((a, b) => Number(a.sim) - Number(b.sim) || natural(a.name, b.name));
  for (const group of list) {
    group.servers.sort((a, b) => natural(a.name, b.name));
    if (asked.sort === "worst") {
      const keys = new Map(group.servers.map((server) => [server, worst(server, asked.metric)]));
      group.servers.sort((a, b) => keys.get(a)[0] - keys.get(b)[0] || keys.get(a)[1] - keys.get(b)[1]);
    }
    group.title = title(group, asked.group);
    group.note = note(group.servers);
  }
  return list;
}

function title({ sim, name }, kind) {
  if (kind === "rack") return name ? t("Rack %(name)s", { name }) : t("no rack");
  if (kind === "site") return name ? t("Site %(name)s", { name }) : t("no site");
  if (kind === "family") return name || t("no NPU");
  return t(sim ? "Simulated servers" : "Servers");
}

export function note(servers) {
  const npus = servers.flatMap((server) => server.npus);
  return t("servers %(servers)s · NPUs free %(free)s of %(npus)s", {
    servers: servers.length, npus: npus.length, free: npus.filter((npu) => npu[OCC] === FREE && !npu[FAULTY]).length,
  });
}
