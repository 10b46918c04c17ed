"""What the page of a new deployment shows, made of what was said: plans, servers, settings, the command."""

from typing import Any

from deployments.models import Artifact
from deployments.services import settings_form, stacks, wizard
from deployments.services.settings_form import Typed
from deployments.services.wizard import Card, Trial
from deployments.serving import guide_words, limits, planner, settings
from deployments.steps import Text

MOST_MODELS = 500
MOST_ROWS = 40
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


def models() -> list[Artifact]:
    """Those that lie on a server and that an engine may load."""
    here = Artifact.objects.filter(format__in=("hf", "quantized"), places__gone_at=None, places__isnull=False)
    return list(here.distinct().order_by("simulated", "name")[:MOST_MODELS])


def context(trial: Trial, typed: Typed, cards: list[Card], *, told: str = "") -> dict[str, Any]:
    """Problems are by field; `path` is where the model lies on the first server that fits."""
    looked = wizard.look(trial)
    best = next((one for one in looked.candidates if one.fits), None)
    family, hbm_mb = _chip(best, cards, trial)
    version = wizard.version_of(best.stack) if best else ""
    found = dict(reversed(wizard.problems(trial.data, trial.spec, family, hbm_mb=hbm_mb, version=version)))
    found = {**found, **typed.problems}
    heard = typed.heard or guide_words.understand(told).heard
    shown = looked.candidates[:MOST_ROWS]
    return {
        "artifact": trial.artifact,
        "spec": trial.spec,
        "trial": looked,
        "cards": [_shown(card, trial) for card in cards],
        "refusals": [] if cards else wizard.refusals(trial.spec, [], {}) if trial.spec else [],
        "problems": found,
        "problem_rows": [(settings.label(name), text) for name, text in found.items() if name in settings.FIELDS],
        "heard": heard,
        "groups": settings_form.groups(trial.data, found),
        "candidates": shown,
        "left_out": len(looked.candidates) - len(shown),
        "fitting": [one for one in looked.candidates if one.fits][: trial.replicas],
        "best": best,
        "version": version,
        **_command(trial, best),
    }


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
    read = settings.read(trial.data)
    path = (best.path if best else "") or _path(trial.artifact)
    made = wizard.example(read, path)
    return {"command": made["argv"], "env": made["env"], "npus": settings.npus(read), "read": read, "path": path}


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
        "way": limits.words(plan.engine) if plan else "CPU",
        "rects": rects(plan) if plan else [],
        "chosen": _same(said, card.settings),
    }


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
