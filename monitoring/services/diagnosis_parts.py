"""What is known of failed runs, for those who take their logs away."""

from collections.abc import Sequence
from typing import Any

from deployments.models import Attempt, EngineLog
from deployments.services import log_zip
from monitoring.models import Diagnosis


@log_zip.diagnoses
def of_logs(heads: Sequence[Attempt | EngineLog]) -> dict[str, Any]:
    """{id of an attempt: its diagnosis}; nothing of those that were not diagnosed."""
    rows = Diagnosis.objects.filter(attempt__in=[head.pk for head in heads if isinstance(head, Attempt)])
    return {
        row.attempt_id: {"findings": row.findings, "right": row.right, "note": row.note, "made_at": row.made_at}
        for row in rows
    }
