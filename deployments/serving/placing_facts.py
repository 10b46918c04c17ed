"""What placement looks at and what it answers: NPUs, servers, the wish, the candidates. Plain data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from deployments.steps import Text


class Process(NamedTuple):
    """One process on an NPU: `who` is "user name" or "pid 12"; `ours` what of ours it belongs to, '' for nothing."""

    who: str
    ours: str
    pod: bool = False


class Npu(NamedTuple):
    """One NPU as last read and as promised. `name` is that of reservations, '' where it has no bus id; `shown`: it is
    in the newest reading; `kept`: for whom it is reserved or on hold; `job`: who locks it."""

    name: str
    chip: str
    shown: bool = True
    health: str | None = "OK"
    codes: tuple[str, ...] = ()
    used_mb: float | None = 0.0
    processes: tuple[Process, ...] = ()
    kept: Text | None = None
    cordon: str | None = None
    job: Text | None = None
    group: int = 0
    cpus: str = ""
    hbm_mb: float | None = None


class Loads(NamedTuple):
    """What is known of a model on one family of chips: `never` is why it does not go there, () where it may. `since`:
    the vLLM-Ascend of the list that has it, '' for none; `stacks` have that one or a newer one."""

    never: tuple[Text, ...] = ()
    since: str = ""
    stacks: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Server:
    """One server. `silent_s`: since its last reading, None for never. `mark`: a key of MARKS or ''. `linked`: whether
    its topology is known. `stack` is the one in use, '' for none; `families` of chips that it is for, () for CPU;
    `catalogued`: it is a row of the catalogue.
    `path`: of the whole copy of the model, '' for none; `broken`: there is a copy that is not whole. `replicas`: of
    this deployment there now. `free_mb`, `cores`: of the host, None where not known."""

    pk: int
    name: str
    rack: str = ""
    simulated: bool = False
    silent_s: float | None = 0.0
    mark: str = ""
    error: bool = False
    kubernetes: bool = False
    npus: tuple[Npu, ...] = ()
    linked: bool = True
    family: str = ""
    stack: str = ""
    stack_kind: str = "npu"
    families: tuple[str, ...] = ()
    catalogued: bool = False
    containers: tuple[str, ...] = ()
    path: str = ""
    broken: bool = False
    free_mb: float | None = None
    cores: float | None = None
    replicas: int = 0


@dataclass(frozen=True)
class Ask:
    """What is wanted. `npus`: on each server of one replica; `nodes`: servers of one replica; `allowed`: names, None
    for all; `needed_mb`: of the host's memory on CPU; `hbm_mb`: of each NPU, 0 where not known; `loads`: of the model,
    by family; `accepted`: codes of faults."""

    npus: int
    simulated: bool = False
    device: str = "npu"
    route: str = "auto"
    nodes: int = 1
    spread: str = "racks"
    allowed: frozenset[str] | None = None
    needed_mb: float = 0.0
    hbm_mb: float = 0.0
    loads: Mapping[str, Loads] = field(default_factory=dict)
    accepted: frozenset[str] = frozenset()
    silent_after_s: float = 15.0


@dataclass(frozen=True)
class Node:
    """One server of a replica that spans several."""

    pk: int
    server: str
    npus: tuple[str, ...]
    path: str


@dataclass(frozen=True)
class Candidate:
    """One server, judged. `codes` name what is in the way, as `why_not` says it; `nodes` are all servers of the replica
    with this one first, () where it takes one; `order` is the smaller the better."""

    pk: int
    server: str
    rack: str = ""
    npus: tuple[str, ...] = ()
    fits: bool = False
    path: str = ""
    why: tuple[Text, ...] = ()
    why_not: tuple[Text, ...] = ()
    codes: tuple[str, ...] = ()
    nodes: tuple[Node, ...] = ()
    free: int = 0
    every: int = 0
    chip: str = ""
    stack: str = ""
    order: tuple[float, ...] = field(default=(), compare=False)
