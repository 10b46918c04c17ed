"""What the page of a new deployment shows, made of what was said: plans, servers, settings, the command."""

from collections.abc import Sequence
from typing import Any

from console.errors import ConsoleError
from deployments.models import Artifact, Deployment, Server
from deployments.services import revisions, settings_form, stacks, wizard
from deployments.services.settings_form import Typed
from deployments.services.wizard import Card, Trial
from deployments.serving import guide_words, limits, planner, settings, sizing, unit
from deployments.serving.guide_words import Heard
from deployments.serving.placing import Candidate
from deployments.stacks import verdict
from deployments.stacks.catalogue import newest_first
from deployments.steps import Text

MOST_MODELS = 500
UNIT, PREFIX, ACCOUNT = "eN", "/opt/ascend-console", "ascend-console"  # as the agent is installed by default
MOST_ROWS = 40
MOST_NAMES = 3
OTHER_KIND = {"simulated", "npus"}  # such a server would not do with a stack either
PARTS: dict[str, Text] = {
    "weights": Text("权重", "Weights"),
    "kv": Text("KV 缓存", "KV cache"),
    "activations": Text("激活", "Activations"),
    "graphs": Text("图", "Graphs"),
    "hccl": Text("HCCL 缓冲", "HCCL buffers"),
    "runtime": Text("运行时", "Runtime"),
    "reserve": Text("留空", "Left free"),
    "invisible": Text("驱动与固件", "Driver and firmware"),
}


def models(*, simulated: bool | None = None, present: Artifact | None = None) -> list[Artifact]:
    """Those that lie on a server and that an engine may load, and the `present` one wherever it is: a form without it
    would take the first of the others."""
    here = Artifact.objects.filter(format__in=("hf", "quantized"), places__gone_at=None, places__isnull=False)
    here = here if simulated is None else here.filter(simulated=simulated)
    found = list(here.distinct().order_by("simulated", "name")[:MOST_MODELS])
    return found if present is None or present in found else [present, *found]


def context(trial: Trial, typed: Typed, cards: list[Card], *, told: str = "") -> dict[str, Any]:
    """Problems are by field; `path` is where the model lies on the first server that fits."""
    looked = wizard.look(trial)
    best = next((one for one in looked.candidates if one.fits), None)
    family, hbm_mb = _chip(best, cards, trial)
    version = wizard.version_of(best.stack) if best else ""
    found = dict(reversed(wizard.problems(trial.data, trial.spec, family, hbm_mb=hbm_mb, version=version)))
    found = {**found, **typed.problems}
    shown = looked.candidates[:MOST_ROWS]
    return {
        "artifact": trial.artifact,
        "spec": trial.spec,
        "trial": looked,
        "cards": [_shown(card, trial) for card in cards],
        "refusals": [] if cards else wizard.refusals(trial.spec, [], {}) if trial.spec else [],
        "problems": found,
        "problem_rows": _rows(found),
        "heard": heard(typed, told),
        "groups": settings_form.groups(trial.data, found),
        "candidates": shown,
        "installs": installs(shown, trial.data.get("device", "npu")),
        "left_out": len(looked.candidates) - len(shown),
        "fitting": [one for one in looked.candidates if one.fits][: trial.replicas],
        "stackless": stackless(looked.candidates),
        "best": best,
        "version": version,
        **_command(trial, best),
    }


def stackless(candidates: Sequence[Candidate]) -> str:
    """The first servers that wait for a stack, not for room, and how many more; '' where one could start without."""
    if any(one.fits for one in candidates):
        return ""
    names = _stackless(candidates)
    more = f" (+{len(names) - MOST_NAMES})" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def _stackless(candidates: Sequence[Candidate]) -> list[str]:
    return [one.server for one in candidates if "stack" in one.codes and not OTHER_KIND & set(one.codes)]


def installs(candidates: Sequence[Candidate], device: str) -> dict[str, str]:
    """{server that lacks a stack: the newest that can be brought to it, a release before candidates}.

    One that matches is none of them: its packages lie in an environment that is somebody else's, which `install` leaves
    alone, so it would bring nothing."""
    lacking = _stackless(candidates)
    rows = [stacks.row_of(server) for server in Server.objects.filter(name__in=lacking)] if lacking else []
    offered = [row for row in newest_first(stacks.catalogue().stacks) if (row.kind == "cpu") == (device == "cpu")]
    offered.sort(key=lambda row: row.state != "stable")
    found = {
        row.name: next((one.name for one in offered if stacks.verdict_of(row, one).word == verdict.REACHABLE), "")
        for row in rows
    }
    return {name: stack for name, stack in found.items() if stack}


