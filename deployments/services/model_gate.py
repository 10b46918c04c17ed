"""Whether a model was proved: what its evaluation against its parent came to."""

from django.db.models import Q

from deployments.models import Artifact

# "promoted" holds who has let it through all the same, and why.
PROMOTED = Q(gate__has_key="promoted") & ~Q(gate__promoted=None) & ~Q(gate__promoted=False)
PASSED = Q(gate__passed=True) | PROMOTED
# What a list may be filtered by.
GATES = {
    "promotable": PASSED,
    "failed": Q(gate__isnull=False) & ~PASSED,
    "not_evaluated": Q(gate__isnull=True, parent__isnull=False),
    "original": Q(gate__isnull=True, parent__isnull=True),
}


def state(artifact: Artifact) -> str:
    """A key of GATES: `original` is nobody's child, and so what others are measured by."""
    gate = artifact.gate
    if not isinstance(gate, dict):
        return "not_evaluated" if artifact.parent_id else "original"
    return "promotable" if gate.get("passed") is True or gate.get("promoted") not in (None, False) else "failed"
