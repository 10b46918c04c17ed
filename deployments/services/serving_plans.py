"""Plans for serving a model: which model and which NPUs somebody means, and what the planner says of them."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from console.errors import Invalid, NotFound
from console.language import pick
from deployments.artifacts import BadModel
from deployments.artifacts import read as models
from deployments.models import Artifact, ArtifactPlace, Server
from deployments.services import artifacts, model_catalogue, resets, stacks
from deployments.serving import limits, loaders, planner
from deployments.serving.loaders import Loaded
from deployments.serving.planner import Answer, Plan, Wish
from deployments.serving.sizing import UTILIZATION
from deployments.serving.spec import QUANT_BYTES, Spec, Unknown, completed, from_known, from_summary, quantized

QUANTS = tuple(QUANT_BYTES)
DTYPES = ("auto", "bfloat16", "float16")
MOST_HBM_MB, MOST_NPUS, MOST_CONTEXT, MOST_AT_ONCE, MOST_SERVERS = 1_048_576, 64, 100_000_000, 100_000, 1000

# What the form calls the fields, beside their names in REST and the command.
LABELS = {
    "hbm_mb": gettext_noop("Memory of one, MB"),
    "npus": gettext_noop("NPUs"),
    "max_model_len": gettext_noop("Context, tokens"),
    "concurrency": gettext_noop("Requests to plan for"),
    "servers": gettext_noop("Such servers"),
    "quant": gettext_noop("As it would be quantized"),
}


def label(name: str) -> str:
    return f"{_(LABELS[name])} ({name})" if name in LABELS else name


@dataclass(frozen=True)
class Asked:
    """What was asked for, checked. `model` is what names it on pages; `artifact` is None for one that is only known."""

    model: str
    artifact: Artifact | None
    spec: Spec
    wish: Wish
    chip: str


def ask(given: Mapping[str, Any], *, local: bool = False) -> Asked:
    """Of model, chip, hbm_mb, npus, max_model_len, concurrency, quant, dtype, group and utilization; with `server` its
    NPUs are taken. `local`: a path may be a folder of this machine that was never looked at. Raises Invalid, NotFound.
    """
    quant = _choice(given, "quant", ("", *QUANTS), "")
    words = str(given.get("model") or "").strip()
    name, artifact, spec = (_in_folder(words, quant) if local else None) or find_model(words, quant)
    chip, hbm_mb, npus, group = _npus(given)
    family = stacks.catalogue().family_of(chip)
    if family is None:
        raise Invalid(
            _("No chip is called “%(chip)s”.") % {"chip": chip[:40]},
            _("Name it as npu-smi prints it, such as 910B3, Ascend910 or 310P3."),
            code="no_chip",
        )
    wish = Wish(
        family=family,
        hbm_mb=hbm_mb,
        npus=npus,
        group=group,
        max_model_len=_whole(given, "max_model_len", MOST_CONTEXT, None),
        concurrency=_whole(given, "concurrency", MOST_AT_ONCE, None),
        dtype=_choice(given, "dtype", DTYPES, "auto"),
        utilization=_share(given),
        servers=_whole(given, "servers", MOST_SERVERS, 1) or 1,
    )
    return Asked(name, artifact, spec, wish, chip)


def loaded_by(asked: Asked) -> Loaded:
    """Which releases of vLLM-Ascend load the model on these chips, as their documents and the stacks say."""
    row = model_catalogue.models().rows.get(asked.model) or model_catalogue.like(asked.model)
    return loaders.of(row.support if row else None, asked.wish.family, stacks.catalogue().stacks.values())


def answer(asked: Asked) -> Answer:
    return planner.make(asked.spec, asked.wish)


def find_model(words: str, quant: str) -> tuple[str, Artifact | None, Spec]:
    """(name, artifact, spec) of an artifact's number, name or path, or of an id that the catalogue knows, as `quant`.

    Raises Invalid, NotFound.
    """
    if not words:
        raise Invalid(
            _("No model is named."), _("Name a model that lies here, or one of the catalogue."), code="no_model"
        )
    by: dict[str, Any] = {"pk": int(words)} if re.fullmatch(r"\d{1,9}", words) else {"name": words}
    if words.startswith("/"):
        by = {"places__path": words.rstrip("/") or "/", "places__gone_at": None}
    row = model_catalogue.models().rows.get(words)
    artifact = None if row else Artifact.objects.filter(**by).order_by("simulated", "-pk").first()
    try:
        if artifact:
            spec = from_summary(artifact.summary, name=artifact.name, weight_bytes=artifact.bytes)
            like = model_catalogue.like(artifact.name)
            return artifact.name, artifact, quantized(completed(spec, like) if like else spec, quant)
        if row or (row := model_catalogue.like(words)):
            return row.id, None, from_known(row, quant)
    except Unknown as error:
        raise Invalid(
            _("Of “%(model)s” it is not known what %(field)s is, so it cannot be planned.")
            % {"model": words[:100], "field": error},
            _("Look for the model again, or add the figure to the site's catalogue of models."),
            code="unknown_figure",
        ) from error
    raise NotFound(
        _("There is no model “%(model)s”.") % {"model": words[:100]},
        _("Name a model that lies here, or one of the catalogue."),
        code="no_model",
    )


def _in_folder(words: str, quant: str) -> tuple[str, None, Spec] | None:
    """Of a folder that no row knows; None where it is none. Raises Invalid."""
    folder = Path(words)
    known = ArtifactPlace.objects.filter(path=str(folder), gone_at=None).exists()
    if not folder.is_absolute() or not folder.is_dir() or known:
        return None
    try:
        model = models.read(folder)
        spec = from_summary(artifacts.summary(model.as_json()), name=folder.name, weight_bytes=model.bytes)
    except (BadModel, Unknown) as error:
        what = pick(error.text) if isinstance(error, BadModel) else f"{folder}: {error}"
        raise Invalid(what, _("Name a folder that holds a whole model."), code="no_model") from error
    like = model_catalogue.like(folder.name)
    return folder.name, None, quantized(completed(spec, like) if like else spec, quant)


def _npus(given: Mapping[str, Any]) -> tuple[str, float, int, int]:
    """(chip, MiB of each, how many, how many in one HCCS group) as given, or those of the server."""
    name = str(given.get("server") or "").strip()
    if name:
        return of_server(name)
    chip = str(given.get("chip") or "").strip()
    hbm_mb = _whole(given, "hbm_mb", MOST_HBM_MB, 65_536)
    npus = _whole(given, "npus", MOST_NPUS, 8)
    return chip or "910B3", float(hbm_mb or 0), npus or 0, _whole(given, "group", MOST_NPUS, 0) or 0


def of_server(name: str) -> tuple[str, float, int, int]:
    """Of the chips that most of a server's NPUs are. Raises NotFound, Invalid."""
    server = Server.objects.present().filter(name=name).first()
    if server is None:
        raise NotFound(_("There is no server “%(name)s”.") % {"name": name[:63]}, _("Choose one of the list."))
    npus = list(server.npus.all())
    names = Counter(npu.name for npu in npus)
    if not names:
        raise Invalid(
            _("%(server)s has no NPU.") % {"server": name},
            _("Choose another server, or leave it out and name a chip."),
            code="no_npus",
        )
    chip = names.most_common(1)[0][0]
    mine = [npu for npu in npus if npu.name == chip]
    sizes = [npu.memory_total_mb for npu in mine if npu.memory_total_mb]
    if not sizes:
        raise Invalid(
            _("The NPUs of %(server)s have not told how much memory they have.") % {"server": name},
            _("Leave the server out, and name chip and memory."),
            code="no_memory_known",
        )
    group = max(len([one for one in resets.together(server, npu) if one in mine]) for npu in mine)
    return chip, float(min(sizes)), len(mine), group


