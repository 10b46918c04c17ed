"""The simulated servers: which there are is a function of their number alone, so names and traits never change."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

GONE = "gone"  # a file in the folder of a server that was decommissioned
RACK_SIZE = 5
RACKS_IN_ROW = 8


@dataclass(frozen=True)
class Spec:
    """One family of chips, with figures as npu-smi shows them. `watts` and `celsius` are (idle, full load).

    `layout` is the table that its npu-smi prints (`tables.LAYOUTS`); `dies` counts chips on one card.
    """

    chip: str
    layout: str
    version: str
    hbm_mb: int | None
    ddr_mb: int
    idle_mb: int
    watts: tuple[float, float] | None
    celsius: tuple[float, float]
    pci: str
    subsystem: str
    dies: int = 1
    shared_bus: bool = False
    ports: bool = True
    link: str = "HCCS"


A2 = Spec("910B3", "a2", "25.5.0", 65536, 0, 3310, (92.0, 345.0), (38.0, 66.0), "D802", "19E5:3005")
A2_WIDE = replace(A2, chip="910B4", layout="w26", version="26.0.rc1", hbm_mb=32768, idle_mb=2868, watts=(82.0, 290.0))
A2_B2 = replace(A2, chip="910B2", version="25.2.0", watts=(95.0, 370.0))
A2_OLD = replace(A2, chip="910B1", version="24.1.0")
A2_CARD = replace(A2, chip="910B4-1", version="25.2.2", subsystem="19E5:4000", link="PIX", celsius=(31.0, 63.0))
A3 = Spec("Ascend910", "a3", "25.5.1", 65536, 0, 3010, (162.0, 640.0), (35.0, 64.0), "D803", "19E5:3003", dies=2)
A3_WIDE = replace(A3, layout="w26a3", version="26.0.rc2")
DUO = Spec("310P3", "p", "25.2.0", None, 44280, 1608, None, (46.0, 70.0), "D500", "0200:0110", 2, True, False, "PHB")
A1 = Spec("910A", "a2", "23.0.7", 32768, 15039, 0, (64.0, 295.0), (34.0, 68.0), "D801", "0200:0100")
A5 = Spec(
    "Ascend950PR", "950", "25.7.rc1", 114688, 0, 5390, (190.0, 560.0), (44.0, 68.0), "D806", "19E5:4004", link="UB"
)


@dataclass(frozen=True)
class Chip:
    """One NPU. `index` is its place in the table, which is its device index."""

    index: int
    npu: int
    chip: int
    phy_id: int | None
    bus_id: str


@dataclass(frozen=True)
class Engine:
    """A program on some NPUs. `pattern` is a key of `physics.PATTERNS`; `attempt` marks what counts as ours."""

    holder: str
    program: str
    chips: tuple[int, ...]
    memory_mb: int
    pattern: str
    seed: int
    user: str = "HwHiAiUser"
    command: str = ""
    attempt: str | None = "demo"
    pids: tuple[int, ...] = ()
    since: float = 0.0


@dataclass(frozen=True)
class Stack:
    """What is installed on the host; None where a part is missing. `accepts` is the firmware range of the driver."""

    system: str = "openeuler-22.03"
    driver: str | None = None
    firmware: str | None = "7.8.0.2.212"
    accepts: str = "[7.0.0,7.9.99]"
    cann: str | None = "8.5.1"
    nnal: bool = True
    user: bool = True
    whole: bool = True


@dataclass(frozen=True)
class DemoServer:
    """One simulated server. `quirks` are the ways in which it is not well, see TRAITS.

    `files` and `gone` are what jobs have changed below its root (`contents.py`).
    """

    index: int
    name: str
    rack: str
    spec: Spec
    chips: tuple[Chip, ...]
    engines: tuple[Engine, ...]
    stack: Stack
    quirks: dict[str, Any] = field(default_factory=dict, hash=False)
    files: Mapping[str, str] = field(default_factory=dict, hash=False)
    gone: tuple[str, ...] = ()

    @property
    def holder(self) -> str:
        """What the fleet page writes beside its squares: `qwen3-32b ×2`, empty when nothing of ours runs."""
        names = [engine.holder for engine in self.engines if engine.attempt]
        return ", ".join(
            f"{name} ×{names.count(name)}" if names.count(name) > 1 else name for name in dict.fromkeys(names)
        )

    @property
    def driver(self) -> str | None:
        return self.stack.driver


def vllm(holder: str, chips: Iterable[int], memory_mb: int, pattern: str = "chat") -> dict[str, Any]:
    """An engine of ours; worker processes carry the name that npu-smi cuts to 15 characters."""
    taken = tuple(chips)
    program = "VLLMEngineCor" if len(taken) == 1 else "VLLMWorker_TP"
    command = f"vllm serve /models/{holder} --tensor-parallel-size {len(taken)}"
    return {
        "holder": holder,
        "program": program,
        "chips": taken,
        "memory_mb": memory_mb,
        "pattern": pattern,
        "command": command,
    }


def foreign(user: str, command: str, chips: Iterable[int], memory_mb: int, pattern: str) -> dict[str, Any]:
    """A program that no job of ours started."""
    return {"holder": "", "program": "python", "chips": tuple(chips), "memory_mb": memory_mb, "pattern": pattern,
            "user": user, "command": command, "attempt": None}  # fmt: skip


@dataclass(frozen=True)
class Trait:
    """How the servers of one number modulo the list look. `cards` counts cards, not chips."""

    spec: Spec
    cards: int = 8
    engines: tuple[dict[str, Any], ...] = ()
    stack: Stack = Stack()
    quirks: dict[str, Any] = field(default_factory=dict)


EULER24, KYLIN = "openeuler-24.03", "kylin-v10"
CENTOS_STACK = Stack("centos-7", firmware="7.1.0.11.220", accepts="[7.0.0,7.1.99]", cann=None, nnal=False)
PATCHED = Stack(EULER24, cann="9.1.0")
TRAIN = foreign("zhangwei", "python finetune.py --config sft_14b.yaml", range(8), 51200, "train")

# The first servers of every demo, each with something to see.
TRAITS: list[Trait] = [
    Trait(A2, engines=(vllm("qwen3-32b", range(4), 57344), vllm("qwen3-32b", range(4, 8), 57344)), stack=PATCHED),
    Trait(A3, engines=(vllm("deepseek-v3.1-w8a8", range(16), 58112),), stack=PATCHED),
    Trait(DUO, 2, stack=Stack(KYLIN, firmware="7.7.0.6.236")),
    Trait(A2, engines=(vllm("qwen3-8b", [0], 55296), vllm("qwen3-8b", [1], 55296)), quirks={"alarm": {5: "80E18402"}}),
    Trait(A1, stack=CENTOS_STACK),
    Trait(A2_WIDE, engines=(vllm("glm-4.5-air-w8a8", range(8), 27648),), stack=PATCHED),
    Trait(
        A2_B2, engines=(vllm("qwen3-14b", [0, 1], 56320), foreign("lina", "python eval_mmlu.py", [6], 13162, "batch"))
    ),
    Trait(A2, engines=(vllm("bge-m3", [7], 9216, "quiet"),), quirks={"held": {2: 30720}}),
    Trait(A2, engines=(vllm("qwen3-30b-a3b", range(4), 56320),), quirks={"silent": True}),
    Trait(A3_WIDE, engines=(vllm("kimi-k2-w8a8", range(16), 59392, "busy"),), stack=PATCHED),
    Trait(A5, engines=(vllm("qwen3-235b-a22b", range(8), 98304),), stack=PATCHED),
    Trait(DUO, 4, engines=(vllm("qwen2.5-7b", [0, 1], 30720), vllm("qwen2.5-7b", [2, 3], 30720)), stack=Stack(KYLIN)),
    Trait(A2_OLD, stack=Stack(firmware="7.8.0.2.212", accepts="[7.0.0,7.5.99]", cann="9.1.0", nnal=False)),
    Trait(A2, engines=(vllm("qwen3-235b-a22b-w8a8", range(8), 58368, "busy"),), stack=PATCHED),
    Trait(A2, engines=(vllm("qwen2.5-72b", range(4), 57344),), quirks={"lost": 6}),
    Trait(A2, stack=Stack(whole=False), quirks={"unreadable": -8005}),
    Trait(A3, stack=PATCHED),
    Trait(
        A2_CARD,
        engines=(
            vllm("bge-m3", [0], 6144, "quiet"),
            vllm("bge-reranker", [0], 5120, "quiet"),
            vllm("qwen2.5-vl-7b", [1], 57344),
        ),
        stack=Stack(KYLIN),
    ),
    Trait(A2, engines=(TRAIN,)),
    Trait(A2, quirks={"down": 6}),
]
# From there on mostly healthy ones, in this order again and again.
COMMON = [0, 13, 16, 3, 0, 9, 6, 13, 1, 18, 0, 5, 17, 13, 11, 0, 10, 7, 13, 2]
SICK_EVERY = 40  # one in so many is not well there


@lru_cache(maxsize=8192)
def server(index: int) -> DemoServer:
    """The simulated server of that number, 0 first."""
    if index < len(TRAITS):
        trait = TRAITS[index]
    else:
        trait = TRAITS[COMMON[index % len(COMMON)]]
        trait = trait if index % SICK_EVERY == 3 else replace(trait, quirks={})
    stack = trait.stack if trait.stack.driver else replace(trait.stack, driver=trait.spec.version)
    chips = _chips(trait.spec, trait.cards)
    engines = tuple(_engine(index, place, made) for place, made in enumerate(trait.engines))
    return DemoServer(index, f"kp-{index + 1:02d}", _rack(index), trait.spec, chips, engines, stack, dict(trait.quirks))


def by_name(name: str) -> DemoServer:
    """The server of that name. Raises LookupError for a name that is none of the demo's."""
    number = name.removeprefix("kp-")
    if not number.isdecimal() or not name.startswith("kp-") or len(number) > 6 or int(number) < 1:
        raise LookupError(f"{name} is not a server of the demo fleet; they are called kp-01, kp-02 and so on.")
    return server(int(number) - 1)


