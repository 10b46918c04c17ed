"""Settings of engines as REST describes and checks them; the same judgement as the page's."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _

from console.errors import Invalid, NotFound
from console.language import pick
from deployments.models import Server
from deployments.services import serving_plans, stacks, wizard
from deployments.serving import additional, flags, guide_words, settings, variables
from deployments.steps import BadParams


def schema() -> dict[str, Any]:
    """Every setting, additional key and variable that has a field of its own."""
    return {
        "settings": [_field(name) for name in settings.FIELDS],
        "additional": [
            {"name": name, "type": type(key.default).__name__, "default": key.default, "choices": list(key.choices),
             "help": list(key.help)}
            for name, key in additional.KEYS.items()
        ],
        "variables": [
            {"name": name, "usual": one.usual, "choices": list(one.choices), "least": one.least, "most": one.most,
             "help": list(one.help)}
            for name, one in variables.KNOWN.items()
        ],
        "deprecated_variables": dict(variables.DEPRECATED),
        "refused_variables": sorted({*variables.REFUSED, *variables.REMOVED}),
    }  # fmt: skip


def _field(name: str) -> dict[str, Any]:
    meta = settings.FIELDS[name].metadata
    return {
        "name": name, "type": meta["widget"], "label": list(meta["label"]),
        "help": list(meta["help"]) if meta["help"] else None, "default": settings.default(name),
        "default_on_cpu": settings.default(name, "cpu"), "limits": meta["limits"],
    }  # fmt: skip


def check(
    given: Mapping[str, Any], model: str = "", server: str = "", chip: str = "", guide: str = "", words: str = ""
) -> dict[str, Any]:
    """Problems by field, the settings with what a guide's lines and `words` mean, and the command. Raises ConsoleError
    where a model, server or chip is not known."""
    heard = guide_words.understand(guide)
    data = _merged(given, heard.settings, words)
    spec, path = None, "/models/MODEL"
    if model:
        _name, artifact, spec = serving_plans.find_model(model, "")
        place = artifact.places.present().first() if artifact else None
        path = place.path if place else path
    family, hbm_mb, version = _hardware(server, chip)
    found = wizard.problems(data, spec, family, hbm_mb=hbm_mb, version=version)
    return {
        "ok": not found,
        "problems": [{"field": name, "what": text} for name, text in found],
        "guide": [{**dataclasses.asdict(one), "why": pick(one.why)} for one in heard.heard],
        "family": family,
        "vllm": version,
        **_made(data, path),
    }


def _merged(given: Mapping[str, Any], heard: Mapping[str, Any], words: str) -> dict[str, Any]:
    data = dict(given)
    for name, value in heard.items():
        old = data.get(name)
        data[name] = {**old, **value} if isinstance(value, dict) and isinstance(old, dict) else value
    if words:
        try:
            data["extra"] = flags.split(words)
        except ValueError:
            raise Invalid(
                _("A quotation mark is not closed."), _("Close it, then ask again."), code="bad_words"
            ) from None
    return data


def _hardware(server: str, chip: str) -> tuple[str, float, str]:
    """(family, MiB of one NPU, vLLM's version) of the server, else of the chip; what is not known is '' or 0."""
    if server:
        row = Server.objects.present().filter(name=server).first()
        if row is None:
            raise NotFound(_("There is no server “%(name)s”.") % {"name": server[:63]}, _("Choose one of the list."))
        has = stacks.has_now(stacks.row_of(row))
        version = has.vllm if has else ""
        if not row.npus.exists():
            return "", 0.0, version
        name, hbm_mb, _count, _group = serving_plans.of_server(server)
        return stacks.catalogue().family_of(name) or "", hbm_mb, version
    if not chip:
        return "", 0.0, ""
    family = stacks.catalogue().family_of(chip)
    if family is None:
        raise Invalid(
            _("No chip is called “%(chip)s”.") % {"chip": chip[:40]},
            _("Name it as npu-smi prints it, such as 910B3, Ascend910 or 310P3."),
            code="no_chip",
        )
    return family, 0.0, ""


def _made(data: Mapping[str, Any], path: str) -> dict[str, Any]:
    """What is stored and what runs; nothing where the settings cannot be read."""
    try:
        read = settings.read(data)
    except BadParams:
        return {"settings": None, "npus": None, "command": None, "environment": None}
    made = wizard.example(read, path)
    return {"settings": settings.as_json(read), "npus": settings.npus(read), "command": made["argv"],
            "environment": made["env"]}  # fmt: skip
