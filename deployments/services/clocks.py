"""Servers whose clock is wrong: an alert each, or one about the console where most of them are.

Nothing is judged by a server's clock, but the times that its lines and samples carry are its own.
"""

from datetime import timedelta

from django.utils import timezone

from console import alerts
from console.models import Alert
from deployments.models import Server
from deployments.steps import Text

ALERT = "clock-off"
OFF_S, RIGHT_S = 60.0, 30.0  # as at joining; between the two an alert stays as it is
HEARD = timedelta(seconds=60)
FEWEST = 3  # of fewer servers nobody can tell whose clock is the wrong one


def look() -> None:
    """Open and end the alerts by what the beats of the last minute said; who is silent keeps theirs."""
    heard = list(
        Server.objects.filter(
            simulated=False,
            decommissioned_at=None,
            clock_offset_s__isnull=False,
            last_seen_at__gt=timezone.now() - HEARD,
        ).only("pk", "name", "clock_offset_s")
    )
    off = [server for server in heard if abs(_offset_s(server)) > OFF_S]
    if len(heard) >= FEWEST and len(off) * 2 > len(heard):
        _doubt_ourselves(len(off), len(heard))
        return
    alerts.resolve(ALERT)
    open_for = set(Alert.objects.filter(name=ALERT, ended_at=None).values_list("subject", flat=True))
    for server in off:
        if _subject(server) not in open_for:
            _alert(server)
    for server in heard:
        if _subject(server) in open_for and abs(_offset_s(server)) < RIGHT_S:
            alerts.resolve(ALERT, _subject(server))


def _offset_s(server: Server) -> float:
    return server.clock_offset_s or 0.0


def _subject(server: Server) -> str:
    return f"server:{server.pk}"


def _alert(server: Server) -> None:
    seconds = _offset_s(server)
    zh, en = ("快", "ahead of") if seconds > 0 else ("慢", "behind")
    alerts.fire(
        ALERT,
        _subject(server),
        what=Text(
            f"{server.name} 的时钟比控制台{zh} {abs(seconds):.0f} 秒。",
            f"The clock of {server.name} is {abs(seconds):.0f} s {en} the console's.",
        ),
        do=Text(
            "作业照常，但其日志与采样的时间是错的。在该服务器上校时（chronyd）。",
            "Jobs go on, but the times of its lines and samples are wrong. Set the clock there (chronyd).",
        ),
        link=f"/servers/{server.name}/",
    )


def _doubt_ourselves(n: int, heard: int) -> None:
    alerts.fire(
        ALERT,
        what=Text(
            f"{heard} 台服务器中有 {n} 台的时钟与控制台不符：多半是控制台自己的时钟不对。",
            f"The clocks of {n} of {heard} servers differ from the console's: most likely its own is wrong.",
        ),
        do=Text(
            "在控制台所在机器上校时（chronyd）。",
            "Set the clock of the machine that the console runs on (chronyd).",
        ),
    )
