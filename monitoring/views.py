"""The fleet and server pages, and what their scripts ask for."""

import time
from typing import Any

from django.contrib import messages
from django.db.models import Count
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_GET, require_POST

from console import spreadsheet
from console.errors import Invalid, NotAllowed
from console.templatetags.frame import texts_for_scripts
from deployments import kinds
from deployments.models import Job, JobState
from deployments.services import (
    clones,
    deployment_list,
    engine_figures,
    enrol,
    filters,
    host_changes,
    inventory,
    versions,
)
from deployments.services import history as history_of
from deployments.services import servers as switches
from deployments.views.lookup import find_server, user_of
from deployments.views.server_inventory import change_row
from monitoring import history
from monitoring.services import (
    cards,
    facts_page,
    fleet_page,
    fleet_query,
    fleet_strip,
    link_matrix,
    live_state,
    page_texts,
    search,
    server_page,
)

MAX_IDS = 200
SAVED_SHOWN = 100
JOBS_SHOWN = 10
CHANGES_SHOWN = 5


@require_GET
def fleet(request: HttpRequest) -> HttpResponse:
    return _fleet(request, listing=False)


@require_GET
def server_list(request: HttpRequest) -> HttpResponse:
    """The fleet as a table, at an address of its own."""
    return _fleet(request, listing=True)


def _fleet(request: HttpRequest, *, listing: bool) -> HttpResponse:
    query = {**request.GET.dict(), "view": "table"} if listing else request.GET.dict()
    asked, problems = fleet_query.read(query)
    at = time.time()
    servers = fleet_page.page_servers(live_state.all_now(), at)
    wall = len(servers) > fleet_page.ROWS_AT_MOST and asked.view == "squares"
    simulated = sum(server["sim"] for server in servers)
    context = {
        "asked": asked,
        "problems": problems,
        "listing": listing,
        "wall": wall,
        "servers": len(servers),
        "simulated": simulated,
        # This machine is one real server; with a second one the demo has done its work.
        "demo_is_done": simulated and len(servers) - simulated > 1,
        "shown": sum(fleet_query.matches(server, asked) for server in servers),
        "groups": [] if wall else [_group(group, asked) for group in fleet_query.arrange(servers, asked)],
        "strips": fleet_strip.strips(servers, asked, _jobs_under_way()),
        "choices": page_texts.choices(),
        "saved": [(row, "?" + row.query) for row in filters.visible_to(user_of(request))[:SAVED_SHOWN]],
        "here": asked.address()[1:],
        "back": request.get_full_path(),
        "data": {**fleet_page.block(servers, at), "limits": live_state.RANGES},
        "states": _looks(),
        "texts": texts_for_scripts(page_texts.FLEET),
    }
    return render(request, "monitoring/fleet.html", context)


def _group(group: fleet_query.Group, asked: fleet_query.Asked) -> dict[str, Any]:
    rows = [_row(server, hidden=not fleet_query.matches(server, asked)) for server in group.servers]
    return {"group": group, "rows": rows, "hidden": all(row["hidden"] for row in rows)}


def _row(server: fleet_page.PageServer, *, hidden: bool) -> dict[str, Any]:
    tally: dict[str, int] | dict[str, None] = fleet_page.counts([server])
    if not server["npus"] and (server["state"] == "never" or server["error"]):
        tally = dict.fromkeys(tally)  # nobody knows how many there are
    look = page_texts.look_of(server["state"], faulty=bool(tally["faulty"]), error=server["error"])
    age = server["age"]
    return {
        "server": server,
        "sum": fleet_page.summary(server),
        "look": look,
        "age": page_texts.age_of(server["state"], age),
        "late": age is None or age > page_texts.LATE_S,
        "tally": tally,
        "hidden": hidden,
    }


def _jobs_under_way() -> dict[bool, dict[str, int]]:
    """{simulated: {"running": n, "queued": n}}, one query."""
    states = (JobState.RUNNING, JobState.QUEUED)
    jobs = Job.objects.filter(state__in=states).order_by()
    rows = jobs.values_list("server__simulated", "state").annotate(n=Count("id"))
    result: dict[bool, dict[str, int]] = {flag: {state.value: 0 for state in states} for flag in (False, True)}
    for simulated, state, n in rows:
        result[simulated][state] = n
    return result


@require_GET
def fleet_json(request: HttpRequest) -> JsonResponse:
    """The fleet page's JSON block afresh; with ?ids=7,9 only these servers, with no `gen`."""
    at = time.time()
    servers = fleet_page.page_servers(live_state.all_now(), at)
    ids = _ids(request.GET.get("ids"))
    if ids is None:
        return JsonResponse(fleet_page.block(servers, at))
    return JsonResponse({"at": at, "servers": [server for server in servers if server["id"] in ids]})


def _ids(text: str | None) -> set[int] | None:
    if text is None:
        return None
    words = text.split(",")
    if len(words) > MAX_IDS or not all(word.isascii() and word.isdigit() and len(word) < 12 for word in words):
        what, do = _("“ids” is not a list of server numbers."), _("Send up to 200 of them, for example ids=7,9.")
        raise Invalid(what, do, code="bad_ids")
    return {int(word) for word in words}


@require_GET
def fleet_jobs(request: HttpRequest) -> JsonResponse:
    jobs = _jobs_under_way()
    return JsonResponse({"real": jobs[False], "simulated": jobs[True]})


