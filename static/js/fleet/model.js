// The fleet as the page knows it: servers of the JSON block, colour steps, ages. Draws nothing.
// A server: { id, name, first, state, age, sim, family, rack, holder, error, dies, power_w, npus, steps, heard }.

export const AICORE = 0, HBM = 1, TEMP = 2, POWER = 3, OCC = 4, FAULTY = 5;
export const FREE = 0, OURS = 1, FOREIGN = 2, UNEXPLAINED = 3, HELD = 4, CORDONED = 5, UNREADABLE = 6;
export const OCCUPANCIES = ["free", "ours", "foreign", "unexplained", "held", "cordoned", "unreadable"];
export const STEPS = 16, UNKNOWN = 16;
export const METRICS = { aicore_pct: [AICORE, "%"], hbm_pct: [HBM, "%"], temp_c: [TEMP, "°C"], power_w: [POWER, "W"] };

const seconds = () => performance.now() / 1000;

export class Fleet {
  constructor(block, metric) {
    this.metric = metric;
    this.limits = block.limits;
    this.load(block);
  }

  load(block) {
    const at = seconds();
    this.gen = block.gen;
    this.servers = block.servers;
    this.byId = new Map(this.servers.map((server) => [server.id, server]));
    for (const server of this.servers) {
      server.heard = server.age === null ? null : at - server.age;
      this.#stepsOf(server);
    }
  }

  // Newer values of some servers, from /fleet.json?ids=…; returns those that are known.
  merge(servers) {
    return servers.flatMap((fresh) => {
      const server = this.byId.get(fresh.id);
      if (!server || server.npus.length !== fresh.npus.length) return [];
      Object.assign(server, fresh, { first: server.first, heard: fresh.age === null ? null : seconds() - fresh.age });
      this.#stepsOf(server);
      return [server];
    });
  }

  setMetric(metric) {
    this.metric = metric;
    this.servers.forEach((server) => this.#stepsOf(server));
  }

  stepOf(value) {
    if (value === null || value === undefined) return UNKNOWN;
    const [low, high] = this.limits[this.metric];
    return Math.min(STEPS - 1, Math.max(0, Math.floor(((value - low) / (high - low)) * STEPS)));
  }

  #stepsOf(server) {
    const [at] = METRICS[this.metric];
    server.steps = Uint8Array.from(server.npus, (npu) => this.stepOf(npu[at]));
  }

  // Pairs (places passed over, new step) as varints; returns [[server, n], …] in order.
  applySteps(base64) {
    const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0)), changed = [];
    let at = 0, place = -1, s = 0;
    const varint = () => {
      let value = 0, shift = 0, byte;
      do { byte = bytes[at++] ?? 0; value += (byte & 0x7f) * 2 ** shift; shift += 7; } while (byte & 0x80);
      return value;
    };
    while (at < bytes.length) {
      place += varint() + 1;
      const step = Math.min(UNKNOWN, varint());
      while (s < this.servers.length && place >= this.servers[s].first + this.servers[s].npus.length) s += 1;
      if (s === this.servers.length) break;
      const server = this.servers[s], n = place - server.first;
      // What the page knows already, as at the opening, is no newer sample; nor is anything told of a silent server.
      if (server.steps[n] !== step && !isStale(server)) server.heard = seconds();
      server.steps[n] = step;
      changed.push([server, n]);
    }
    return changed;
  }

  // One server's state and occupancy changed; returns the server, or null where it is unknown.
  applyState({ id, state, npus, error }) {
    const server = this.byId.get(id);
    if (!server || (npus && npus.length !== server.npus.length)) return null;
    server.state = state;
    server.error = Boolean(error);
    npus?.forEach(([occupancy, faulty], n) => { server.npus[n][OCC] = Math.max(0, OCCUPANCIES.indexOf(occupancy)); server.npus[n][FAULTY] = faulty ? 1 : 0; });
    return server;
  }

  age(server) { return server.heard === null ? null : seconds() - server.heard; }
  touch(server, age = 0) { server.heard = seconds() - age; }
}

export const isStale = (server) => server.state !== "live" && server.state !== "maintenance";
export const isFaulty = (server) => server.npus.some((npu) => npu[FAULTY]);

// How many servers and NPUs, by state and occupancy; the same as monitoring/services/fleet_page.py counts.
export function tally(servers) {
  const counts = { "": servers.length, npus: 0, faulty: 0 };
  for (const name of [...OCCUPANCIES, "live", "silent", "offline", "never", "maintenance"]) counts[name] = 0;
  for (const server of servers) {
    counts[server.state] += 1;
    counts.npus += server.npus.length;
    for (const npu of server.npus) { counts[OCCUPANCIES[npu[OCC]]] += 1; counts.faulty += npu[FAULTY]; }
  }
  return counts;
}

// [aicore, hbm, hottest, power] of a server; nulls where nothing is known. Used when a whole server was read again.
export function summary(server) {
  if (isStale(server)) return [null, null, null, null];
  const known = (at) => server.npus.map((npu) => npu[at]).filter((value) => value !== null);
  const mean = (list) => (list.length ? Math.round(list.reduce((a, b) => a + b, 0) / list.length) : null);
  const temps = known(TEMP);
  return [mean(known(AICORE)), mean(known(HBM)), temps.length ? Math.max(...temps) : null, server.power_w];
}
