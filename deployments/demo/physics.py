"""Load makes power, power makes heat, heat lags behind; memory belongs to processes.

A reading depends on the server, the second and the engines alone, so any process computes the same one: the
sampler's loop, and `npu-smi` run by a job a moment later.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from deployments.demo import systems
from deployments.demo.fleet import DemoServer, Engine

SLOT_S = 4  # load is drawn anew at every slot and runs straight between two
MEMORY = 32  # slots that the heat of a chip remembers
COOLING = math.exp(-SLOT_S / 40)  # time constant of 40 s: a card takes about two minutes to warm up
WEIGHTS = [COOLING**age * (1 - COOLING) / (1 - COOLING**MEMORY) for age in range(MEMORY)]
GOLDEN = 0.6180339887
DAY_S = 86400
SILENT_EVERY_S, SILENT_FOR_S = 360, 90


class Reading(NamedTuple):
    """One chip at one second. Memory is in MB as npu-smi counts; `watts` is None where it prints none."""

    health: str
    watts: float | None
    celsius: int
    aicore: int
    used_mb: int


class Held(NamedTuple):
    """One process on one chip."""

    chip: int
    pid: int
    name: str
    memory_mb: int
    engine: Engine


def noise(a: int, b: int) -> float:
    """A number in [0, 1) that looks random and is always the same for the same two numbers."""
    x = (a * 0x9E3779B1 ^ (b + 0x7F4A7C15) * 0x85EBCA77) & 0xFFFFFFFF
    x = (x ^ (x >> 15)) * 0x2C1B3C6D & 0xFFFFFFFF
    x = (x ^ (x >> 12)) * 0x297A2D39 & 0xFFFFFFFF
    return (x ^ (x >> 15)) / 4294967296


def _chat(seed: int, slot: int) -> float:
    """Requests of people: a wave over the day, a shorter one, bursts, and now and then nobody."""
    t = slot * SLOT_S
    if noise(seed + 17, t // 120) < 0.12:
        return 0.0
    day = 0.5 + 0.5 * math.sin((t % DAY_S) / DAY_S * 2 * math.pi - 1.6 + seed)
    wave = 0.5 + 0.5 * math.sin(t / (97 + seed % 61) + seed)
    return 0.08 + 0.3 * day + 0.25 * wave + 0.3 * noise(seed, slot)


def _busy(seed: int, slot: int) -> float:
    return 0.72 + 0.25 * noise(seed, slot)


def _batch(seed: int, slot: int) -> float:
    return 0.9 + 0.08 * noise(seed, slot) if slot % 45 < 33 else 0.02


def _train(seed: int, slot: int) -> float:
    return 0.12 if slot % 150 < 4 else 0.94 + 0.05 * noise(seed, slot)


def _quiet(seed: int, slot: int) -> float:
    return 0.3 * noise(seed, slot) if noise(seed + 5, slot // 8) < 0.3 else 0.0


def _loading(seed: int, slot: int) -> float:
    return 0.05 + 0.1 * noise(seed, slot)


PATTERNS: dict[str, Callable[[int, int], float]] = {
    "chat": _chat,
    "busy": _busy,
    "batch": _batch,
    "train": _train,
    "quiet": _quiet,
    "loading": _loading,
}


@lru_cache(maxsize=1 << 18)
def slot_load(pattern: str, seed: int, slot: int) -> float:
    """Load of an engine at the start of a slot, 0 to 1."""
    return min(1.0, max(0.0, PATTERNS[pattern](seed, slot)))


@lru_cache(maxsize=1 << 14)
def slot_heat(pattern: str, seed: int, slot: int, since_slot: int) -> float:
    """Load as the heat sink remembers it, 0 to 1; before an engine started there was none."""
    heat = 0.0
    for age in range(min(MEMORY, max(0, slot - since_slot + 1))):
        heat += WEIGHTS[age] * slot_load(pattern, seed, slot - age)
    return heat


def load_and_heat(engine: Engine, t: float) -> tuple[float, float]:
    """Load and remembered load of an engine at a time, each 0 to 1."""
    slot, part = divmod(t, SLOT_S)
    now, share, since = int(slot), part / SLOT_S, int(engine.since // SLOT_S)
    pattern, seed = engine.pattern, engine.seed
    before, after = slot_load(pattern, seed, now), slot_load(pattern, seed, now + 1)
    cooler, warmer = slot_heat(pattern, seed, now - 1, since), slot_heat(pattern, seed, now, since)
    return before + (after - before) * share, cooler + (warmer - cooler) * share


def readings(server: DemoServer, t: float, engines: tuple[Engine, ...]) -> list[Reading]:
    """One reading per chip, in the order of `server.chips`; a lost card has one too, tables leave it out."""
    count = len(server.chips)
    loads, heats, memory = [0.0] * count, [0.0] * count, [0] * count
    for engine in engines:
        load, heat = load_and_heat(engine, t)
        for chip in engine.chips:
            loads[chip] += load
            heats[chip] += heat
            memory[chip] += memory_mb(engine, t)
    for chip, held in server.quirks.get("held", {}).items():
        memory[chip] += held
    jitter = noise(server.index, int(t))
    made = []
    for chip in range(count):
        jitter = (jitter + GOLDEN) % 1.0
        made.append(_reading(server, chip, loads[chip], heats[chip], memory[chip], jitter))
    return made


def _reading(server: DemoServer, chip: int, load: float, heat: float, memory: int, jitter: float) -> Reading:
    spec, place = server.spec, noise(server.index * 32 + chip, 3)
    aicore = 0 if load < 0.01 else min(100, max(1, round(load * 100 + (jitter - 0.5) * 14)))
    cold, hot = spec.celsius
    celsius = round(cold + (hot - cold) * min(1.1, heat) + place * 6 + jitter * 0.9)
    watts = None
    if spec.watts is not None:
        idle, full = spec.watts
        share = 0.75 * min(1.0, load) + 0.25 * min(1.0, heat)
        watts = round(idle + (full - idle) * share + place * 7 + (jitter - 0.5) * 4, 1)
    used = spec.idle_mb + round(place * 160) + memory
    total = spec.hbm_mb if spec.hbm_mb is not None else spec.ddr_mb
    health = "Alarm" if chip in server.quirks.get("alarm", {}) else "OK"
    return Reading(health, watts, celsius, aicore, min(used, total))


def memory_mb(engine: Engine, t: float) -> int:
    """What one process of the engine holds; weights come in over a minute and a half after a start."""
    full = engine.memory_mb + int(noise(engine.seed, int(t // 30)) * 8)
    if engine.pattern == "train":
        full -= int(noise(engine.seed + 9, int(t // 10)) * engine.memory_mb * 0.06)
    return max(200, min(full, int(full * (t - engine.since) / 90)))


def processes(server: DemoServer, t: float, engines: tuple[Engine, ...]) -> list[Held]:
    """All processes on the NPUs, by chip and then in the order they started."""
    found = [
        Held(chip, engine.pids[rank], engine.program, memory_mb(engine, t), engine)
        for engine in engines
        for rank, chip in enumerate(engine.chips)
    ]
    return sorted(found, key=_chip_of)


def _chip_of(held: Held) -> int:
    return held.chip


def is_silent(server: DemoServer, t: float) -> bool:
    """Whether the server is in the part of its cycle in which nothing is heard from it."""
    return bool(server.quirks.get("silent")) and t % SILENT_EVERY_S < SILENT_FOR_S


def host(server: DemoServer, t: float, engines: tuple[Engine, ...], jobs: int = 0) -> dict[str, Any]:
    """The figures of the host, as the sampler's `host`. `jobs` are runners at work there."""
    total = sum(load_and_heat(engine, t)[0] * min(4, len(engine.chips)) for engine in engines)
    wobble = noise(server.index + 101, int(t // 2))
    cpus, memory_total = systems.cpus(server), systems.memory_mb(server)
    memory = 28_000 + wobble * 900 + sum(9_000 + engine.memory_mb * 0.12 * len(engine.chips) for engine in engines)
    boot = 1_700_000_000 + server.index * 7919
    return {
        "load1": round(0.6 + wobble * 1.2 + total * 4.5 + jobs * 1.3, 2),
        "cpu_pct": round(min(100.0, (0.9 + wobble + total * 4.1 + jobs * 1.1) * 100 / cpus), 1),
        "cpus": cpus,
        "mem_used_mb": int(min(memory, memory_total * 0.95)),
        "mem_total_mb": memory_total,
        "disk_used_gb": round(310 + server.index % 7 * 140 + (t % DAY_S) / DAY_S * 3, 1),
        "disk_total_gb": 3500.0,
        "rx_kbps": round(40 + wobble * 60 + total * 900, 1),
        "tx_kbps": round(55 + wobble * 40 + total * 2100, 1),
        "uptime_s": int(t - boot) % (200 * DAY_S),
    }
