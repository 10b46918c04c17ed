"""How models are shown: sizes in thousands, counts of parameters, states as word, shape and colour."""

from typing import Any

from django import template
from django.db.models import Q
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from console.templatetags.frame import icon
from deployments.artifacts import progress
from deployments.models import Artifact, Job, Via

register = template.Library()

TELL_OF_MODELS = ("model_scan", "download", "model_copy", "sample_model", "quantize", "convert")
MOST_TOLD = 6

STATES: dict[str, tuple[str, str, Any]] = {
    "whole": ("ok", "state-ok", _("Whole")),
    "incomplete": ("warning", "state-warning", _("Not whole")),
    "gone": ("stale", "state-stale", _("No longer there")),
    "promotable": ("ok", "state-succeeded", _("Promotable")),
    "failed": ("critical", "state-failed", _("Below its budget")),
    "not_evaluated": ("", "state-unknown", _("Not evaluated")),
    "original": ("", "state-unknown", _("Original")),
}
FORMATS = {
    "hf": "Hugging Face", "quantized": _("Quantized"), "adapter": _("Adapter"), "om": "OM", "mindir": "MindIR",
    "onnx": "ONNX", "air": "AIR", "unknown": _("Unknown"),
}  # fmt: skip
PROMPT_KINDS = {
    "code": _("code"), "fact": _("fact"), "format": _("format"), "reasoning": _("reasoning"), "summary": _("summary"),
    "translation": _("translation"), "writing": _("writing"),
}  # fmt: skip
NOT_FOR_VLLM = ("om", "mindir", "onnx", "air")


@register.simple_tag
def model_state(name: str, css: str = "state") -> SafeString:
    """A state of a model or its gate as shape, colour and word."""
    look, shape, word = STATES.get(name, STATES["gone"])
    return format_html('<span class="{} {}">{}<span>{}</span></span>', css, look, icon(shape, ""), word)


@register.simple_tag
def models_told(job: Job) -> list[Artifact]:
    """Models that a job has made or found, the first few, so that its page leads on to them."""
    if job.kind not in TELL_OF_MODELS:
        return []
    return list(Artifact.objects.filter(Q(made_by=job) | Q(places__job=job)).distinct()[:MOST_TOLD])


@register.filter
def model_word(name: str) -> str:
    return str(STATES[name][2]) if name in STATES else name


@register.filter
def amount(count: int | None) -> str:
    """Bytes in thousands, as disks are sold; "—" where it is unknown."""
    return "—" if not count else progress.amount(count)


@register.filter
def billions(count: float | None) -> str:
    """A count of parameters in 10⁹: "8.19 B"; "—" where it is unknown."""
    if not count:
        return "—"
    return f"{count / 1e9:.3g} B" if count >= 1e8 else f"{count / 1e6:.3g} M"


@register.filter
def format_word(name: str) -> str:
    return str(FORMATS.get(name, name))


@register.filter
def prompt_kind(name: str) -> str:
    """What a bundled prompt tries; the word of an operator's own set as it is."""
    return str(PROMPT_KINDS.get(name, name))


@register.filter
def via_word(name: str) -> str:
    return str(Via(name).label) if name in Via.values else name


@register.filter
def is_for_vllm(name: str) -> bool:
    return name not in NOT_FOR_VLLM


@register.filter
def counted(value: Any) -> str:
    """A number with its thousands set apart, words as they are."""
    return f"{value:,}" if type(value) is int else str(value)


@register.filter
def gigabytes(value: float | None) -> str:
    if value is None:
        return "—"
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


@register.filter
def gib(mb: float | None) -> str:
    """MiB as GiB."""
    return "—" if mb is None else f"{mb / 1024:,.1f}"
