"""Changes of driver and firmware: what they hold, and what follows where one fails.

There is no going back by itself: the server goes into maintenance, an alert says so, and `Server.host_failure` keeps
what its page shows until a later change succeeds: {job, step: [zh, en], reason: [zh, en] | null, at, before: {driver,
firmware}, wanted: {driver, firmware}}.
"""

from typing import Any

from django.utils import timezone

from console import alerts, audit
from deployments.models import Attempt, Job, JobState, Server, Step
from deployments.row_locks import lock_server
from deployments.services import history
from deployments.stacks import frozen
from deployments.steps import BadParams

ALERT = "host-change-failed"
KINDS = ("install", "drivers")


def npus_of(server: Server) -> list[str]:
    """Every name by which a job may hold an NPU of the server; those that are cordoned are held by nobody."""
    names = set()
    for bus_id, chip in server.npus.exclude(bus_id=None).values_list("bus_id", "chip_id"):
        if bus_id and bus_id.upper() not in server.cordons:
            names |= {bus_id, f"{bus_id}/{chip}"}
    return sorted(names)


def locks(server: Server) -> list[str]:
    return ["server", *(f"npu:{name}" for name in npus_of(server))]


def ended(job: Job, attempt: Attempt) -> None:
    """Note how a change of the host layer ended; nothing for any other job. Within a transaction of the caller."""
    if job.kind not in KINDS:
        return
    try:
        steps = frozen.read(str(job.params.get("plan") or ""))
    except BadParams:
        return
    part = frozen.host_part(steps)
    states = {row.n: row for row in attempt.steps.filter(n__lte=part)} if part else {}
    began = [n for n, row in states.items() if frozen.changes_host(steps[n - 1]) and row.state != "skipped"]
    if not began:
        return
    bad = [n for n in range(1, part + 1) if not steps[n - 1].always and _state(states.get(n)) != "succeeded"]
    if bad and attempt.state != JobState.SUCCEEDED:
        _failed(job, states.get(bad[0]) or states[max(states)])
    elif not bad:
        _succeeded(job)


def _state(row: Step | None) -> str:
    return row.state if row else ""


def _failed(job: Job, row: Step) -> None:
    server = lock_server(job.server_id)
    was = server.maintenance
    server.host_failure = {
        "job": job.pk, "step": [row.title_zh, row.title_en], "reason": job.reason, "at": timezone.now().isoformat(),
        "before": _before(job), "wanted": _wanted(job),
    }  # fmt: skip
    server.maintenance = True
    server.save(update_fields=["host_failure", "maintenance"])
    if not was:
        history.record(server, "maintenance", "off", "on", reason=f"#{job.pk}")
    audit.record(None, "server.maintenance_begun", server, job=job.pk, why=ALERT)
    name = server.name
    alerts.fire(
        ALERT, f"server:{server.pk}", severity="critical", link=f"/servers/{name}/",
        what=(
            f"{name} 的驱动或固件变更失败（作业 #{job.pk}，“{row.title_zh}”），服务器已转入维护状态。",
            f"A change of driver or firmware failed on {name} (job #{job.pk}, “{row.title_en}”); the server is in "
            "maintenance.",
        ),
        do=(
            f"打开 {name} 的页面：上面写着现在装的是什么，以及怎样恢复。",
            f"Open the page of {name}: it says what is installed now, and the way out.",
        ),
    )  # fmt: skip


def _before(job: Job) -> dict[str, str | None]:
    driver, _blank, firmware = str(job.params.get("before") or "").partition(" ")
    return {"driver": driver[:60] or None, "firmware": firmware[:60] or None}


def _wanted(job: Job) -> dict[str, str]:
    """{driver, firmware} that the plan was to bring about, as far as it names them."""
    wanted = {}
    for step in frozen.read(str(job.params.get("plan") or "")):
        if frozen.changes_host(step) and step.reads:
            part = "firmware" if "/firmware/" in step.reads.file else "driver"
            wanted[part] = step.reads.value.partition("=")[2][:60]
    return wanted


def _succeeded(job: Job) -> None:
    """A later change has put it right. Maintenance stays: a person ends it."""
    server = lock_server(job.server_id)
    if server.host_failure is not None:
        server.host_failure = None
        server.save(update_fields=["host_failure"])
    alerts.resolve(ALERT, f"server:{server.pk}")


def settle(server: Server) -> None:
    """Somebody ends the maintenance, or the server's time: what failed is settled. Within a transaction of the
    caller."""
    if server.host_failure is not None:
        Server.objects.filter(pk=server.pk).update(host_failure=None)
        server.host_failure = None
    alerts.resolve(ALERT, f"server:{server.pk}")


def now(server: Server) -> dict[str, Any]:
    """What is installed, as its agent tells: `driver` and `firmware` or None, whether they are `whole` and `paired`."""
    facts = server.facts
    return {
        "driver": _word(facts.get("driver")),
        "firmware": _word(facts.get("firmware")),
        "whole": facts.get("driver_whole") if isinstance(facts.get("driver_whole"), bool) else None,
        "paired": facts.get("paired") if isinstance(facts.get("paired"), bool) else None,
    }


def _word(value: Any) -> str | None:
    return value[:60] if isinstance(value, str) and value else None
