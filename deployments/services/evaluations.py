"""Evaluations of models: rows of what their jobs tell, and the gate that an artifact passes with one.

What was told is a server's word for what was measured. The verdict is made here, from the numbers and the budget of the
job, so that no server can name itself good enough beyond them.
"""

from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

from console import audit, untrusted
from console.errors import Conflict, Invalid, NotAllowed
from console.language import pick
from console.models import User
from deployments.artifacts import garble, judge
from deployments.artifacts.asked import ENGINES
from deployments.artifacts.prompts import LANGUAGES, MOST_PROMPTS
from deployments.models import Artifact, ArtifactPlace, Attempt, Evaluation, EvaluationAnswer
from deployments.row_locks import lock_artifact
from deployments.services import artifacts, model_gate, told
from deployments.steps import Text

KIND = "evaluate"
MOST_TEXT = 10_000
MOST_REASON = 500
SHARES = ("equal_pct", "token_agreement_pct")
OPTIONAL = ("first_difference", "parent_perplexity", "child_perplexity", "perplexity_change_pct")


class Untold(ValueError):
    """What was told is no part of an evaluation."""


@told.handles("answer")
def answer_told(attempt: Attempt, data: dict[str, Any]) -> None:
    """One prompt with both answers."""
    evaluation = _evaluation(attempt)
    n = untrusted.whole(data.get("n"), MOST_PROMPTS)
    if not n:
        raise Untold("no number")
    row = answer(data)
    values = {"lang": row["lang"], "equal": row["equal"], "garbled": bool(row["garbled"]), "data": row}
    EvaluationAnswer.objects.update_or_create(evaluation=evaluation, n=n, defaults=values)


@told.handles("evaluation")
def evaluation_told(attempt: Attempt, data: dict[str, Any]) -> None:
    """The whole: what was measured. The gate of the artifact follows from it."""
    evaluation = _evaluation(attempt)
    measured = measured_of(data.get("measured"))
    budget = budget_of(attempt.job.params)
    evaluation.engine = data["engine"] if data.get("engine") in ENGINES else ""
    evaluation.measured, evaluation.budget = measured.as_json(), budget.as_json()
    evaluation.notes = _notes(data.get("notes"))
    evaluation.took_s = untrusted.amount(data.get("took_s"))
    evaluation.passed = not judge.faults(measured, budget)
    evaluation.save()
    if evaluation.artifact is not None:
        gate = {"passed": evaluation.passed, "budget": evaluation.budget, "measured": evaluation.measured,
                "job": attempt.job_id, "evaluation": evaluation.pk, "engine": evaluation.engine,
                "at": timezone.now().isoformat()}  # fmt: skip
        Artifact.objects.filter(pk=evaluation.artifact.pk).update(gate=gate)
        artifacts.tell_soon()


def _evaluation(attempt: Attempt) -> Evaluation:
    """The row of the attempt, made when the first of it is told. Which models they are, its job says."""
    if attempt.job.kind != KIND:
        raise Untold("of another kind")
    params, here = attempt.job.params, ArtifactPlace.objects.filter(server=attempt.job.server, gone_at=None)
    child, parent = (
        Artifact.objects.filter(places__in=here.filter(path=params.get(name))).first() for name in ("child", "parent")
    )
    made, _new = Evaluation.objects.get_or_create(attempt=attempt, defaults={"artifact": child, "parent": parent})
    return made


def answer(data: dict[str, Any]) -> dict[str, Any]:
    """Each field of its type, within its size."""
    row: dict[str, Any] = {name: _text(data.get(name), 60) for name in ("id", "kind")}
    row["lang"] = data["lang"] if data.get("lang") in LANGUAGES else "en"
    row |= {name: _text(data.get(name), MOST_TEXT) for name in ("prompt", "parent", "child")}
    row |= {name: untrusted.whole(data.get(name), 10**6) for name in ("differs_at", "same_tokens", "tokens")}
    for name in ("parent_perplexity", "child_perplexity"):
        known = untrusted.amount(data.get(name))
        row[name] = known if known and known >= 1 else None  # less there is not
    for name in ("garbled", "both_garbled"):
        value = data.get(name)
        row[name] = [one for one in garble.SIGNS if one in value] if isinstance(value, list) else []
    return {**row, "equal": data.get("equal") is True}


def measured_of(value: Any) -> judge.Measured:
    """Raises Untold where it is none."""
    if not isinstance(value, dict):
        raise Untold("nothing measured")
    counts = {name: untrusted.whole(value.get(name), MOST_PROMPTS) for name in ("prompts", "garbled", "both_garbled")}
    shares = {name: untrusted.amount(value.get(name)) for name in SHARES}
    if not counts["prompts"] or None in counts.values() or any(one is None or one > 100 for one in shares.values()):
        raise Untold("nothing measured")
    numbers = {name: untrusted.number(value.get(name)) for name in OPTIONAL}
    return judge.Measured(**counts, **shares, **numbers, scores=_scores(value.get("scores")))  # type: ignore[arg-type]