def _whole(given: Mapping[str, Any], name: str, most: int, default: int | None) -> int | None:
    value = given.get(name)
    if value in (None, ""):
        return default
    try:
        number = int(str(value).replace(",", "").replace("_", ""))
    except ValueError:
        number = -1
    if not 0 < number <= most:
        raise Invalid(
            _("%(name)s must be a whole number from 1 to %(most)s.") % {"name": label(name), "most": f"{most:,}"},
            _("Correct it, then ask again."),
            code="bad_number",
        )
    return number


def _share(given: Mapping[str, Any]) -> float:
    value = given.get("utilization")
    if value in (None, ""):
        return UTILIZATION
    try:
        number = float(str(value))
    except ValueError:
        number = 0.0
    if not 0.1 <= number <= 1:
        raise Invalid(
            _("The share of memory must be between 0.1 and 1."),
            _("0.9 is usual; it is a share of the memory, not a load."),
            code="bad_share",
        )
    return number


def _choice(given: Mapping[str, Any], name: str, choices: tuple[str, ...], default: str) -> str:
    value = str(given.get(name) or default)
    if value not in choices:
        raise Invalid(
            _("%(name)s must be one of %(choices)s.")
            % {"name": label(name), "choices": ", ".join(filter(None, choices))},
            _("Correct it, then ask again."),
            code="bad_choice",
        )
    return value


def as_json(asked: Asked, found: Answer) -> dict[str, Any]:
    """As REST and `manage.py plan --json` tell it; memory in MiB of one NPU."""
    wish = asked.wish
    return {
        "model": asked.model,
        "artifact": asked.artifact.pk if asked.artifact else None,
        "weights_mb": round(asked.spec.weight_mb),
        "quant": asked.spec.quant,
        "supported": asked.spec.supported,
        "loaded_by": _loaded_json(loaded_by(asked)),
        "chip": asked.chip,
        "family": wish.family,
        "hbm_mb": wish.hbm_mb,
        "npus": wish.npus,
        "servers": wish.servers,
        "max_model_len": planner.context(asked.spec, wish),
        "plans": [_plan_json(plan) for plan in found.plans],
        "refusals": [
            {"way": one.way, "code": one.code, "why": pick(one.why), "do": pick(one.do)} for one in found.refusals
        ],
    }


def _loaded_json(found: Loaded) -> dict[str, Any]:
    return {"level": found.level, "stacks": list(found.stacks), "what": pick(found.text)}


def _plan_json(plan: Plan) -> dict[str, Any]:
    engine, memory = plan.engine, plan.memory
    return {
        "goals": list(plan.goals),
        "way": limits.words(engine),
        "npus": engine.npus,
        "replicas": plan.replicas,
        "tensor_parallel_size": engine.tp,
        "pipeline_parallel_size": engine.pp,
        "data_parallel_size": engine.dp,
        "nodes": plan.nodes,
        "expert_parallel": engine.ep,
        "max_model_len": plan.max_model_len,
        "longest": plan.longest,
        "requests_at_once": round(plan.at_once, 1),
        "kv_bytes_per_token": round(memory.kv_bytes_per_token),
        "memory_mb": {name: round(mb) for name, mb in memory.parts()},
        "flags": list(plan.flags),
        "notes": [pick(note) for note in plan.notes],
    }
