"""Whether a model was proved: what its evaluation against its parent came to."""

from django.db.models import Q

from deployments.models import Artifact

# "promoted" holds who has let it through all the same, and why.
PROMOTED = Q(gate__has_key="promoted") & ~Q(gate__promoted=None) & ~Q(gate__promoted=False)
PASSED = Q(gate__passed=True) | PROMOTED
# What is nobody's child and as it was made. Quantized and converted ones whose parent is not known are none.
ORIGINAL = Q(parent__isnull=True, format="hf")
# What a list may be filtered by.
GATES = {
    "promotable": PASSED,
    "failed": Q(gate__isnull=False) & ~PASSED,
    "not_evaluated": Q(gate__isnull=True) & ~ORIGINAL,
    "original": Q(gate__isnull=True) & ORIGINAL,
}


def state(artifact: Artifact) -> str:
    """A key of GATES: `original` is nobody's child, and so what others are measured by."""
    gate = artifact.gate
    if not isinstance(gate, dict):
        return "original" if artifact.parent_id is None and artifact.format == "hf" else "not_evaluated"
    return "promotable" if gate.get("passed") is True or gate.get("promoted") not in (None, False) else "failed"