def heard(typed: Typed, told: str) -> tuple[Heard, ...]:
    """What lines of a guide meant, also those of the step before."""
    return typed.heard or guide_words.understand(told).heard


def changed(
    deployment: Deployment, artifact: Artifact | None, data: dict[str, Any], typed: Typed, *, how: str, reason: str
) -> dict[str, Any]:
    """Of a change: problems by field, what differs and which replicas restart; `why` where it cannot be made."""
    spec = wizard.spec_of(artifact) if artifact else None
    found = {**dict(reversed(wizard.problems(data, spec, ""))), **typed.problems}
    effects, why = None, None
    if not found:
        try:
            effects = revisions.plan(deployment, data, artifact=artifact, how=how, unproved=reason)
        except ConsoleError as error:
            why = error
    made = {} if artifact is None or settings_form.refusals(data) else _made(data, _path(artifact))
    return {
        "artifact": artifact, "spec": spec, "problems": found, "effects": effects, "why": why,
        "problem_rows": _rows(found), "groups": settings_form.groups(data, found), **made,
    }  # fmt: skip


def _rows(found: dict[str, str]) -> list[tuple[Text, str]]:
    return [(settings.label(name), text) for name, text in found.items() if name in settings.FIELDS]


def _chip(best: Any, cards: list[Card], trial: Trial) -> tuple[str, float]:
    """(family, MiB of one NPU) of where it would run; of the first plan where nothing fits yet."""
    kinds = [card.hardware for card in cards if card.hardware]
    for kind in kinds:
        if best and best.server in kind.servers:
            return kind.family, kind.hbm_mb
    if best and best.chip:
        return stacks.catalogue().family_of(best.chip) or "", 0
    if trial.data.get("device") == "cpu" or not kinds:
        return "", 0
    return kinds[0].family, kinds[0].hbm_mb


def _command(trial: Trial, best: Any) -> dict[str, Any]:
    if settings_form.refusals(trial.data):
        return {}
    return _made(trial.data, (best.path if best else "") or _path(trial.artifact))


def _made(data: dict[str, Any], path: str) -> dict[str, Any]:
    """Command and variables; the unit of systemd where that is how it runs, or may run."""
    read = settings.read(data)
    made = wizard.example(read, path)
    with_unit = read.route in ("auto", "systemd")
    return {
        "command": made["argv"], "text": wizard.lines(made["argv"]), "env": made["env"],
        "npus": settings.npus(read), "read": read, "path": path,
        "unit": unit.text(UNIT, path, prefix=PREFIX, account=ACCOUNT) if with_unit else "",
    }  # fmt: skip


def _path(artifact: Artifact) -> str:
    place = artifact.places.present().first()
    return place.path if place else f"/models/{artifact.name}"


def _shown(card: Card, trial: Trial) -> dict[str, Any]:
    """A card with its stacked bar of 100 units; `chosen` where the settings are what it means."""
    said = {name: trial.data[name] for name in wizard.PLANNED if name in trial.data}
    plan = card.plan
    return {
        "key": card.key,
        "card": card,
        "goals": [planner.GOALS[goal] for goal in plan.goals] if plan else [],
        "plan": plan,
        "longest": plan.longest_of(trial.spec) if plan and trial.spec else None,
        "tokens": _tokens(card, trial),
        "way": limits.words(plan.engine) if plan else "CPU",
        "rects": rects(plan) if plan else [],
        "chosen": _same(said, card.settings),
    }


def _tokens(card: Card, trial: Trial) -> int | None:
    """What the cache of the plan without NPU holds."""
    if card.plan or trial.spec is None:
        return None
    read = settings.read(card.settings)
    return sizing.tokens_on_cpu(trial.spec, read.kv_cache_gib, read.dtype)


def _same(said: dict[str, Any], meant: dict[str, Any]) -> bool:
    try:
        return settings.as_json(settings.read(said)) == meant
    except ValueError:
        return False


def rects(plan: planner.Plan) -> list[dict[str, Any]]:
    """The parts of the memory as a stacked bar of 100 units."""
    made: list[dict[str, Any]] = []
    at = 0.0
    for name, mb in plan.memory.parts():
        percent = 100 * mb / plan.memory.total
        if mb >= 1:
            place = {"x": f"{at:.3f}", "width": f"{percent:.3f}"}
            made.append({"name": name, "title": PARTS[name], "gib": mb / 1024, "percent": percent, **place})
        at += percent
    return made
