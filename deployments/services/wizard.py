"""A new deployment, from the model to the start: what fits where, the settings that a plan means, what is wrong with
them, the exact command. Page and REST ask here; nothing is changed but by `start`."""

import dataclasses
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from console.errors import ConsoleError
from console.language import pick
from console.models import User
from deployments.models import Artifact, Deployment
from deployments.services import deployments, model_catalogue, model_gate, placement, settings_form, stacks
from deployments.services.serving_hardware import Hardware
from deployments.serving import command, planner, settings
from deployments.serving.command import Place
from deployments.serving.placing import Candidate
from deployments.serving.planner import Plan, Wish
from deployments.serving.setting_problems import of_memory
from deployments.serving.settings import Settings
from deployments.serving.spec import Spec, Unknown, completed, from_summary

__all__ = ["Card", "Trial", "cards", "look", "problems", "propose", "settings_form", "start", "taken"]

TINY_MB = 1024  # below it a model is computed in 32 bits on a CPU
CPU_CONTEXT = 2048
MOST_CARDS = 3
FIRST_PORT = 18_000
# What a plan decides: taking another one replaces these and keeps the rest.
PLANNED = (
    "device", "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "enable_expert_parallel", "nodes",
    "backend", "max_model_len", "max_num_seqs", "gpu_memory_utilization", "dtype", "quantization", "enforce_eager",
    "kv_cache_gib",
)  # fmt: skip


@dataclass(frozen=True)
class Card:
    """One plan on one kind of hardware; `plan` and `hardware` are None for the one without NPU."""

    key: str
    plan: Plan | None
    hardware: Hardware | None
    settings: dict[str, Any]


@dataclass(frozen=True)
class Trial:
    """What somebody wants to start, as it was said and found. `candidates` are those of placement.look."""

    artifact: Artifact
    spec: Spec | None
    data: dict[str, Any]
    replicas: int
    servers: tuple[str, ...]
    spread: str
    candidates: tuple[Candidate, ...] = ()
    why: ConsoleError | None = None


# ---------- model ----------


def spec_of(artifact: Artifact) -> Spec | None:
    """None where a figure is not known that plans need."""
    try:
        spec = from_summary(artifact.summary, name=artifact.name, weight_bytes=artifact.bytes)
    except Unknown:
        return None
    like = model_catalogue.like(artifact.name)
    return completed(spec, like) if like else spec


def proposed_name(artifact: Artifact) -> str:
    """A name that no deployment has: small letters, digits and dashes, made of the model's."""
    base = re.sub(r"[^a-z0-9]+", "-", artifact.name.lower()).strip("-")[:55] or "model"
    taken = set(Deployment.objects.filter(deleted_at=None, name__startswith=base).values_list("name", flat=True))
    names = (base, *(f"{base}-{n}" for n in range(2, len(taken) + 3)))
    return next(name for name in names if name not in taken)


def gate_asks(artifact: Artifact) -> str:
    """'' where the model may be deployed as it is; else failed or not_evaluated, for which a reason is needed."""
    state = model_gate.state(artifact)
    return state if state in ("failed", "not_evaluated") else ""


# ---------- plans ----------


def cards(spec: Spec, hardware: Sequence[Hardware], wish: Mapping[str, Any], *, cpu: bool) -> list[Card]:
    """At most three plans, best first: those for the fewest NPUs before others; with `cpu` the one without NPU too."""
    made: list[Card] = []
    for n, kind in enumerate(hardware):
        asked = Wish(
            family=kind.family, hbm_mb=kind.hbm_mb, npus=kind.npus, group=kind.group,
            max_model_len=wish.get("max_model_len") or None, concurrency=wish.get("concurrency") or None,
            servers=len(kind.servers),
        )  # fmt: skip
        for m, plan in enumerate(planner.make(spec, asked).plans):
            made.append(Card(f"{n}-{m}", plan, kind, propose(spec, plan, kind)))
    made = _different(made)
    if cpu and not (spec.quant or spec.foreign_quant):
        made.append(Card("cpu", None, None, propose_cpu(spec)))
    return made


def _different(made: list[Card]) -> list[Card]:
    """The best of each goal over all hardware."""
    chosen: list[Card] = []
    for goal in planner.GOALS:
        fitting = [one for one in made if one.plan and goal in one.plan.goals]
        fitting.sort(key=lambda one: one.plan.engine.npus if one.plan and goal == "fewest" else 0)
        if fitting and all(one.settings != fitting[0].settings for one in chosen):
            chosen.append(fitting[0])
    return chosen[:MOST_CARDS]


