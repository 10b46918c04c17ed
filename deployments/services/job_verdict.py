"""The verdict of a job in words: one title, one sentence, a colour and a shape."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from console import clock
from console.language import pick
from deployments import kinds
from deployments.models import Job, JobState
from deployments.services import waiting
from deployments.steps import Text


class StepState(Protocol):
    """What is read of a step."""

    @property
    def n(self) -> int: ...
    @property
    def state(self) -> str: ...
    @property
    def title(self) -> Text: ...


@dataclass(frozen=True)
class Verdict:
    """`look` is a colour class, `shape` a symbol of icons.svg; `text` may be ''."""

    title: str
    text: str
    look: str
    shape: str


def verdict(job: Job, state: str, counts: Mapping[str, int], steps: Sequence[StepState], *, newest: bool) -> Verdict:
    """What to say of an attempt in `state`; `counts` are those of its report, {} without one."""
    reason = pick(job.reason) if newest else ""
    if job.kind == "check" and state in (JobState.SUCCEEDED, JobState.RUNNING) and counts:
        return _checked(job, state, counts, steps)
    say = WORDS.get(JobState(state), _other)
    return say(job, reason, steps)


def _checked(job: Job, state: str, counts: Mapping[str, int], steps: Sequence[StepState]) -> Verdict:
    name = {"server": job.server.name}
    if state == JobState.RUNNING:
        return Verdict(_("Checking %(server)s") % name, _now(steps), "info", "state-running")
    if counts["failed"]:
        title = ngettext("%(n)s item failed on %(server)s", "%(n)s items failed on %(server)s", counts["failed"])
        return Verdict(title % {"n": counts["failed"], **name}, "", "critical", "state-failed")
    if counts["warning"]:
        title = ngettext("%(n)s warning on %(server)s", "%(n)s warnings on %(server)s", counts["warning"])
        return Verdict(title % {"n": counts["warning"], **name}, "", "warning", "state-warning")
    if counts["unknown"]:
        title = ngettext(
            "%(n)s item could not be read on %(server)s",
            "%(n)s items could not be read on %(server)s",
            counts["unknown"],
        )
        return Verdict(title % {"n": counts["unknown"], **name}, "", "stale", "state-unknown")
    return Verdict(_("%(server)s is in order") % name, "", "ok", "state-succeeded")


def _now(steps: Sequence[StepState]) -> str:
    running = next((step for step in steps if step.state == "running"), None)
    if running is None:
        return ""
    return _("Step %(n)s of %(of)s: %(title)s") % {"n": running.n, "of": len(steps), "title": pick(running.title)}


def _running(job: Job, reason: str, steps: Sequence[StepState]) -> Verdict:
    return Verdict(_("Running on %(server)s") % {"server": job.server.name}, _now(steps), "info", "state-running")


def _queued(job: Job, reason: str, steps: Sequence[StepState]) -> Verdict:
    name = {"server": job.server.name}
    if wait := waiting.explain([job]).get(job.pk):
        return _waiting(job, wait)
    if job.server.is_silent:
        text = _("%(server)s is silent. It takes the job when it is back.") % name
        return Verdict(_("Waiting for %(server)s") % name, text, "warning", "state-queued")
    return Verdict(_("Waiting for %(server)s to take it") % name, "", "", "state-queued")


def _waiting(job: Job, wait: waiting.Wait) -> Verdict:
    name = {"server": job.server.name}
    place = _("Place %(n)s in the queue of %(server)s.") % {"n": wait.place, **name}
    if wait.why == "paused":
        row = job.server
        words = [row.queue_paused_reason, row.queue_paused_by.username if row.queue_paused_by else ""]
        told = " · ".join(word for word in words if word)
        return Verdict(_("The queue of %(server)s is paused") % name, f"{told} {place}".strip(), "warning", "pause")
    if wait.why == "maintenance":
        return Verdict(_("%(server)s is in maintenance") % name, place, "info", "state-maintenance")
    if wait.why == "draining":
        told = f"{job.server.drain_reason} {place}".strip()
        return Verdict(_("%(server)s is being drained") % name, told, "info", "pause")
    if wait.why in ("quarantine", "gone", "cordoned"):
        return Verdict(wait.words(), place, "warning", "state-warning")
    if wait.holder is None:
        return Verdict(_("Starts on %(server)s in a moment") % name, "", "", "state-queued")
    holder = {"id": wait.holder.pk, "kind": pick(kinds.title(wait.holder.kind))}
    held = _("It holds %(lock)s.") % {"lock": wait.lock}
    return Verdict(_("Waits for job #%(id)s (%(kind)s)") % holder, f"{held} {place}", "", "state-queued")


def _held(job: Job, reason: str, steps: Sequence[StepState]) -> Verdict:
    if job.batch_id is not None:  # of a campaign, whose page asks
        return _other(job, reason, steps)
    return Verdict(_("Waits for the approval of another person"), reason, "warning", "state-queued")


def _rebooting(job: Job, reason: str, steps: Sequence[StepState]) -> Verdict:
    name = {"server": job.server.name}
    if not job.reboot:
        return Verdict(_("%(server)s restarts") % name, "", "info", "state-queued")
    since, until = (timezone.localtime(datetime.fromisoformat(job.reboot[key])) for key in ("since", "until"))
    form = clock.SHORT if since.date() == until.date() else clock.LONG
    span = _("Since %(since)s, until %(until)s at the latest.") % {
        "since": since.strftime(form), "until": clock.words(until, form),
    }  # fmt: skip
    if job.reboot["by_hand"]:
        title = _("Waits until somebody restarts %(server)s") % name
        text = _("Restart it now, by its own command or its BMC; the job goes on with the next step by itself.")
        return Verdict(title, f"{text} {span}", "warning", "state-warning")
    text = _("The job has restarted it, and goes on with the next step when it is back.")
    return Verdict(_("%(server)s restarts") % name, f"{text} {span}", "info", "state-queued")


def _succeeded(job: Job, reason: str, steps: Sequence[StepState]) -> Verdict:
    return Verdict(_("Succeeded on %(server)s") % {"server": job.server.name}, reason, "ok", "state-succeeded")


def _failed(job: Job, reason: str, steps: Sequence[StepState]) -> Verdict:
    step = next((step for step in steps if step.state == "failed"), None)
    if step is None:
        return Verdict(
            reason or _("Failed on %(server)s") % {"server": job.server.name}, "", "critical", "state-failed"
        )
    title = _("Step %(n)s failed: %(title)s") % {"n": step.n, "title": pick(step.title)}
    return Verdict(title, reason, "critical", "state-failed")


def _cancelled(job: Job, reason: str, steps: Sequence[StepState]) -> Verdict:
    return Verdict(_("Cancelled"), reason, "", "state-cancelled")


def _lost(job: Job, reason: str, steps: Sequence[StepState]) -> Verdict:
    text = reason or _("Its true state is taken again when %(server)s is back.") % {"server": job.server.name}
    return Verdict(_("%(server)s fell silent") % {"server": job.server.name}, text, "stale", "state-stale")


def _other(job: Job, reason: str, steps: Sequence[StepState]) -> Verdict:
    return Verdict(str(JobState(job.state).label), reason, "", "state-queued")


WORDS = {
    JobState.WAITING_APPROVAL: _held,
    JobState.RUNNING: _running,
    JobState.QUEUED: _queued,
    JobState.WAITING_REBOOT: _rebooting,
    JobState.SUCCEEDED: _succeeded,
    JobState.FAILED: _failed,
    JobState.CANCELLED: _cancelled,
    JobState.LOST: _lost,
}