def enlist(count: int) -> list[dict[str, Any]]:
    """What the console needs to make rows of the first `count` servers: name, hostname, rack, family, labels."""
    return [
        {
            "name": one.name,
            "hostname": one.name,
            "rack": one.rack,
            "family": one.spec.chip,
            "labels": {"demo": True, "demo_holder": one.holder},
        }
        for one in map(server, range(count))
    ]


def _rack(index: int) -> str:
    rack = index // RACK_SIZE
    row, letters = rack // RACKS_IN_ROW, ""
    while True:
        letters = chr(65 + row % 26) + letters
        row = row // 26 - 1
        if row < 0:
            return f"{letters}{rack % RACKS_IN_ROW + 1}"


# PCI addresses as they come on such boards: not in the order of the NPU ids.
BUSES = ("C1", "C2", "81", "82", "01", "02", "41", "42")
BUSES_A3 = ("9D", "9F", "99", "9B", "95", "97", "91", "93", "8D", "8F", "89", "8B", "85", "87", "81", "83")


def _chips(spec: Spec, cards: int) -> tuple[Chip, ...]:
    made: list[Chip] = []
    for card in range(cards):
        for die in range(spec.dies):
            index = len(made)
            buses = BUSES_A3 if spec.dies == 2 else BUSES
            bus = f"{card + 1:02X}" if spec.shared_bus else buses[index]
            phy_id = index if spec.layout in ("a3", "w26a3") else None
            npu = card + 1 if spec.shared_bus else card
            made.append(Chip(index, npu, die, phy_id, f"0000:{bus}:00.0"))
    return tuple(made)


def _engine(index: int, place: int, made: dict[str, Any]) -> Engine:
    seed = index * 64 + place
    first = 21000 + (seed * 7919) % 3_900_000
    pids = tuple(first + rank * 3 for rank in range(len(made["chips"])))
    return Engine(seed=seed, pids=pids, **made)
