"""REST: evaluations of models, and the gate that they pass."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Field, Query, Router, Schema

from console.answers import Answer
from console.idempotency import answer_once
from deployments.artifacts.prompts import LANGUAGES
from deployments.asked import Strict, user_of
from deployments.models import Artifact
from deployments.services import evaluating, evaluation_page, evaluations, jobs, model_changes

router = Router(tags=["models"])


class NewEvaluation(Strict):
    copy_id: int | None = Field(
        default=None, ge=1, description="Id of the copy; without it the first that can be asked"
    )
    parent_copy_id: int | None = Field(default=None, ge=1, description="Id of the parent's copy on that server")
    params: dict[str, Any] = Field(default_factory=dict, description="Parameters of the kind `evaluate`")
    ticket: str = Field(default="", max_length=100)
    wait: bool = True


class Reason(Strict):
    reason: str = Field(max_length=evaluations.MOST_REASON, description="Why it may be deployed all the same")


class AnswerFilter(Schema):
    differs: bool = Field(default=False, description="Only those that differ")
    garbled: bool = Field(default=False, description="Only those that are garbled")
    lang: str = Field(default="", pattern=f"({'|'.join(LANGUAGES)})?")
    offset: int = Field(default=0, ge=0, le=10_000)
    limit: int = Field(default=100, ge=1, le=500)


def _standing(artifact: Artifact) -> dict[str, Any]:
    return {"model": artifact.pk, "gate": artifact.gate, "promotable": evaluations.promotable(artifact),
            "why_not": evaluations.why_not(artifact) or None}  # fmt: skip


@router.post(
    "/models/{int:pk}/evaluations", summary="Evaluate a model against its parent", response={201: dict[str, Any]}
)
def create_evaluation(request: HttpRequest, pk: int, new: NewEvaluation) -> HttpResponse:
    def make() -> tuple[int, dict[str, Any]]:
        choice = evaluating.choose(model_changes.find(pk), str(new.copy_id or ""), str(new.parent_copy_id or ""))
        job = evaluating.queue(choice, new.params, by=user_of(request), ticket=new.ticket, wait=new.wait)
        return 201, jobs.as_json(job)

    status, body = answer_once(request, make)
    return Answer(body, status=status)


@router.get("/models/{int:pk}/evaluations", summary="How a model stands, and its evaluations")
def list_evaluations(request: HttpRequest, pk: int) -> HttpResponse:
    artifact = model_changes.find(pk)
    rows = evaluations.of_artifact(artifact)[:200]
    return Answer({**_standing(artifact), "evaluations": [evaluations.as_json(row) for row in rows]})


@router.post("/models/{int:pk}/promotion", summary="Promote a model against its evaluation")
def promote(request: HttpRequest, pk: int, why: Reason) -> HttpResponse:
    artifact = model_changes.find(pk)
    evaluations.promote(artifact, why.reason, by=user_of(request))
    return Answer(_standing(model_changes.find(pk)))


@router.get("/evaluations/{int:pk}", summary="One evaluation")
def get_evaluation(request: HttpRequest, pk: int) -> HttpResponse:
    return Answer(evaluations.as_json(evaluation_page.find(pk)))


@router.get("/evaluations/{int:pk}/answers", summary="Its prompts with both answers")
def list_answers(request: HttpRequest, pk: int, wanted: Query[AnswerFilter]) -> HttpResponse:
    rows = evaluation_page.answers(evaluation_page.find(pk), wanted.differs, wanted.garbled, wanted.lang)
    some = rows[wanted.offset : wanted.offset + wanted.limit]
    return Answer({"count": rows.count(), "answers": [{"n": row.n, **row.data} for row in some]})
