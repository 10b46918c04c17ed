"""What a deployment is doing, why its wish is not met, and what to do about it: sentences above everything else."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from console.language import pick
from deployments.models import SERVING, ReplicaState
from deployments.services.deployment_page import Line, Page, left


@dataclass(frozen=True)
class Said:
    """`why` and `do` are '' where there is nothing to say. `css` and `icon` are those of the banner."""

    what: str
    why: str = ""
    do: str = ""
    css: str = ""
    icon: str = "state-info"

    @property
    def look(self) -> str:
        """The class of the card it stands in."""
        return self.css or ("info" if self.icon == "state-running" else "")


def of(page: Page) -> Said | None:
    """None where all is as wished and nothing moves."""
    return _STATES[page.state](page) if page.state in _STATES else None


def _stopped(page: Page) -> Said:
    n = page.deployment.replicas
    what = _("It is stopped: nothing runs, and nothing is held.")
    do = ngettext("Start brings %(n)s replica up.", "Start brings %(n)s replicas up.", n) % {"n": n}
    return Said(what, do=do, icon="state-cancelled")


def _stopping(page: Page) -> Said:
    n = len(page.lines)
    what = ngettext("%(n)s replica is being stopped.", "%(n)s replicas are being stopped.", n) % {"n": n}
    return Said(what, why=_drain(page), icon="state-stale")


def _failed(page: Page) -> Said:
    line = next((line for line in page.gone if line.replica.state == ReplicaState.FAILED), None)
    why = pick(page.deployment.reason) or (pick(line.replica.reason) if line else "")
    do = _("Read what its log says below. Change the settings, or try again.")
    return Said(_("It is not served: no replica runs."), why, do, "critical", "state-critical")


def _starting(page: Page) -> Said:
    wanted = page.deployment.wished - len(page.lines)
    why = pick(page.deployment.reason)
    if wanted > 0 and why:
        what = ngettext("%(n)s replica waits for a place.", "%(n)s replicas wait for a place.", wanted) % {"n": wanted}
        return Said(what, why, _("It goes on by itself once a server fits."), "warning", "state-warning")
    if page.newest:
        return Said(_doing(page.newest), why, icon="state-running")
    return Said(_("Its first replicas are being placed."), why, icon="state-running")


def _doing(line: Line) -> str:
    """What the replica does that is on its way up, with how far it is."""
    values = {"n": line.replica.n, "server": line.replica.server.name}
    if line.progress:
        done, of = line.progress.get("done"), line.progress.get("of")
        count = f" {done:g}/{of:g}" if done is not None and of else ""
        return _("Replica %(n)s on %(server)s: %(what)s.") % {**values, "what": pick(line.progress["what"]) + count}
    if line.replica.state == ReplicaState.LOADING:
        return _("Replica %(n)s on %(server)s loads the model.") % values
    if line.replica.state == ReplicaState.STARTING:
        return _("Replica %(n)s on %(server)s starts.") % values
    return _("Replica %(n)s on %(server)s waits for its start.") % values


def _degraded(page: Page) -> Said:
    ill = [line for line in page.lines if line.replica.state == ReplicaState.DEGRADED]
    if ill:
        n = len(ill)
        what = ngettext(
            "%(n)s replica does not answer as it should.", "%(n)s replicas do not answer as they should.", n
        )
        do = _("It is watched and started anew by its server; if it stays so, restart it.")
        return Said(what % {"n": n}, pick(ill[0].replica.reason), do, "warning", "state-warning")
    return Said(_serving(page), pick(page.deployment.reason) or _coming(page), "", "warning", "state-warning")


def _scaling(page: Page) -> Said:
    return Said(_serving(page), _coming(page), icon="state-running")


def _serving(page: Page) -> str:
    return _("%(n)s of %(of)s replicas serve.") % {"n": page.serving, "of": page.deployment.wished}


def _coming(page: Page) -> str:
    return _doing(page.newest) if page.newest else ""


def _rolling_out(page: Page) -> Said:
    rollout = Rollout.of(page)
    assert rollout is not None
    css, icon = ("critical", "state-critical") if rollout.phase == "stuck" else ("", "state-running")
    return Said(rollout.what, rollout.why_not, rollout.do, css, icon)


def _drain(page: Page) -> str:
    """How long the requests that run still get."""
    until = [line.replica.drain_until for line in page.lines if line.replica.drain_until]
    seconds = left(max(until)) if until else None
    if not seconds:
        return ""
    return _("Requests that run get %(s)s s more at most.") % {"s": seconds}


_STATES = {
    "stopped": _stopped, "stopping": _stopping, "failed": _failed, "starting": _starting, "degraded": _degraded,
    "rolling_out": _rolling_out, "scaling": _scaling,
}  # fmt: skip


@dataclass(frozen=True)
class Rollout:
    """What the panel of a rollout shows. `done` of `of` replicas run as they are to; `draining` still finish."""

    phase: str
    why: str
    to: int
    before: int | None
    how: str
    of_all: int
    done: int
    paused: bool
    by: str
    since: datetime | None
    reason: str
    draining: list[Line] = field(default_factory=list)
    first: Line | None = None

    @classmethod
    def of(cls, page: Page) -> "Rollout | None":
        kept: Mapping[str, Any] | None = page.deployment.rollout
        if not kept:
            return None
        current = page.deployment.revision_id
        new = [line for line in page.lines if line.replica.revision_id == current]
        draining = [line for line in page.lines if line.replica.state == ReplicaState.DRAINING]
        serving = sum(line.replica.state in SERVING for line in new)
        of_all = max(page.deployment.wished, int(kept.get("of") or 0))
        if kept.get("why") == "restart":
            of_all = int(kept.get("of") or 0)
            serving = of_all - len(kept.get("left") or []) - bool(kept.get("now"))
        return cls(
            str(kept.get("phase")), str(kept.get("why")), int(kept.get("to") or 0), kept.get("from"),
            str(kept.get("how")), of_all, max(0, min(of_all, serving)), bool(kept.get("paused")),
            str(kept.get("by") or ""), _moment(kept.get("since")), pick(kept.get("reason")), draining,
            next((line for line in new if line.replica.state not in (*SERVING, ReplicaState.DRAINING)), None),
        )  # fmt: skip

    @property
    def what(self) -> str:
        values = {"to": self.to, "n": self.done, "of": self.of_all}
        if self.phase == "stuck":
            return _("The rollout to r%(to)s has stopped.") % values
        if self.phase == "back":
            return _("It goes back to r%(to)s by itself.") % values
        if self.why == "restart":
            return _("Replicas start anew, one after the other: %(n)s of %(of)s done.") % values
        if self.phase == "first":
            return _("The first replica of r%(to)s has to prove itself before others follow.") % values
        return _("Replicas change to r%(to)s: %(n)s of %(of)s done.") % values

    @property
    def why_not(self) -> str:
        return _("It is paused.") if self.paused else self.reason

    @property
    def do(self) -> str:
        if self.phase == "stuck":
            return _("Go back to a revision that served, or change the settings.")
        return ""

    @property
    def steps(self) -> list[tuple[str, str]]:
        """(word, "done" | "now" | "next") of its phases."""
        if self.why == "restart":
            return []
        words = [_("first replica"), _("the others"), _("done")]
        if self.phase in ("back", "stuck"):
            words = [_("first replica"), _("failed"), _("back") if self.phase == "back" else _("stopped")]
        at = {"first": 0, "rest": 1}.get(self.phase, 2)
        return [(word, "done" if n < at else "now" if n == at else "next") for n, word in enumerate(words)]

    @property
    def pct(self) -> int:
        return round(100 * self.done / self.of_all) if self.of_all else 0

    @property
    def may_abort(self) -> bool:
        return self.phase in ("first", "rest") and self.before is not None

    @property
    def may_wait(self) -> bool:
        return self.phase in ("first", "rest", "back")


def _moment(text: Any) -> datetime | None:
    try:
        at = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return at if timezone.is_aware(at) else None
