"""What is known of failed runs, for those who take their logs away."""

from collections.abc import Sequence
from typing import Any

from django.db.models import Q

from deployments.models import Attempt, EngineLog
from deployments.services import log_zip
from monitoring.models import Diagnosis


@log_zip.diagnoses
def of_logs(heads: Sequence[Attempt | EngineLog]) -> dict[str, Any]:
    """{id of a log: its diagnosis}; nothing of those that were not diagnosed."""
    names = [head.pk for head in heads]
    rows = Diagnosis.objects.filter(Q(attempt__in=names) | Q(piece__in=names))
    return {
        row.attempt_id or row.piece_id or "": {
            "findings": row.findings,
            "right": row.right,
            "note": row.note,
            "made_at": row.made_at,
        }
        for row in rows
    }
