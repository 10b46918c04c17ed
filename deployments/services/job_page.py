"""What the page of one job shows: its steps beside their usual duration, its report, its call over REST."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Any

from django.db.models import Max, Min
from django.utils import timezone

from deployments import kinds
from deployments.models import Attempt, Job, JobState, Step
from deployments.services import filling, waiting
from deployments.services.job_list import verdict_counts
from deployments.services.job_verdict import verdict
from deployments.steps import BadParams, Text, read_params
from deployments.steps import Step as KindStep

USUAL_OF = 10  # the usual duration is the median of this many succeeded jobs of the kind
WORST_SHOWN = 6  # as many as the card of the verdict holds
WORST_FIRST = {"failed": 0, "warning": 1, "unknown": 2, "ok": 3}


@dataclass(frozen=True)
class StepRow:
    """One step as listed. `state` is waiting until it starts; seconds are None where unknown; `scale_s` is the
    longest of all bars, so that they compare."""

    n: int
    title: Text
    state: str
    took_s: float | None
    usual_s: float | None
    scale_s: float
    started_at: datetime | None
    first_line: int | None
    last_line: int | None
    exit_code: int | None
    command: str

    @property
    def since_ms(self) -> int | None:
        return int(self.started_at.timestamp() * 1000) if self.started_at else None

    @property
    def usual_width(self) -> float:
        return self._width(self.usual_s)

    @property
    def took_width(self) -> float:
        return min(self._width(self.took_s), self.usual_width or 100.0)

    @property
    def over_width(self) -> float:
        """How far it went over what is usual."""
        return self._width(self.took_s) - self.took_width

    def _width(self, seconds: float | None) -> float:
        return round(min(100.0, 100 * (seconds or 0) / self.scale_s), 1) if self.scale_s else 0.0


def step_rows(attempt: Attempt | None, job: Job) -> list[StepRow]:
    """Steps that ran, then those that the kind would still run."""
    seen = {step.n: step for step in attempt.steps.all()} if attempt else {}
    planned = dict(enumerate(planned_steps(job.kind, job.params), start=1))
    titles = {n: step.title.en for n, step in planned.items()} | {n: step.title_en for n, step in seen.items()}
    names, known = _names(titles), usual_seconds(job.kind)
    usual = {n: known[name] for n, name in names.items() if name in known}
    took = {n: _took(step) for n, step in seen.items()}
    scale = max([1.0, *usual.values(), *(s for s in took.values() if s is not None)])
    rest = "skipped" if job.is_ended or (attempt and attempt.done) else "waiting"
    return [
        _row(n, seen.get(n), planned.get(n), took.get(n), usual.get(n), scale, rest) for n in sorted({*seen, *planned})
    ]


def _row(
    n: int, step: Step | None, plan: KindStep | None, took: float | None, usual: float | None, scale: float, rest: str
) -> StepRow:
    if step is None:
        assert plan is not None
        return StepRow(n, plan.title, rest, None, usual, scale, None, None, None, None, command_text(plan.argv))
    title, command = Text(step.title_zh, step.title_en), command_text(step.argv)
    return StepRow(
        n,
        title,
        step.state,
        took,
        usual,
        scale,
        step.started_at,
        step.first_line,
        step.last_line,
        step.exit_code,
        command,
    )


def _took(step: Step) -> float | None:
    if step.started_at is None:
        return None
    return max(0.0, ((step.ended_at or timezone.now()) - step.started_at).total_seconds())


def planned_steps(kind: str, params: dict[str, Any]) -> list[KindStep]:
    """The steps that a job would run; none where the kind is gone or its parameters have changed since."""
    try:
        module = kinds.load(kind)
        return list(module.steps(read_params(module.Params, params)))
    except (KeyError, BadParams):
        return []


Name = tuple[str, int]  # a step's English title, and how many of that title came before it in its job


def _names(titles: Mapping[int, str]) -> dict[int, Name]:
    """{step number: name}. Plans differ from job to job, so a number alone says nothing of what a step does."""
    before: Counter[str] = Counter()
    found = {}
    for n in sorted(titles):
        found[n] = (titles[n], before[titles[n]])
        before[titles[n]] += 1
    return found


def usual_seconds(kind: str) -> dict[Name, float]:
    """{name: median seconds} over the last succeeded jobs of the kind, without skipped steps. Two queries."""
    jobs: dict[str, dict[int, Step]] = {}
    for step in Step.objects.filter(attempt__in=_last_succeeded(kind)):
        jobs.setdefault(step.attempt_id, {})[step.n] = step
    durations: dict[Name, list[float]] = {}
    for steps in jobs.values():
        for n, name in _names({n: step.title_en for n, step in steps.items()}).items():
            step = steps[n]
            if step.state != "skipped" and step.started_at and step.ended_at:
                durations.setdefault(name, []).append((step.ended_at - step.started_at).total_seconds())
    return {name: max(0.0, median(values)) for name, values in durations.items()}


def usual_total(kind: str) -> float | None:
    """Median seconds from the first step to the last over the last succeeded jobs; None where there are none."""
    spans = Step.objects.filter(attempt__in=_last_succeeded(kind)).order_by().values("attempt")
    taken = [
        (row["end"] - row["start"]).total_seconds()
        for row in spans.annotate(start=Min("started_at"), end=Max("ended_at"))
        if row["start"] and row["end"]
    ]
    return max(0.0, median(taken)) if taken else None


def _last_succeeded(kind: str) -> list[str]:
    jobs = list(
        Job.objects.filter(kind=kind, state=JobState.SUCCEEDED).order_by("-pk").values_list("pk", flat=True)[:USUAL_OF]
    )
    return list(Attempt.objects.filter(job__in=jobs, state=JobState.SUCCEEDED).values_list("pk", flat=True))


def report(attempt: Attempt | None) -> list[dict[str, Any]]:
    """The items of an attempt's report in the order made, each title and remedy as Text."""
    items = attempt.report if attempt else []
    return [
        {**item, "title": Text(*item["title"]), "remedy": Text(*item["remedy"]) if item.get("remedy") else None}
        for item in items
    ]


