"""The playground: a page that talks to a deployment, or to two side by side, and the stream that it reads."""

import json
from typing import Any

from django.http import HttpRequest, HttpResponse, RawPostDataException, StreamingHttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from console.answers import Answer
from console.errors import ConsoleError, Invalid
from console.templatetags.frame import texts_for_scripts
from deployments.models import Deployment, Via
from deployments.page_texts_chat import CHAT
from deployments.services import benchmarks, endpoints
from deployments.services import playground as service
from deployments.views.lookup import user_of

MARKS = {
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # nginx in front would hold the stream back
    "X-Content-Type-Options": "nosniff",
}


@require_GET
def playground(request: HttpRequest, name: str) -> HttpResponse:
    """`with` names a second deployment beside it."""
    service.check_may_use(user_of(request))
    deployment = benchmarks.find_deployment(name)
    others = service.offered(deployment)
    beside = next((one for one in others if one.name == request.GET.get("with")), None)
    sides = [_side(one) for one in (deployment, beside) if one is not None]
    context = {
        "deployment": deployment,
        "others": others,
        "beside": beside,
        "sides": sides,
        "can_ask": any(side["replicas"] for side in sides),
        "texts": texts_for_scripts(CHAT),
    }
    response = render(request, "deployments/playground.html", context)
    response.headers["Cache-Control"] = "no-store"
    return response


def _side(deployment: Deployment) -> dict[str, Any]:
    replicas = service.targets(deployment)
    revision = deployment.revision
    return {
        "deployment": deployment,
        "replicas": replicas,
        "model": benchmarks.served_name(replicas[0]) if replicas else deployment.name,
        "base": endpoints.of(deployment, replicas),
        "sample": bool(revision and revision.artifact and revision.artifact.via == Via.SAMPLE),
        "warning": service.log_warning(revision.settings if revision else {}),
    }


@require_POST
def stream(request: HttpRequest, name: str) -> HttpResponse | StreamingHttpResponse:
    """POST JSON: messages and sampling, `replica` to name one. Answers with the engine's own event stream."""
    try:
        user = user_of(request)
        service.check_may_use(user)
        given = _read(request)
        target = service.choose(benchmarks.find_deployment(name), _replica(given))
        asked = service.check(given)
    except ConsoleError as error:
        return Answer(error.as_json(), status=error.status)
    response = StreamingHttpResponse(service.answer(target, asked, user.pk), content_type="text/event-stream")
    for header, value in MARKS.items():
        response.headers[header] = value
    return response


def _read(request: HttpRequest) -> Any:
    """Raises Invalid."""
    told = request.headers.get("Content-Length", "")
    if told and (not told.isdecimal() or int(told[:18]) > service.MOST_BODY):
        raise Invalid(
            _("The conversation is too long to be sent."), _("Begin a new conversation."), code="too_long", status=413
        )
    try:
        return json.loads(request.body)
    except (ValueError, RecursionError, RawPostDataException) as error:  # the last: it was read as a form
        raise Invalid(_("The request is no JSON."), _("Send it from the page."), code="invalid_chat") from error


def _replica(given: Any) -> int | None:
    value = given.get("replica") if isinstance(given, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None
