"""Where a replica may run: facts of servers in, ranked candidates out, with why and why not for every server. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from deployments.serving import idle
from deployments.serving import placing_words as words
from deployments.serving.placing_facts import Ask, Candidate, Loads, Node, Npu, Process, Server
from deployments.steps import Text

__all__ = [
    "Ask", "Candidate", "Loads", "Node", "Npu", "Process", "Server", "choose", "judge", "obstacle", "pick", "rank",
]  # fmt: skip

REASONS = 5
PREDICTED = 0.95  # memory is predicted within some per cent: only what is clearly too small is refused
MARKS = {
    "leaving": words.LEAVING, "quarantine": words.QUARANTINE, "paused": words.PAUSED, "draining": words.DRAINING,
    "maintenance": words.MAINTENANCE,
}  # fmt: skip
Refusal = tuple[str, Text]


# ---------- one NPU ----------


def obstacle(npu: Npu, accepted: frozenset[str] = frozenset()) -> Text | None:
    """Why this NPU cannot be had, None where it can. What is promised comes before what was read."""
    if not npu.name:
        return words.NO_NAME
    if npu.cordon is not None:
        return words.cordoned(npu.cordon)
    if npu.kept:
        return words.held_by(npu.kept)
    if npu.job:
        return npu.job
    if not npu.shown:
        return words.NOT_SHOWN
    return _occupied(npu) or _sick(npu, accepted)


def _occupied(npu: Npu) -> Text | None:
    for process in npu.processes:
        if process.pod:
            return words.POD
        return words.of_job(process.ours) if process.ours else words.foreign(process.who)
    if npu.used_mb is None:
        return words.NPU_UNREADABLE
    limit = idle.most_mb(npu.chip)
    return words.unexplained(npu.used_mb, limit) if npu.used_mb > limit else None


def _sick(npu: Npu, accepted: frozenset[str]) -> Text | None:
    if npu.health == "OK" or (npu.codes and set(npu.codes) <= accepted):
        return None
    return words.NPU_UNREADABLE if npu.health is None else words.sick(npu.health, npu.codes)


# ---------- which NPUs of a server ----------


def pick(free: Sequence[Npu], count: int) -> list[Npu]:
    """`count` of these, all of one chip: in the one group that is left with the fewest, next to the same CPUs where
    that goes; over several groups, the fullest first, where no group has room. [] where there are too few."""
    chips = Counter(npu.chip for npu in free)
    fitting = [chip for chip, there in chips.items() if there >= count]
    if not fitting or not count:
        return []
    chip = min(fitting, key=lambda one: (chips[one], one))
    groups: dict[int, list[Npu]] = defaultdict(list)
    for npu in free:
        if npu.chip == chip:
            groups[npu.group].append(npu)
    roomy = [group for group in groups.values() if len(group) >= count]
    if roomy:
        return _near(min(roomy, key=len), count)
    taken: list[Npu] = []
    for group in sorted(groups.values(), key=len, reverse=True):
        taken += _near(group, min(len(group), count - len(taken)))
    return taken


def _near(group: Sequence[Npu], count: int) -> list[Npu]:
    by_cpus: dict[str, list[Npu]] = defaultdict(list)
    for npu in group:
        by_cpus[npu.cpus].append(npu)
    roomy = [some for some in by_cpus.values() if len(some) >= count]
    if roomy:
        return min(roomy, key=len)[:count]
    return [npu for some in sorted(by_cpus.values(), key=len, reverse=True) for npu in some][:count]


# ---------- one server ----------


def judge(server: Server, ask: Ask) -> Candidate:
    """The server by itself, without its neighbours: `order` and words of the spread come with `rank`."""
    refusals = list(_of_server(server, ask))
    if ask.device == "cpu":
        return _on_cpu(server, ask, refusals)
    accepted = ask.accepted if ask.nodes == 1 else frozenset()
    reasons: dict[Text, list[str]] = defaultdict(list)
    free = []
    for npu in server.npus:
        why = obstacle(npu, accepted)
        if why is None:
            free.append(npu)
        else:
            reasons[why].append(npu.name or npu.chip)
    chosen = pick([npu for npu in free if not _is_small(npu, ask)], ask.npus)
    if not chosen and (others := pick(free, ask.npus)):
        refusals.append(("memory", _small(others, ask)))
    elif server.npus and not chosen:
        few = words.few(len(free), len(server.npus), ask.npus)
        refusals.append(("npus", few if len(free) < ask.npus else words.unlike(len(free), ask.npus)))
        refusals += [("npus", words.these(names, why)) for why, names in list(reasons.items())[:REASONS]]
    why_here = [] if refusals else _why(server, ask, free, chosen)
    found = _candidate(server, refusals, why_here, chosen, len(free), len(server.npus))
    return replace(found, order=(_is_older(server, ask), *found.order))


def _is_small(npu: Npu, ask: Ask) -> bool:
    return npu.hbm_mb is not None and npu.hbm_mb < PREDICTED * ask.hbm_mb


def _small(npus: Sequence[Npu], ask: Ask) -> Text:
    least = min(npus, key=lambda npu: npu.hbm_mb or float("inf"))
    return words.small(least.chip, least.hbm_mb or 0.0, ask.hbm_mb)


def _is_older(server: Server, ask: Ask) -> bool:
    """Whether its stack is older than the list that has the model; one of the site's own is none of those."""
    loads = ask.loads.get(server.family, Loads())
    known = server.catalogued and bool(loads.since)
    return known and ask.route not in ("podman", "docker") and server.stack not in loads.stacks