def refusals(spec: Spec, hardware: Sequence[Hardware], wish: Mapping[str, Any]) -> list[Any]:
    """Why nothing fits, of the kind that most servers are."""
    if not hardware:
        return []
    kind = hardware[0]
    asked = Wish(kind.family, kind.hbm_mb, kind.npus, kind.group, wish.get("max_model_len"), wish.get("concurrency"))
    return list(planner.make(spec, asked).refusals)


def propose(spec: Spec, plan: Plan, hardware: Hardware) -> dict[str, Any]:
    """The settings that a plan means, only what differs from the defaults."""
    engine = plan.engine
    made: dict[str, Any] = {
        "tensor_parallel_size": engine.tp, "pipeline_parallel_size": engine.pp, "data_parallel_size": engine.dp,
        "enable_expert_parallel": engine.ep, "max_model_len": plan.max_model_len, "max_num_seqs": engine.max_num_seqs,
        "gpu_memory_utilization": engine.utilization, "nodes": plan.nodes,
    }  # fmt: skip
    if hardware.family == "310P":
        made["dtype"] = "float16"
    if spec.quant:
        made["quantization"] = "ascend"
    return settings.as_json(settings.read(made))


def propose_cpu(spec: Spec) -> dict[str, Any]:
    """For trying without an NPU: short, small and without graphs."""
    tiny = spec.weight_mb < TINY_MB or spec.dtype == "F32"
    made = {
        "device": "cpu", "dtype": "float32" if tiny else "bfloat16", "enforce_eager": True, "kv_cache_gib": 1,
        "max_model_len": min(CPU_CONTEXT, spec.max_position or CPU_CONTEXT),
    }  # fmt: skip
    return settings.as_json(settings.read(made))


def taken(data: Mapping[str, Any], card: Card) -> dict[str, Any]:
    """`data` with what the card decides."""
    return {**{name: value for name, value in data.items() if name not in PLANNED}, **card.settings}


# ---------- what is wrong ----------


def problems(
    data: Mapping[str, Any], spec: Spec | None, family: str, *, hbm_mb: float = 0, version: str = ""
) -> list[tuple[str, str]]:
    """(field, sentence) in the reader's language; what cannot be read at all comes alone."""
    if wrong := settings_form.refusals(data):
        return list(wrong.items())
    read = settings.read(data)
    found = settings.problems(read, spec, family, version)
    if spec is not None and hbm_mb and read.device == "npu":
        found += of_memory(read, spec, hbm_mb)
    return [(name, pick(text)) for name, text in found]


def version_of(stack: str) -> str:
    """vLLM's of a stack's name; '' where it is not known."""
    row = stacks.catalogue().stacks.get(stack)
    return row.vllm if row else ""


# ---------- the command ----------


def lines(argv: Sequence[str]) -> str:
    """The command as one may paste it into a shell, a flag on each line."""
    text = ""
    for word in argv:
        flag = word.startswith("--")
        text += (" \\\n  " if flag else " " if text else "") + shlex.quote(word)
    return text


def example(read: Settings, path: str, address: str = "127.0.0.1") -> dict[str, Any]:
    """Command and variables of the first server; the port is the first that engines take."""
    nodes = tuple(f"NODE-{n}" for n in range(read.nodes)) if read.nodes > 1 else ()
    devices = settings.npus(read) // read.nodes
    place = Place(path, nodes[0] if nodes else address, FIRST_PORT, devices, 0, nodes)
    env = {name: value for name, value in command.environment(read, place).items() if value}
    return {"argv": command.argv(read, place), "env": env}


# ---------- where ----------


def look(trial: Trial) -> Trial:
    """With every server judged, best first. Settings that cannot be read leave it as it is; why placement refuses them
    as a whole is `why`."""
    if settings_form.refusals(trial.data):
        return trial
    read = settings.read(trial.data)
    try:
        found = placement.look(read, trial.artifact, servers=list(trial.servers) or None, spread=trial.spread)
    except ConsoleError as error:
        return dataclasses.replace(trial, why=error)
    return dataclasses.replace(trial, candidates=tuple(found))


# ---------- start ----------


def start(trial: Trial, name: str, *, by: User, note: str = "", reason: str = "") -> Deployment:
    """Make the deployment. A model that was not proved needs `reason`, which its first revision and the audit keep.

    Raises ConsoleError.
    """
    return deployments.create(
        name, trial.artifact, trial.data, by=by, replicas=trial.replicas, servers=trial.servers, spread=trial.spread,
        note=note.strip(), unproved=" ".join(reason.split()) if gate_asks(trial.artifact) else "",
    )  # fmt: skip
