"""REST: servers and their NPUs as they are now."""

import time
from collections import Counter
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from ninja import Field, Query, Router, Schema

from console import alerts
from console.answers import Answer
from console.errors import ConsoleError
from console.models import Alert
from deployments.asked import Strict, find_server, user_of
from deployments.models import Attempt, Server
from deployments.services import faults, installs, inventory, selection, servers, stacks
from deployments.stacks import plan
from monitoring.services import cards, diagnosing, live_state, plots, series, stack_holders

router = Router(tags=["servers"])


class PlanChoices(Schema):
    """What an operator may choose; what is left out is as the catalogue says."""

    route: str = Field(default="", max_length=20, description="auto, venv or container")
    driver: str = Field(default="", max_length=40, description="Version of the driver that is wished")
    firmware: str = Field(default="", max_length=40, description="Version of the firmware that is wished")
    cann: str = Field(default="", max_length=20, description="own: in the stack's folder; shared: /usr/local/Ascend")
    layering: str = Field(default="", max_length=20, description="empty or wheels: how vLLM comes without its torch")
    packages: str = Field(default="", max_length=300, description="Folder on the server with packages of the vendor")
    wheelhouse: str = Field(default="", max_length=300, description="Folder on the server in place of every index")
    index: str = Field(default="", max_length=300, description="Index of Python packages")
    extra_index: str = Field(default="", max_length=300, description="Further indexes, with blanks between")
    bundle: str = Field(default="", max_length=120, description="Name of a bundle of GET /bundles, in place of indexes")
    registry: str = Field(default="", max_length=300, description="Registry of images")
    image_archive: str = Field(default="", max_length=300, description="Archive on the server to load the image from")
    python: str = Field(default="", max_length=300, description="Path or version of the Python to use")
    smoke_model: str = Field(default="", max_length=300, description="Folder on the server with a model to try it with")


@router.get("/servers", summary="Servers with their state and NPU counts")
def list_servers(request: HttpRequest, simulated: bool | None = None, find: str = "") -> HttpResponse:
    """`find` are words as those of the fleet page's filter, such as `rack:A1 label:env=prod`."""
    nows = [now for now in live_state.all_now() if simulated is None or now["simulated"] == simulated]
    if find:
        nows = [now for now in nows if _has(now, find[:200])]
    return Answer({"servers": [_brief(now) for now in nows]})


@router.get("/servers/{name}", summary="One server with its NPUs, processes and facts")
def show(request: HttpRequest, name: str) -> HttpResponse:
    return _whole(find_server(name))


@router.get("/servers/{name}/series", summary="Columns of its NPUs and engines over a time, and what happened then")
def server_series(request: HttpRequest, name: str, since: str = "", until: str = "", span: str = "") -> HttpResponse:
    """`since` and `until` in seconds since 1970, or `span` in seconds up to now (6 hours); null: nothing was heard."""
    asked = series.asked({"since": since, "until": until, "span": span})
    return Answer(plots.whole(find_server(name), *asked))


class Change(Strict):
    """What a PATCH may hold; what is left out stays."""

    display_name: str | None = Field(default=None, max_length=100)
    site: str | None = Field(default=None, max_length=63)
    rack: str | None = Field(default=None, max_length=63)
    labels: dict[str, str] | None = Field(default=None, description="All labels; those left out go")
    address_roles: dict[str, str] | None = Field(
        default=None, description="Address to `management`, `service` or `bmc`; those left out are guessed again"
    )
    notes: str | None = Field(default=None, max_length=4000)
    ticket: str = Field(default="", max_length=100)


@router.patch("/servers/{name}", summary="Change what people say about a server")
def change(request: HttpRequest, name: str, wanted: Change) -> HttpResponse:
    """`If-Match` is the `ETag` that GET gave; another's change in between is answered 412."""
    server = find_server(name)
    version = request.headers.get("If-Match", "").strip().removeprefix("W/").strip('"')
    if not version:
        raise ConsoleError(
            _("The call does not say which state of the server it changes."),
            _("Send the ETag of GET /api/v1/servers/NAME as If-Match."),
            code="if_match_needed",
            status=428,
        )
    sent = wanted.model_dump(exclude_unset=True)
    ticket = sent.pop("ticket", "")
    values = {field: value for field, value in sent.items() if value is not None}
    expected = None if version == "*" else version
    return _whole(inventory.edit(server, values, by=user_of(request), ticket=ticket, version=expected))