def _candidate(
    server: Server, refusals: list[Refusal], why: list[Text], chosen: Sequence[Npu], free: int, every: int
) -> Candidate:
    return Candidate(
        server.pk, server.name, server.rack, () if refusals else tuple(npu.name for npu in chosen), not refusals,
        server.path, tuple(why), tuple(text for _code, text in refusals), tuple(dict.fromkeys(c for c, _t in refusals)),
        free=free, every=every, chip=chosen[0].chip if chosen else "", stack=server.stack,
        order=(len({npu.group for npu in chosen}), _left(server, chosen, free)),
    )  # fmt: skip


def _left(server: Server, chosen: Sequence[Npu], free: int) -> float:
    return free - len(chosen) if server.npus else -(server.free_mb or 0.0)


def _of_server(server: Server, ask: Ask) -> Iterable[Refusal]:
    if server.simulated != ask.simulated:
        yield "simulated", words.SIMULATED if server.simulated else words.REAL
    if ask.allowed is not None and server.name not in ask.allowed:
        yield "not_allowed", words.NOT_ALLOWED
    if server.mark:
        yield server.mark, MARKS[server.mark]
    if server.silent_s is None:
        yield "silent", words.NEVER
    elif server.silent_s > ask.silent_after_s:
        yield "silent", words.silent(server.silent_s)
    if ask.device == "npu":
        yield from _npus_at_all(server)
    elif server.npus:
        yield "npus", words.HAS_NPUS
    yield from _stack(server, ask)
    if ask.device == "npu":
        yield from (("model", text) for text in ask.loads.get(server.family, Loads()).never)
    if not server.path:
        yield "artifact", words.MODEL_BROKEN if server.broken else words.NO_MODEL


def _npus_at_all(server: Server) -> Iterable[Refusal]:
    if server.kubernetes:
        yield "kubernetes", words.KUBERNETES
    if server.error:
        yield "unreadable", words.UNREADABLE
    elif not server.npus:
        yield "npus", words.NO_NPU


def _stack(server: Server, ask: Ask) -> Iterable[Refusal]:
    if ask.route in ("podman", "docker"):
        if ask.route not in server.containers:
            yield "stack", words.no_runtime(ask.route)
    elif not server.stack:
        yield "stack", words.NO_STACK
    elif server.stack_kind != ask.device:
        yield "stack", words.wrong_stack(server.stack, ask.device)
    elif ask.device == "npu" and server.family and server.family not in server.families:
        yield "stack", words.wrong_stack(server.stack, server.family)


def _on_cpu(server: Server, ask: Ask, refusals: list[Refusal]) -> Candidate:
    if server.free_mb is not None and server.free_mb < ask.needed_mb:
        refusals.append(("memory", words.little_memory(server.free_mb, ask.needed_mb)))
    why = []
    if not refusals:
        known = server.free_mb is not None
        why = [words.memory(server.free_mb or 0, ask.needed_mb, server.cores) if known else words.UNKNOWN_MEMORY]
        why += _there(server)
    return _candidate(server, refusals, why, (), 0, len(server.npus))


def _why(server: Server, ask: Ask, free: Sequence[Npu], chosen: Sequence[Npu]) -> list[Text]:
    made = [words.free(len(free), len(server.npus))]
    groups = {npu.group for npu in chosen}
    if len(groups) > 1:
        made.append(words.many_groups(len(groups)))
    elif len(chosen) > 1:
        left = sum(npu.group in groups for npu in free) - len(chosen)
        made.append(words.one_group(left) if server.linked else words.UNKNOWN_LINKS)
    if len(chosen) > 1 and len({npu.cpus for npu in chosen}) == 1 and chosen[0].cpus:
        made.append(words.same_cpus(chosen[0].cpus))
    made += [words.accepted(npu.name, npu.codes) for npu in chosen if npu.health != "OK"]
    made += [words.older(server.stack, ask.loads[server.family].since)] if _is_older(server, ask) else []
    return made + _there(server)


