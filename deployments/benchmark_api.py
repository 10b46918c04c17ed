"""REST: benchmarks of deployments, and what helps a replica that failed."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Field, Router

from console.answers import Answer
from console.idempotency import answer_once
from deployments.asked import Strict, user_of
from deployments.services import benchmarks, jobs, remedying
from deployments.services.deployment_json import revision as revision_json

router = Router(tags=["deployments"])


class NewBenchmark(Strict):
    params: dict[str, Any] = Field(default_factory=dict, description="Parameters of the kind `benchmark`")
    gateway_key: str | None = Field(
        default=None, max_length=200, description="Measure through the gateway, with this key; it is kept sealed"
    )
    ticket: str = Field(default="", max_length=100)


class Chosen(Strict):
    remedy: str = Field(max_length=80, description="The `key` of a remedy that changes settings")


@router.post("/deployments/{name}/benchmarks", summary="Measure a deployment", response={201: dict[str, Any]})
def create_benchmark(request: HttpRequest, name: str, new: NewBenchmark) -> HttpResponse:
    def make() -> tuple[int, dict[str, Any]]:
        deployment = benchmarks.find_deployment(name)
        row = benchmarks.queue(
            deployment, new.params, by=user_of(request), gateway_key=new.gateway_key, ticket=new.ticket
        )
        return 201, benchmarks.as_json(benchmarks.find(row.pk))

    status, body = answer_once(request, make)
    return Answer(body, status=status)


@router.get("/deployments/{name}/benchmarks", summary="Its benchmarks, newest first")
def list_benchmarks(request: HttpRequest, name: str, limit: int = 50) -> HttpResponse:
    deployment = benchmarks.find_deployment(name)
    rows = benchmarks.of_deployment(deployment).select_related("deployment")
    some = rows[: max(1, min(limit, benchmarks.MOST_ROWS))]
    return Answer({"benchmarks": [benchmarks.as_json(row) for row in some]})


@router.get("/benchmarks/{int:pk}", summary="One benchmark")
def get_benchmark(request: HttpRequest, pk: int) -> HttpResponse:
    return Answer(benchmarks.as_json(benchmarks.find(pk)))


@router.get("/benchmarks/{int:pk}/compare/{int:before}", summary="One benchmark against an earlier one")
def compare_benchmarks(request: HttpRequest, pk: int, before: int) -> HttpResponse:
    old, new = benchmarks.find(before), benchmarks.find(pk)
    pairs = [
        {"concurrency": pair.concurrency, "changes": [one.__dict__ for one in pair.changes]}
        for pair in benchmarks.compare(old, new)
    ]
    return Answer({"before": old.pk, "after": new.pk, "unlike": benchmarks.unlike(old, new), "pairs": pairs})


@router.get("/deployments/{name}/replicas/{int:n}/remedies", summary="What its log says, and what helps")
def list_remedies(request: HttpRequest, name: str, n: int) -> HttpResponse:
    replica = remedying.find_replica(benchmarks.find_deployment(name), n)
    return Answer(remedying.as_json(replica))


@router.post(
    "/deployments/{name}/replicas/{int:n}/remedies", summary="Make a revision with a remedy",
    response={201: dict[str, Any]},
)  # fmt: skip
def apply_remedy(request: HttpRequest, name: str, n: int, chosen: Chosen) -> HttpResponse:
    def make() -> tuple[int, dict[str, Any]]:
        by = user_of(request)
        jobs.check_may_operate(by)
        replica = remedying.find_replica(benchmarks.find_deployment(name), n)
        return 201, revision_json(remedying.apply(replica, chosen.remedy, by=by))

    status, body = answer_once(request, make)
    return Answer(body, status=status)