def _whole(server: Server) -> HttpResponse:
    now = live_state.now(server)
    answer = Answer(
        {
            **_brief(now),
            **{key: now[key] for key in ("npus", "processes", "host", "version", "error")},
            **inventory.values_of(server),
            "hostname": server.hostname,
            "addresses": inventory.guessed_roles(server),
            "maintenance": server.maintenance,
            "drain": servers.drain_word(server),
            "cordons": server.cordons,
            "quarantine": server.quarantine,
            "decommissioned_at": server.decommissioned_at.isoformat() if server.decommissioned_at else None,
            "cards_lost": cards.lost(server.facts, now),
            "facts": server.facts,
            "facts_at": server.facts_at.isoformat() if server.facts_at else None,
        }
    )
    answer.headers["ETag"] = f'"{inventory.version_of(server)}"'
    return answer


@router.get("/servers/{name}/stack-plan", tags=["stacks"], summary="The steps that bring a server to a stack")
def stack_plan(request: HttpRequest, name: str, stack: str, choices: Query[PlanChoices]) -> HttpResponse:
    server, wanted = find_server(name), stacks.find(stack)
    options = installs.options_for(server, choices.dict(), wanted)
    made = stacks.plan_for(server, wanted, options, stack_holders.of(server))
    offered = [name for name, _title in faults.possible(made)] if server.simulated else []
    return Answer({"server": server.name, "simulated": server.simulated, "faults": offered, **plan.as_json(made)})


@router.get("/stacks", tags=["stacks"], summary="Every stack, and how many servers match or can be brought to it")
def list_stacks(request: HttpRequest) -> HttpResponse:
    return Answer(stacks.catalogue_json(stacks.rows()))


@router.get("/stacks/{name}", tags=["stacks"], summary="One stack, with a verdict for each server")
def show_stack(request: HttpRequest, name: str) -> HttpResponse:
    stack, rows = stacks.find(name), stacks.rows()
    verdicts = [stacks.verdict_json(row, stacks.verdict_of(row, stack)) for row in rows]
    tally = Counter(str(one["verdict"]) for one in verdicts)
    return Answer({**stacks.stack_json(stack, tally), "verdicts": verdicts})


@router.get("/alerts", tags=["alerts"], summary="Alerts, newest first; those that fire, or those that ended")
def list_alerts(request: HttpRequest, firing: bool = True, limit: int = 100, before: int | None = None) -> HttpResponse:
    rows = Alert.objects.filter(ended_at__isnull=firing)
    if before is not None:
        rows = rows.filter(pk__lt=before)
    limit = max(1, min(limit, 500))
    found = list(rows[: limit + 1])
    older = found[limit - 1].pk if len(found) > limit else None
    return Answer({"alerts": [alerts.as_json(alert) for alert in found[:limit]], "before": older})


@router.post("/alerts/{pk}/resolve", tags=["alerts"], summary="Say that an alert is settled")
def resolve_alert(request: HttpRequest, pk: int) -> HttpResponse:
    return Answer(alerts.as_json(alerts.resolve_by_hand(request.auth, pk)))  # type: ignore[attr-defined]


def _has(now: live_state.Now, words: str) -> bool:
    text = " ".join(now[name] for name in ("name", "display", "family", "rack", "site", "labels"))
    return selection.has_words(text, words, rack=now["rack"], site=now["site"], labels=now["labels"])


def _brief(now: live_state.Now) -> dict[str, Any]:
    seen = now["seen"]
    return {
        "id": now["id"],
        "name": now["name"],
        "simulated": now["simulated"],
        "state": now["state"],
        "age_s": round(time.time() - seen, 1) if seen else None,
        "family": now["family"],
        "rack": now["rack"],
        "site": now["site"],
        "labels": dict(word.partition("=")[::2] for word in now["labels"].split()),
        "display_name": now["display"],
        "mark": now["mark"],
        "npu_count": len(now["npus"]),
        "free": sum(npu["occ"] == "free" for npu in now["npus"]),
    }


@router.get("/jobs/{int:job_id}/diagnosis", summary="What is known of a failed job by its log, best first")
def job_diagnosis(request: HttpRequest, job_id: int) -> HttpResponse:
    """`findings` as `manage.py diagnose` prints them; null where the newest run did not fail or was not looked at."""
    attempt = Attempt.objects.filter(job_id=job_id).order_by("-n").first()
    found = diagnosing.of(attempt)
    return Answer({"job": job_id, "diagnosis": diagnosing.as_json(found) if found else None})