def _there(server: Server) -> list[Text]:
    stack = [words.stack_there(server.stack)] if server.stack else []
    return [words.model_there(server.path), *stack]


# ---------- all servers ----------


def rank(servers: Sequence[Server], ask: Ask) -> list[Candidate]:
    """Every server, the best first; those that do not fit come last, the nearest to fitting first."""
    return _ranked([judge(server, ask) for server in servers], ask, Near.of(servers))


def choose(servers: Sequence[Server], ask: Ask, count: int) -> list[Candidate]:
    """The places of `count` new replicas, one after the other, each as if those before ran already; fewer where there
    is not room for all."""
    by_pk, near = {server.pk: server for server in servers}, Near.of(servers)
    judged = {server.pk: judge(server, ask) for server in servers}
    chosen: list[Candidate] = []
    while len(chosen) < count:
        best = _ranked(list(judged.values()), ask, near)[:1]
        if not best or not best[0].fits:
            break
        chosen.append(best[0])
        for node in best[0].nodes or (Node(best[0].pk, best[0].server, best[0].npus, best[0].path),):
            by_pk[node.pk] = _used(by_pk[node.pk], node.npus, ask)
            judged[node.pk] = judge(by_pk[node.pk], ask)
        near.add(by_pk[best[0].pk])
    return chosen


JUST_CHOSEN = Text("同一部署的另一个副本", "another replica of the same deployment")


def _used(server: Server, names: Sequence[str], ask: Ask) -> Server:
    """The server with these NPUs, or that memory, taken."""
    npus = tuple(npu._replace(kept=JUST_CHOSEN) if npu.name in names else npu for npu in server.npus)
    free_mb = None if server.free_mb is None else server.free_mb - ask.needed_mb
    return replace(server, npus=npus, free_mb=free_mb, replicas=server.replicas + 1)


@dataclass(frozen=True)
class Near:
    """How many replicas of the deployment each server and each rack has."""

    servers: Counter[int]
    racks: Counter[str]

    @classmethod
    def of(cls, servers: Iterable[Server]) -> "Near":
        made = cls(Counter(), Counter())
        for server in servers:
            made.servers[server.pk] += server.replicas
            made.racks[server.rack] += server.replicas
        return made

    def add(self, server: Server) -> None:
        self.servers[server.pk] += 1
        self.racks[server.rack] += 1

    def order(self, one: Candidate, spread: str) -> tuple[float, ...]:
        on_server, in_rack = self.servers[one.pk], self.racks[one.rack] if one.rack else self.servers[one.pk]
        if spread == "pack":
            return (-on_server, -in_rack)
        return (in_rack, on_server) if spread == "racks" else (on_server, in_rack)

    def words(self, one: Candidate) -> list[Text]:
        said = words.others(self.servers[one.pk], self.racks[one.rack], one.rack)
        return [said] if said else []


def _ranked(judged: list[Candidate], ask: Ask, near: Near) -> list[Candidate]:
    def order(one: Candidate) -> tuple[float, ...]:
        return (*near.order(one, ask.spread), *one.order)

    fitting = sorted((one for one in judged if one.fits), key=lambda one: (order(one), one.server))
    left = [one for one in judged if not one.fits]
    if ask.nodes > 1:
        fitting, alone = _in_sets(fitting, ask)
        left += alone
    fitting = [replace(one, why=(*one.why, *near.words(one)), order=order(one)) for one in fitting]
    return fitting + sorted(left, key=lambda one: ("simulated" in one.codes, len(one.codes), -one.free, one.server))


def _in_sets(fitting: list[Candidate], ask: Ask) -> tuple[list[Candidate], list[Candidate]]:
    """(each with the best others of its chip and stack beside it, those that have too few like them)."""
    alike: Mapping[tuple[str, str], list[Candidate]] = defaultdict(list)
    for one in fitting:
        alike[one.chip, one.stack].append(one)
    whole, alone = [], []
    for one in fitting:
        there = alike[one.chip, one.stack]
        if len(there) < ask.nodes:
            said = words.few_servers(len(there), ask.nodes, one.chip, one.stack)
            alone.append(replace(one, fits=False, npus=(), why=(), why_not=(said,), codes=("nodes",)))
            continue
        others = [other for other in there[: ask.nodes] if other.pk != one.pk][: ask.nodes - 1]
        nodes = tuple(Node(each.pk, each.server, each.npus, each.path) for each in (one, *others))
        said = words.together_with([other.server for other in others])
        whole.append(replace(one, nodes=nodes, why=(*one.why, said)))
    return whole, alone
