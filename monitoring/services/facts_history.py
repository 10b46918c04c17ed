"""What changed on a server from one set of facts to the next, by itself or by a job, into its history."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from django.db.models import Q
from django.utils import timezone

from deployments import kinds
from deployments.models import Job, Server, ServerChange
from deployments.services import history

PLAIN = (
    "os", "kernel", "glibc", "cpu_model", "cpus", "mem_total_mb", "driver", "firmware", "cann", "stack_current",
    "agent", "boot_id",
)  # fmt: skip
BY_JOBS = frozenset({"driver", "firmware", "cann", "nnal", "stack_current", "boot_id"})  # what jobs of ours change
TOLD_WITHIN = timedelta(minutes=2)  # of a job's end, by the agent
LISTS = {"addresses": "address", "pci": "bus_id", "nnal": "version"}


def changes(server: Server, facts: Mapping[str, Any]) -> list[ServerChange]:
    """Rows, not yet written. `server` still holds the facts of before.

    Nothing where there were none before, nor for what a newer agent tells for the first time or could not read now.
    """
    before = server.facts
    if not before:
        return []
    old, new = shown(before), shown(facts)
    told = facts.get("unknown")
    unreadable: dict[str, Any] = told if isinstance(told, dict) else {}
    fields = [name for name in (*PLAIN, *LISTS) if name in before and name in facts]
    rows = [
        history.change(server, name, old[name], new[name])
        for name in fields
        if old[name] != new[name]
        and not (new[name] is None and name in unreadable and not _not_found(unreadable[name]))
    ]
    hostname = str(facts.get("hostname") or "")[:255]
    if hostname and server.hostname and hostname != server.hostname:
        rows.insert(0, history.change(server, "hostname", server.hostname, hostname))
    _name_the_job(server, rows)
    return rows


def _name_the_job(server: Server, rows: Sequence[ServerChange]) -> None:
    """Beside what a job changes: who asked for the one that runs, or has just ended, and its number."""
    found = [row for row in rows if row.field in BY_JOBS]
    if not found:
        return
    able = [name for name in kinds.names() if getattr(kinds.load(name), "CHANGES_FACTS", False)]
    under_way = Q(started_at__isnull=False) & (Q(ended_at=None) | Q(ended_at__gte=timezone.now() - TOLD_WITHIN))
    job = Job.objects.filter(under_way, server=server, kind__in=[*able, "reboot"]).order_by("-started_at").first()
    if job is None:
        return
    for row in found:
        row.by, row.by_name = job.requester, job.requester.username if job.requester else ""
        row.reason, row.ticket = f"#{job.pk}", job.ticket


def _not_found(reason: Any) -> bool:
    """A part that is no longer there is a change; one that could not be read is none."""
    return isinstance(reason, list) and reason[-1:] == ["not found"]


def shown(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts that history tells of, as it tells them."""
    made: dict[str, Any] = {name: facts.get(name) for name in PLAIN}
    for name, part in LISTS.items():
        rows = facts.get(name)
        known = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
        made[name] = [str(row.get(part)) for row in known if not row.get("local")]
    return made
