"""Who holds the NPUs of a server now, as the plan of a stack wants to know it."""

from collections.abc import Iterable
from typing import Any

from deployments.models import Attempt, Server
from deployments.stacks.draft import Holder
from monitoring.services import live_state


def of(server: Server) -> list[Holder] | None:
    """The processes of the last valid reading; None where there is none. Memory in use without a listed process is
    a holder too, for it is often a container."""
    now = live_state.now(server)
    if now["state"] not in live_state.HEARD:
        return None
    if now.get("error"):
        # A simulated driver whose build has failed is not loaded, so nobody can hold anything by it.
        return [] if server.simulated and server.facts.get("driver_whole") is False else None
    jobs = _jobs(process.get("attempt") for process in now["processes"])
    found = [
        Holder(
            pid=process.get("pid"),
            user=str(process.get("user") or "")[:64],
            program=str(process.get("name") or "")[:64],
            npu=f"{process.get('npu')}.{process.get('chip')}",
            ours=bool(process.get("attempt")),
            job=jobs.get(str(process.get("attempt"))),
        )
        for process in now["processes"]
    ]
    hidden = [npu for npu in now["npus"] if npu["occ"] == "unexplained"]
    return found + [
        Holder(None, program=f"{npu['hbm_used_mb']} MB", npu=f"{npu['npu']}.{npu['chip']}") for npu in hidden
    ]


def _jobs(attempts: Iterable[Any]) -> dict[str, int]:
    """{attempt: number of its job} of those that are ours."""
    names = [str(name) for name in attempts if name]
    if not names:
        return {}
    return dict(Attempt.objects.filter(pk__in=names).values_list("pk", "job_id"))
