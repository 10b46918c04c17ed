"""What the pages of stacks show, made ready for their templates."""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from deployments.services import stacks
from deployments.stacks import verdict
from deployments.stacks.catalogue import Stack
from deployments.stacks.draft import PlannedStep
from deployments.stacks.plan import Plan

STATE_WORDS = {
    "stable": (gettext_lazy("final"), "ok", "state-ok"),
    "rc": (gettext_lazy("release candidate"), "info", "state-info"),
    "withdrawn": (gettext_lazy("withdrawn"), "critical", "state-failed"),
}
# word, colour, shape
VERDICT_WORDS = {
    verdict.MATCHES: (gettext_lazy("matches"), "ok", "state-succeeded"),
    verdict.REACHABLE: (gettext_lazy("reachable"), "info", "state-queued"),
    verdict.CANNOT: (gettext_lazy("cannot"), "critical", "state-failed"),
    verdict.UNKNOWN: (gettext_lazy("unknown"), "stale", "state-unknown"),
}
DRIFT_WORDS = {
    "in_line": (gettext_lazy("as wished"), "ok", "state-succeeded"),
    "drift": (gettext_lazy("drifted"), "warning", "state-warning"),
    "blocked": (gettext_lazy("cannot be reached"), "critical", "state-failed"),
    "gone": (gettext_lazy("stack is gone"), "critical", "state-critical"),
    "unknown": (gettext_lazy("unknown"), "stale", "state-unknown"),
}
STEP_WORDS = {
    "satisfied": (gettext_lazy("satisfied"), "ok", "state-succeeded"),
    "run": (gettext_lazy("to run"), "info", "state-queued"),
    "look": (gettext_lazy("looks first"), "stale", "state-unknown"),
}
LAYER_WORDS = {
    "host": gettext_lazy("Host layer: driver and firmware"),
    "cann": gettext_lazy("CANN"),
    "python": gettext_lazy("Python environment"),
    "container": gettext_lazy("Container"),
}


@dataclass(frozen=True)
class Line:
    """One stack in the catalogue. `tally` is [(verdict, number)] without those that are 0."""

    stack: Stack
    driver_min: str | None
    paired: tuple[str, ...]
    tally: list[tuple[str, int]]


def line(stack: Stack, tally: Mapping[str, int]) -> Line:
    known = stacks.catalogue()
    row = known.cann.get(stack.cann.lower())
    counted = [(word, tally.get(word, 0)) for word in verdict.WORDS if tally.get(word)]
    return Line(stack, known.driver_min(stack), row.hdk_paired if row else (), counted)


def facts(stack: Stack) -> list[tuple[str, str]]:
    """[(label, value)]; what is not known is “—”, what does not belong to the stack is left out."""
    known = stacks.catalogue()
    row = known.cann.get(stack.cann.lower())
    least = known.driver_min(stack)
    rows: list[tuple[str, str | None]] = [
        ("vLLM-Ascend", stack.vllm_ascend),
        ("vLLM", stack.vllm),
        ("Python", stack.python),
        ("CANN", stack.cann),
        ("NNAL", stack.nnal),
        ("torch", stack.torch),
        ("torch-npu", stack.torch_npu),
        ("triton-ascend", stack.triton_ascend),
        ("Mooncake", stack.mooncake),
        (_("Further pins"), ", ".join(stack.pins)),
        (_("Oldest driver"), f"≥ {least}" if least else least),
        (_("Driver it is paired with"), ", ".join(row.hdk_paired) if row else ""),
        ("glibc", f"≥ {stack.glibc_min}" if stack.glibc_min else stack.glibc_min),
        (_("Released"), stack.released),
    ]
    rows += [(f"CANN ({family})", version) for family, version in stack.cann_by_family]
    return [(label, "—" if value is None else value) for label, value in rows if value != ""]


def drift_counts(found: Sequence[stacks.Drift], servers: int) -> list[tuple[str, int]]:
    """[(state, number)] in the order of the words, and how many have no wish last as ("", n)."""
    counted = Counter(one.state for one in found)
    made = [(state, counted[state]) for state in DRIFT_WORDS if counted[state]]
    return [*made, ("", servers - len(found))]


def layers(plan: Plan) -> list[dict[str, Any]]:
    """[{title, steps: [{step, command, env}]}] in the order in which they run."""
    made: list[dict[str, Any]] = []
    for step in plan.steps:
        if not made or made[-1]["layer"] != step.layer:
            made.append({"layer": step.layer, "title": LAYER_WORDS[step.layer], "steps": []})
        made[-1]["steps"].append({"step": step, "command": command(step)})
    return made


def command(step: PlannedStep) -> str:
    """The command as a shell would take it; '' for what a person does."""
    env = [f"{name}={shlex.quote(value)}" for name, value in step.env]
    return " ".join([*env, *(word if word == "{python}" else shlex.quote(word) for word in step.argv)])
