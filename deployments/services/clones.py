"""Two hosts with one server's identity, as after a disk was cloned: found by their beats, and kept from jobs.

A host is its machine id with its boot id and name. A reboot or a rename replaces one by another for good; only two
hosts that live at the same time take turns. While they do, nobody knows which of them would take a job, so none is
handed over. The quarantine ends by itself when only one has been heard for a minute.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from django.db import transaction
from django.urls import reverse
from django.utils import timezone

from console import alerts, audit, untrusted
from deployments.models import Job, JobState, Server
from deployments.services import history, jobs, servers, waiting
from deployments.steps import Text

WINDOW_S = 60.0
RETURNS = 2  # of a host after another was heard; one alone may be a rename that was taken back
MOST_HOSTS = 8
ALERT = "identity-clash"

Host = tuple[str, str, str]  # machine (hash), boot, name


def read(found: Any) -> Host | None:
    """The host that a beat names as its `host`; None where an older agent names none, or what it says is none."""
    if not isinstance(found, dict) or not all(isinstance(found.get(name), str) for name in ("machine", "boot", "name")):
        return None
    machine, boot, name = (untrusted.text(found[key], 64) for key in ("machine", "boot", "name"))
    return machine, boot, name


@dataclass
class Heard:
    """The hosts of one server: when each was last heard, and the last times that one came back after another."""

    at: dict[Host, float] = field(default_factory=dict)
    last: Host | None = None
    returns: deque[float] = field(default_factory=lambda: deque(maxlen=RETURNS))

    def hear(self, host: Host, now: float) -> bool:
        """Whether two hosts take turns."""
        if self.last is not None and host != self.last and now - self.at.get(host, float("-inf")) < WINDOW_S:
            self.returns.append(now)
        self.at[host], self.last = now, host
        while len(self.at) > MOST_HOSTS:
            del self.at[min(self.at, key=self.at.__getitem__)]
        return len(self.returns) == RETURNS and now - self.returns[0] < WINDOW_S

    def within(self, now: float) -> list[Host]:
        return [host for host, at in self.at.items() if now - at < WINDOW_S]


class Watch:
    """What ingest remembers of hosts. `now` is time.monotonic(), seconds."""

    def __init__(self) -> None:
        self.since: float | None = None  # when it was first asked
        self.servers: dict[int, Heard] = {}
        self.clashing: set[int] = set()

    def hear(self, pk: int, named: Any, now: float) -> None:
        """Take what a beat says of its host; quarantines the server where two hosts take turns."""
        host = read(named)
        if host is None:
            return
        heard = self.servers.setdefault(pk, Heard())
        if heard.hear(host, now) and pk not in self.clashing and begin(pk, heard.within(now)):
            self.clashing.add(pk)

    def settle(self, now: float) -> None:
        """End the quarantines whose cause is gone. One query."""
        held = set(Server.objects.exclude(quarantine=None).values_list("pk", flat=True))
        for pk in self.clashing - held:  # somebody let it join again: what was heard before says nothing now
            self.clashing.discard(pk)
            self.servers.pop(pk, None)
        self.since = now if self.since is None else self.since
        for pk in held:
            self.clashing.add(pk)
            hosts = self.servers.get(pk, Heard()).within(now)
            if now - self.since > WINDOW_S and len(hosts) < 2:
                end(pk)

    def forget(self, known: Iterable[int]) -> None:
        """Keep only servers that are known."""
        for gone in self.servers.keys() - set(known):
            self.servers.pop(gone, None)
            self.clashing.discard(gone)


def begin(pk: int, hosts: Iterable[Host]) -> bool:
    """Hand no job over any more, mark those that run, and say so. False where there is no such server."""
    names = [{"machine": machine, "boot": boot, "name": name} for machine, boot, name in hosts]
    told = _told(names)
    with transaction.atomic():
        row = Server.objects.select_for_update(no_key=True).filter(pk=pk, decommissioned_at=None).first()
        if row is None:
            return False
        if row.quarantine:
            return True
        row.quarantine = {"since": timezone.now().isoformat(), "hosts": names}
        row.save(update_fields=["quarantine"])
        history.record(row, "quarantine", None, "two hosts", reason=told)
        mark = list(
            Text(
                f"期间有两台主机使用 {row.name} 的身份（{told}），作业在哪台上运行无从得知",
                f"Two hosts used the identity of {row.name} meanwhile ({told}), so nobody knows on which it ran",
            )
        )
        there = Job.objects.filter(server=row, waiting=False, state__in=(JobState.QUEUED, JobState.RUNNING,
                                                                        JobState.WAITING_REBOOT))  # fmt: skip
        there.update(mark=mark)
        waiting.hold_back(row, servers.withdraw)
        audit.record(None, "server.quarantined", row, hosts=told)
        alerts.fire(
            ALERT,
            f"server:{pk}",
            what=Text(
                f"有两台主机使用 {row.name} 的身份：{told}。",
                f"Two hosts use the identity of {row.name}: {told}.",
            ),
            do=Text(
                "其中一台可能是克隆磁盘得来的。请停掉克隆机上的代理，让它以自己的名称重新加入；在此之前不会下发作业。",
                "One of them is probably a clone of the other's disk. Stop the agent on the clone and let it join "
                "under a name of its own; no job is handed over until then.",
            ),
            severity="critical",
            link=reverse("monitoring:server-detail", args=[row.name]),
        )
    for job in there.select_related("server", "requester")[: jobs.TOLD_AT_MOST]:
        jobs.tell(job)
    return True


def _told(hosts: Iterable[dict[str, str]]) -> str:
    """ "kp-01 (boot 3f2a91c0), kp-02 (boot 77aa01de)"."""
    return ", ".join(f"{host['name'] or '?'} (boot {host['boot'][:8] or '?'})" for host in hosts)[:190]


def end(pk: int, *, why: str = "") -> bool:
    """Hand jobs over again; whether it was in quarantine."""
    with transaction.atomic():
        row = Server.objects.select_for_update(no_key=True).filter(pk=pk).first()
        if row is None or not row.quarantine:
            return False
        row.quarantine = None
        row.save(update_fields=["quarantine"])
        history.record(row, "quarantine", "two hosts", None, reason=why)
        alerts.resolve(ALERT, f"server:{pk}")
        transaction.on_commit(lambda: jobs.release([pk]))
    return True


def shown(server: Server) -> dict[str, Any] | None:
    """{"since": time, "hosts": [{"name", "machine", "boot"}]} for the page."""
    kept = server.quarantine
    if not kept:
        return None
    return {"since": datetime.fromisoformat(kept["since"]).astimezone(UTC), "hosts": kept["hosts"]}