def shown(job: Job, attempt: Attempt | None, attempts: list[Attempt]) -> dict[str, Any]:
    """What the templates of a job page read; `attempt` is the one looked at."""
    items, steps = report(attempt), step_rows(attempt, job)
    bad = worst(items)
    newest = attempt is None or attempt is attempts[-1]
    state = job.state if attempt is None or newest else attempt.state
    started, ended = (attempt.started_at, attempt.ended_at) if attempt else (None, None)
    runs = started is not None and ended is None and state in (JobState.RUNNING, JobState.WAITING_REBOOT)
    known = verdict_counts(attempt.report if attempt else [])
    failed_step = next((step for step in steps if step.state == "failed"), None)
    return {
        "items": items,
        "attention": sorted((item for item in items if item["verdict"] != "ok"), key=_rank),
        "fine": [item for item in items if item["verdict"] == "ok"],
        "worst": bad[:WORST_SHOWN],
        "worst_left": len(bad[WORST_SHOWN:]),
        "steps": steps,
        "usual_known": any(step.usual_s is not None for step in steps),
        "failed_step": failed_step,
        "counts": known,
        "counted": {"counts": known},
        "state": state,
        "wait": waiting.explain([job]).get(job.pk) if newest else None,
        "rung": attempt.rung if attempt else "",
        "verdict": verdict(job, state, known, steps, newest=newest),
        "may_cancel": newest and not job.is_ended,
        "may_retry": newest and (job.is_ended or job.state == JobState.LOST),
        "started_at": started,
        "took_s": ((ended or timezone.now()) - started).total_seconds() if started and (ended or runs) else None,
        "since_ms": int(started.timestamp() * 1000) if runs and started else None,
    }


def worst(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What needs a person: failed items, then warnings."""
    wanted = [item for item in items if item["verdict"] in ("failed", "warning")]
    return sorted(wanted, key=_rank)


def _rank(item: dict[str, Any]) -> int:
    return WORST_FIRST[item["verdict"]]


def command_text(argv: list[str]) -> str:
    """An argument list as one would type it."""
    return " ".join(_quoted(str(word)) for word in argv)


def _quoted(word: str) -> str:
    plain = word and all(c.isalnum() or c in "@%+=:,./-_{}" for c in word)
    return word if plain else "'" + word.replace("'", "'\\''") + "'"


def rest_call(job: Job, origin: str) -> str:
    """The command that queues the same job over REST."""
    body: dict[str, Any] = {"server": job.server.name, "kind": job.kind, "params": filling.asked(job)}
    if job.ticket:
        body["ticket"] = job.ticket
    text = json.dumps(body, ensure_ascii=False, indent=None)
    return (
        f"curl -X POST {origin}/api/v1/jobs \\\n"
        '  -H "Authorization: Bearer $ASCEND_TOKEN" \\\n'
        '  -H "Content-Type: application/json" \\\n'
        f'  -H "Idempotency-Key: $(uuidgen)" \\\n'
        f"  -d {_quoted(text)}"
    )
