"""Convert models: what a job of it is filled in with, and why it cannot be queued."""

from typing import Any

from django.utils.translation import gettext as _

from console.errors import Conflict, Invalid
from console.language import pick
from deployments.artifacts import convert_words, paths, quant_checks
from deployments.models import Server
from deployments.services import filling, quantizing, stacks

TWO_NAMES = ("A3",)  # their soc_version is made of two names of npu-smi, of which facts have one


def fill(server: Server, params: dict[str, Any]) -> dict[str, Any]:
    """Raises Invalid for words that stand for no way or a path that cannot be, Conflict for what the server lacks."""
    try:
        how = convert_words.read(str(params.get("how") or "fp8_bf16"))
    except convert_words.NoWay as error:
        raise Invalid(
            pick(error.text), _("Choose one of the conversions, then queue the job again."), code="no_way"
        ) from error
    model, target = str(params.get("model", "")), str(params.get("target", ""))
    tools, activate, _version = quantizing.tools_of(server)
    if convert_words.WAYS[how].tool == "msmodelslim":
        wrong = quant_checks.path_problem(model, target)
        if not tools:
            raise Conflict(
                _("The stack in use on %(server)s has no msModelSlim.") % {"server": server.name},
                _("Run the job “Install msModelSlim” first; where no stack is in use, install one."),
                code="no_msmodelslim",
            )
    else:
        wrong = paths.problem(model) or paths.problem(target)
        if not model.lower().endswith(convert_words.WAYS[how].takes):
            raise Invalid(
                _("%(how)s takes a file that ends with %(ending)s.")
                % {"how": how, "ending": convert_words.WAYS[how].takes},
                _("Give the whole path of that file on the server."),
                code="wrong_file",
            )
    if wrong:
        raise Invalid(pick(wrong), _("Change it, then queue the job again."), code="bad_path")
    chip = _chip(server, how, str(params.get("soc_version", "")))
    folders = {"model": paths.tidy(model), "target": paths.tidy(target)}
    return {**folders, "how": how, "tools": tools, "activate": activate or stack_activate(server), "chip": chip}


def _chip(server: Server, how: str, given: str) -> str:
    """The name that npu-smi prints, for atc. Raises Conflict where nobody knows what to compile for."""
    has = stacks.row_of(server).has
    if convert_words.WAYS[how].tool != "atc" or given:
        return has.chip or ""
    if not has.chip or has.family in TWO_NAMES:
        raise Conflict(
            _("What atc is to compile for is not known on %(server)s.") % {"server": server.name},
            _(
                "Give the SoC version: Ascend and the name that npu-smi prints; on A3 the names of chip and NPU, "
                "with _ between."
            ),
            code="no_soc",
        )
    return has.chip


def stack_activate(server: Server) -> str:
    """The activate file of the stack in use, which reads CANN's set_env.sh; '' where there is none."""
    has = stacks.row_of(server).has
    return f"{has.root}/{has.current}/activate" if has.current else ""


filling.FILLERS |= {"convert": fill}