def _scores(value: Any) -> dict[str, tuple[float, float]]:
    found: dict[str, tuple[float, float]] = {}
    for name, pair in list(value.items())[:50] if isinstance(value, dict) else ():
        both = [untrusted.amount(one) for one in pair] if isinstance(pair, list) and len(pair) == 2 else []
        if len(both) == 2 and both[0] is not None and both[1] is not None:
            found[untrusted.text(name, 60)] = (float(both[0]), float(both[1]))
    return found


def _text(value: Any, most: int) -> str:
    return untrusted.text(value, most) if isinstance(value, str) else ""


def _notes(value: Any) -> list[list[str]]:
    rows = value[:20] if isinstance(value, list) else []
    return [[_text(one, 500) for one in row] for row in rows if isinstance(row, list) and len(row) == 2]


def budget_of(params: dict[str, Any]) -> judge.Budget:
    """That of a job's parameters."""
    worse, agreement = (untrusted.amount(params.get(name)) for name in ("budget_pct", "agreement_pct"))
    return judge.Budget(
        judge.BUDGET_PCT if worse is None else float(worse),
        judge.LEAST_AGREEMENT_PCT if agreement is None else float(agreement),
    )


def judged(evaluation: Evaluation) -> tuple[Text, list[Text]]:
    """(the verdict in one sentence, why not); of one that has been judged."""
    numbers = evaluation.measured or {}
    measured = judge.Measured(**{k: v for k, v in numbers.items() if k != "score_loss_pct"})
    faults = judge.faults(measured, judge.Budget(**evaluation.budget))
    return judge.sentence(measured, faults), faults


def promotable(artifact: Artifact) -> bool:
    """May it be offered for deployments in production: it is as it was made, its last evaluation was passed, or an
    administrator took the responsibility."""
    return model_gate.state(artifact) in ("promotable", "original")


def why_not(artifact: Artifact) -> str:
    """The warning beside one that is not promotable, '' beside one that is."""
    if promotable(artifact):
        return ""
    if artifact.gate is None:
        return _("It was not evaluated against its parent yet.")
    return _("Its last evaluation was not passed (job #%(job)s).") % {"job": artifact.gate.get("job")}


def promote(artifact: Artifact, reason: str, *, by: User) -> None:
    """Make it promotable although its evaluation was not passed. Raises NotAllowed, Invalid, Conflict."""
    if not by.may("administrator"):
        raise NotAllowed(
            _("Only an administrator may promote a model against its evaluation."), _("Ask one to decide.")
        )
    reason = reason.strip()
    if not reason or len(reason) > MOST_REASON:
        raise Invalid(
            _("A reason is needed, of at most %(most)s characters.") % {"most": MOST_REASON},
            _("Say why this model may be deployed all the same."),
            code="no_reason",
        )
    with transaction.atomic():
        found = lock_artifact(artifact.pk)
        if not found.gate or found.gate.get("passed") or found.gate.get("promoted"):
            raise Conflict(
                _("%(name)s has no evaluation that it did not pass.") % {"name": found.name},
                _("Reload the page to see how it stands."),
                code="nothing_to_promote",
            )
        promoted = {"by": by.username, "reason": reason, "at": timezone.now().isoformat()}
        found.gate = {**found.gate, "promoted": promoted}
        found.save(update_fields=["gate"])
        artifacts.tell_soon()
        audit.record(by, "artifact.promoted", found, reason=reason, job=found.gate.get("job"))


def of_artifact(artifact: Artifact) -> QuerySet[Evaluation]:
    """Newest first."""
    return Evaluation.objects.filter(artifact=artifact).select_related("attempt__job__server", "parent")


def as_json(evaluation: Evaluation) -> dict[str, Any]:
    job = evaluation.attempt.job
    sentence, faults = judged(evaluation) if evaluation.measured else (None, [])
    return {
        "id": evaluation.pk, "job": job.pk, "attempt": evaluation.attempt.n, "server": job.server.name,
        "simulated": job.server.simulated,
        "model": evaluation.artifact_id, "parent": evaluation.parent_id, "child_path": job.params.get("child"),
        "parent_path": job.params.get("parent"), "engine": evaluation.engine or None, "passed": evaluation.passed,
        "verdict": pick(sentence) if sentence else None, "faults": [pick(one) for one in faults],
        "budget": evaluation.budget, "measured": evaluation.measured,
        "notes": [pick(Text(*one)) for one in evaluation.notes], "took_s": evaluation.took_s,
        "created_at": evaluation.created_at.isoformat(),
    }  # fmt: skip