@require_GET
def fleet_csv(request: HttpRequest) -> StreamingHttpResponse:
    """One line per NPU of the servers that the address's filters keep."""
    asked, _problems = fleet_query.read(request.GET)
    nows = live_state.all_now()
    servers = fleet_page.page_servers(nows, time.time())
    in_order = [server for group in fleet_query.arrange(servers, asked) for server in group.servers]
    wanted = [server for server in in_order if fleet_query.matches(server, asked)]
    rows = fleet_query.csv_rows(wanted, {now["id"]: now for now in nows})
    return spreadsheet.answer(f"fleet-{time.strftime('%Y%m%d-%H%M%S')}.csv", fleet_query.CSV_HEAD, rows)


@require_POST
def demo_remove(request: HttpRequest) -> HttpResponse:
    """Take the demo fleet away, all at once."""
    user = user_of(request)
    if not user.may("administrator"):
        raise NotAllowed(_("Only an administrator may remove the simulated servers."), _("Ask one to do it."))
    n = enrol.remove_demo(by=user)
    told = ngettext(
        "%(n)s simulated server was removed, with its jobs.",
        "%(n)s simulated servers were removed, with their jobs.",
        n,
    ) % {"n": n}
    back = _("To have them back, delete %(path)s and start the console again.") % {"path": enrol.removed_mark()}
    messages.success(request, f"{told} {back}")
    return redirect("monitoring:fleet")


@require_GET
def server_detail(request: HttpRequest, name: str) -> HttpResponse:
    server = find_server(name)
    now = live_state.now(server)
    agent = versions.shown(server)
    minutes = history.recent(server.pk, server_page.SPARK_S // 60)
    jobs = list(server.jobs.select_related("requester")[:JOBS_SHOWN])
    replicas = deployment_list.on_server(server)
    loads = engine_figures.read(replicas)
    context = {
        "server": server,
        "rotation": getattr(server, "rotation", None),
        "now": now,
        "look": page_texts.STATES[now["state"]],
        "tiles": server_page.tiles(now, server.cordons),
        "processes": server_page.processes(now),
        "unreadable": server_page.unreadable(now),
        "facts": server_page.facts(server.facts),
        "cards_lost": cards.lost(server.facts, now),
        "changes": [change_row(row) for row in history_of.page(server, limit=CHANGES_SHOWN)[0]],
        "labels": inventory.label_words(server.labels).split(),
        "addresses": [row for row in inventory.guessed_roles(server) if row["role"]],
        "clash": clones.shown(server),
        "drain": switches.drain_word(server),
        "busy": len(switches.busy_jobs(server)) if server.draining and not server.drained_at else 0,
        "host_now": host_changes.now(server) if server.host_failure else None,
        "is_gone": server.is_gone,
        "has_left": not server.is_gone and history_of.has_left(server),
        "host": server_page.host_figures(now["host"]),
        "matrix": link_matrix.matrix(server.facts.get("topology")),
        "agent_look": agent.look if agent and agent.state != "unknown" else None,
        "agent_upgrade": agent.can_upgrade if agent else False,
        "driver": server_page.driver(server.facts, now),
        "offset": server_page.offset_words(server.clock_offset_s),
        "jobs": jobs,
        "replicas": [(one, engine_figures.of(one, loads)) for one in replicas],
        "restarting": next((job for job in jobs if job.state == JobState.WAITING_REBOOT and job.reboot), None),
        "waiting_jobs": server.jobs.filter(state=JobState.QUEUED, waiting=True).count() if server.queue_paused else 0,
        "data": {"now": now, "at": time.time(), "sparks": server_page.sparks((row.at, row.data) for row in minutes)},
        "states": _looks(),
        "root_kinds": [] if server.has_root or not server.facts else kinds.that_need_root(),
        "texts": texts_for_scripts(page_texts.SERVER),
    }
    return render(request, "monitoring/server.html", context)


@require_GET
def server_facts(request: HttpRequest, name: str) -> HttpResponse:
    """All that the agent found, how old it is, and why what is missing is missing."""
    server = find_server(name)
    now = live_state.now(server)
    groups = facts_page.groups(server.facts)
    tables = facts_page.tables(server.facts, now, inventory.guessed_roles(server))
    context = {
        "server": server,
        "groups": groups,
        "tables": tables,
        "cards_lost": cards.lost(server.facts, now),
        "text": facts_page.as_text(server.name, groups, tables),
    }
    return render(request, "monitoring/server_facts.html", context)


@require_GET
def server_now(request: HttpRequest, name: str) -> JsonResponse:
    """The server's "now", as the topic server:<id> sends it."""
    return JsonResponse(live_state.now(find_server(name)))


def _looks() -> dict[str, list[str]]:
    """{state: [symbol, class, word]} for scripts; faulty and unreadable too."""
    looks = {**page_texts.STATES, "faulty": page_texts.FAULTY, "unreadable": page_texts.UNREADABLE}
    return {name: [look.icon, look.css, str(look.word)] for name, look in looks.items()}


@require_GET
def palette(request: HttpRequest) -> JsonResponse:
    """What Ctrl K finds for ?q=: pages, servers, NPUs by bus id, jobs by number or ticket."""
    return JsonResponse({"results": search.find(request.GET.get("q", "")[:100])})
