"""REST: support bundles for vendors."""

from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from ninja import Field, Router

from console.answers import Answer
from console.idempotency import answer_once
from deployments.asked import Strict, user_of
from deployments.services import jobs, support_archive, support_bundles, support_subjects

router = Router(tags=["support bundles"])
MOST = 100


class NewBundle(Strict):
    """One of these: what it is about."""

    job: int | None = Field(default=None, ge=1)
    server: str = Field(default="", max_length=63)
    deployment: str = Field(default="", max_length=63)
    replica: int | None = Field(default=None, ge=1, description="Of the deployment; left out: all that are there")
    alert: int | None = Field(default=None, ge=1)
    case_number: str = Field(default="", description="The vendor's, kept with it")
    note: str = ""
    hosts: bool = Field(default=False, description="Leave host names and addresses as they are")


class Description(Strict):
    case_number: str = ""
    note: str = ""


@router.get("/support-bundles", summary="Support bundles, newest first; ?q= finds a case number, a note or a number")
def list_bundles(request: HttpRequest, q: str = "", n: int = MOST) -> HttpResponse:
    bundles = list(support_bundles.listed(q)[: max(1, min(n, MOST))])
    found = support_bundles.rows_of_many(bundles)
    rows = []
    for bundle in bundles:
        told = support_bundles.as_json(bundle, [])
        parts = found[bundle.pk]
        size = sum(row.part.bytes for row in parts)
        rows.append({**told, "ready": support_bundles.is_ready(parts), "bytes": size, "parts": len(parts)})
    return Answer({"support_bundles": rows})


@router.post("/support-bundles", summary="Collect for a support bundle", response={201: dict[str, Any]})
def make(request: HttpRequest, new: NewBundle) -> HttpResponse:
    jobs.check_may_operate(user_of(request))

    def made() -> tuple[int, dict[str, Any]]:
        subject = support_subjects.read(new.job, new.server, new.deployment, new.replica, new.alert)
        bundle = support_bundles.make(
            subject, by=user_of(request), case_number=new.case_number, note=new.note, hosts=new.hosts
        )
        return 201, support_bundles.as_json(bundle, support_bundles.rows(bundle))

    status, body = answer_once(request, made)
    return Answer(body, status=status)


@router.get("/support-bundles/{bundle_id}", summary="One with its parts, what is in them and what could not be had")
def show(request: HttpRequest, bundle_id: int) -> HttpResponse:
    bundle = support_bundles.find(bundle_id)
    return Answer(support_bundles.as_json(bundle, support_bundles.rows(bundle)))


@router.get("/support-bundles/{bundle_id}/archive", summary="The archive, with what has arrived by now")
def archive(request: HttpRequest, bundle_id: int) -> HttpResponseBase:
    bundle = support_bundles.find(bundle_id)
    data = support_archive.download(bundle, by=user_of(request))
    response = StreamingHttpResponse(data, content_type="application/zip")
    response.headers["Content-Disposition"] = f'attachment; filename="{support_archive.file_name(bundle)}"'
    return response


@router.patch("/support-bundles/{bundle_id}", summary="Keep a case number and a note with it")
def describe(request: HttpRequest, bundle_id: int, given: Description) -> HttpResponse:
    bundle = support_bundles.describe(
        support_bundles.find(bundle_id), given.case_number, given.note, by=user_of(request)
    )
    return Answer(support_bundles.as_json(bundle, support_bundles.rows(bundle)))


@router.delete("/support-bundles/{bundle_id}", summary="Delete it with its files")
def delete(request: HttpRequest, bundle_id: int) -> HttpResponse:
    support_bundles.delete(support_bundles.find(bundle_id), by=user_of(request))
    return Answer({"deleted": bundle_id})
