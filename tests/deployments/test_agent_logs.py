"""Logs of agents on their way into rows, and where they are read."""

import re
from datetime import timedelta

import pytest
from asgiref.sync import async_to_sync
from django.utils import timezone

from console.models import ApiToken
from deployments import ingest
from deployments.models import AgentChunk, AgentLog, Server
from deployments.services import agent_logs
from deployments.topics import agent_history, present_agent
from tests.job_fixtures import Spool

pytestmark = pytest.mark.django_db


@pytest.fixture
def piece():
    return Spool("g7")


def sent(answer):
    async def whole():
        return b"".join([part async for part in answer.streaming_content])

    return async_to_sync(whole)()


def store(server, *entries):
    return ingest.store({server.pk: list(entries)})


def test_a_piece_gets_its_row_with_its_first_chunk_and_is_stored_once(server, piece):
    entry = piece.chunk(("o", "link: connected"), ("o", "worker: ready"))
    store(server, entry)
    done = store(server, entry, piece.event(e="ended", state="succeeded", exit=None))
    log = AgentLog.objects.get()
    assert log.pk == f"g{server.pk}-7" and log.done and log.next_line == 4
    assert done.acked[(server.pk, "g7")] == log.acknowledged
    assert AgentChunk.objects.filter(log=log).count() == 2


def test_two_servers_have_pieces_of_the_same_number(server, piece):
    other = Server.objects.create(name="kp-other")
    store(server, piece.chunk(("o", "mine")))
    store(other, Spool("g7").chunk(("o", "theirs")))
    assert set(AgentLog.objects.values_list("pk", flat=True)) == {f"g{server.pk}-7", f"g{other.pk}-7"}


def test_the_topic_tells_the_newest_piece_and_its_lines(server, piece):
    store(server, piece.chunk(("o", "link: connected")))
    match = re.fullmatch(r"agent:(?P<id>\d+)", f"agent:{server.pk}")
    assert present_agent(match).attempt == f"g{server.pk}-7"
    (told,) = agent_history(match, f"g{server.pk}-7", 0)
    assert "link: connected" in told.data["text"]


def test_what_is_old_goes(server):
    long_ago = timezone.now() - timedelta(days=4000)
    AgentLog.objects.create(pk="g1-1", server=server, n=1, done=True, ended_at=long_ago)
    for n in range(2, 2 + agent_logs.KEPT_PIECES + 3):
        AgentLog.objects.create(pk=f"g1-{n}", server=server, n=n)
    assert agent_logs.prune() == 4 and agent_logs.prune() == 0
    assert AgentLog.objects.count() == agent_logs.KEPT_PIECES


def test_a_viewer_reads_it_on_its_page_and_by_rest(client, viewer, server, piece):
    client.force_login(viewer)
    reader = client
    page = f"/servers/{server.name}/agent-log"
    assert reader.get(page).status_code == 200  # before there is any
    store(server, piece.chunk(("o", "link: <b>connected</b>")))
    assert reader.get(page).context["log"]["piece"] == f"g{server.pk}-7"
    assert "connected" in reader.get(f"{page}/lines").json()["text"]
    assert b"connected" in sent(reader.get(f"{page}/raw"))
    assert reader.get(page).context["log"]["find"] == f"{page}/find"
    assert [hit["n"] for hit in reader.get(f"{page}/find?q=connected").json()["hits"]] == [1]
    assert reader.get(f"{page}/facets").json()["complete"]
    token = ApiToken.make(viewer, viewer.role)[1]
    answer = reader.get(f"/api/v1{page}", headers={"Authorization": f"Bearer {token}"})
    assert "connected" in answer.content.decode() and answer["X-Next-After"] == "1"
    assert reader.get(f"{page}?piece=g0-1").status_code == 404
