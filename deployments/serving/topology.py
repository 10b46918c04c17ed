"""Which NPUs of a server are near to each other, by what `npu-smi info -t topo` told of their links and CPUs."""

from collections.abc import Sequence
from typing import Any

NEAR = ("HCCS", "UB", "SIO")  # words of the topology for NPUs that are one ring
Place = tuple[int, int]  # (npu_id, the place in the order printed)


def links(topology: Any) -> dict[str, dict[str, str]]:
    """{name: {name: word}} of what a server tells, as a table of links or as a matrix; {} where it tells nothing that
    can be read."""
    if not isinstance(topology, dict):
        return {}
    names, matrix = topology.get("npus"), topology.get("matrix")
    if isinstance(names, list) and isinstance(matrix, list):
        rows = {str(name): row for name, row in zip(names, matrix, strict=False) if isinstance(row, list)}
        return {
            name: {str(names[i]): str(word) for i, word in enumerate(row[: len(names)]) if word and word != "X"}
            for name, row in rows.items()
        }
    known = topology.get("links")
    if not isinstance(known, dict):
        return {}
    return {
        str(name): {str(other): str(word) for other, word in row.items()}
        for name, row in known.items()
        if isinstance(row, dict)
    }


def names_of(places: Sequence[Place], known: Sequence[str] | set[str]) -> list[str] | None:
    """What the topology calls each NPU: by its id, or by its number where each chip has a row; None for neither."""
    for at in (0, 1):
        names = [f"NPU{place[at]}" for place in places]
        if known and set(names) == set(known):
            return names
    return None


def groups(topology: Any, places: Sequence[Place]) -> list[int] | None:
    """The number of each NPU's group: those of one ring, and the chips of one card. None where the topology is not
    known, or knows of no ring at all."""
    table = links(topology)
    names = names_of(places, set(table))
    if names is None:
        return None
    parent = list(range(len(places)))

    def root(one: int) -> int:
        while parent[one] != one:
            one = parent[one]
        return one

    near = False
    for a in range(len(places)):
        for b in range(a):
            words = (table.get(names[a], {}).get(names[b], ""), table.get(names[b], {}).get(names[a], ""))
            linked = any(word.upper().startswith(NEAR) for word in words)
            near = near or linked
            if linked or places[a][0] == places[b][0]:
                parent[root(a)] = root(b)
    return [root(one) for one in range(len(places))] if near else None


def cpus(topology: Any, places: Sequence[Place]) -> list[str]:
    """The CPUs next to each NPU, as npu-smi prints them ("144-167"); '' where it told none. The same: one NUMA node."""
    told = topology.get("cpu_affinity") if isinstance(topology, dict) else None
    if not isinstance(told, dict):
        return [""] * len(places)
    names = names_of(places, {str(name) for name in told})
    return [str(told.get(name) or "")[:60] for name in names] if names else [""] * len(places)
