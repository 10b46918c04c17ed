"""The form of a job kind, made from its Params. It only turns what was typed into JSON values; the kind checks them."""

import dataclasses
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from django.http import QueryDict
from django.utils.translation import gettext as _

from console.language import pick
from deployments.models import Server
from deployments.steps import BadParams, Text, read_params

PREFIX = "p-"  # names of parameters in the form; `server`, `kind` and `ticket` have none
MOST_PLACES = 500  # models that a field offers
FULL = "full"  # sent by the whole form: a flag that is not in it was switched off. Short forms leave it out.


@dataclasses.dataclass(frozen=True)
class FormField:
    """One parameter as the page asks for it. `value` is what to show: a text, a bool or a list of texts."""

    name: str
    widget: str
    label: Text
    help: Text | None
    value: Any
    required: bool
    choices: list[str]
    least: Any = None
    most: Any = None
    error: str = ""

    @property
    def input_name(self) -> str:
        return PREFIX + self.name


def read(module: ModuleType, given: QueryDict) -> tuple[dict[str, Any], dict[str, str]]:
    """(params, problems by field) of a sent form; params holds only what was said, defaults fill the rest."""
    params: dict[str, Any] = {}
    problems: dict[str, str] = {}
    for field in dataclasses.fields(module.Params):
        try:
            _read_field(field, given, params)
        except ValueError as error:
            problems[field.name] = str(error)
    if not problems:
        problems = refusals(module, params)
    return params, problems


def refusals(module: ModuleType, params: Mapping[str, Any]) -> dict[str, str]:
    """What the kind says against these values, by field, in the reader's language."""
    try:
        read_params(module.Params, params)
    except BadParams as error:
        return {name: pick(text) for name, text in error.problems}
    return {}


def _read_field(field: "dataclasses.Field[Any]", given: QueryDict, params: dict[str, Any]) -> None:
    name, widget = PREFIX + field.name, field.metadata.get("widget", "text")
    if widget == "flag":
        if name in given or FULL in given:
            params[field.name] = given.get(name, "") not in ("", "0", "false")
        return
    if widget in ("npus", "texts"):
        words = [word.strip() for text in given.getlist(name) for word in text.splitlines()]
        if any(words) or FULL in given:
            params[field.name] = [word for word in words if word]
        return
    text = given.get(name, "").strip()
    if text:
        params[field.name] = _value(widget, text)


def _value(widget: str, text: str) -> Any:
    """Raises ValueError with a sentence."""
    if widget not in ("integer", "number"):
        return text
    plain = text.replace(",", "").replace("_", "")
    try:
        return int(plain) if widget == "integer" else float(plain)
    except ValueError:
        what = _("“%(text)s” is not a whole number.") if widget == "integer" else _("“%(text)s” is not a number.")
        raise ValueError(what % {"text": text[:40]}) from None


def fields(
    module: ModuleType, params: Mapping[str, Any], problems: Mapping[str, str], server: Server | None
) -> list[FormField]:
    """The fields to draw, with the values given or the kind's defaults."""
    filled = getattr(module, "FILLED", ())  # by the console
    shown = [field for field in dataclasses.fields(module.Params) if field.name not in filled]
    return [_field(field, params, problems, server) for field in shown]


def _field(
    field: "dataclasses.Field[Any]", params: Mapping[str, Any], problems: Mapping[str, str], server: Server | None
) -> FormField:
    meta, limits = field.metadata, field.metadata.get("limits", {})
    required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    widget = meta.get("widget", "text")
    choices = [str(choice) for choice in limits.get("choices", [])]
    if widget == "npus" and server:
        choices = [npu.bus_id for npu in server.npus.all() if npu.bus_id]
    if widget == "artifact" and server:
        here = server.places.filter(gone_at=None).order_by("path")
        choices = list(here.values_list("path", flat=True)[:MOST_PLACES])
    value = params.get(field.name, _default(field))
    if widget == "texts":
        value = "\n".join(value)
    return FormField(
        field.name, widget, meta.get("label", Text(field.name, field.name)), meta.get("help"), value, required, choices,
        limits.get("least"), limits.get("most"), problems.get(field.name, ""),
    )  # fmt: skip


def _default(field: "dataclasses.Field[Any]") -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return ""
