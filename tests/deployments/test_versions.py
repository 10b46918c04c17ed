"""Versions of agents: what pages and REST say of them, and how an upgrade is started from there."""

import json
import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from deployments.agent import PROTOCOL, VERSION, signing
from deployments.models import Batch, Job, Server
from deployments.services import versions
from tests.console.test_api import caller

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]

OLD = {"agent_version": "0.0.9", "agent_code": "a" * 16, "agent_protocol": 2}


@pytest.fixture
def fleet(db):
    now = timezone.now()
    code = versions.target().code
    made = [Server(name=f"kp-{n:02}", rack=f"A{n}", last_seen_at=now, **OLD) for n in range(3)]
    more = [
        ("kp-ok", {"agent_version": VERSION, "agent_code": code, "agent_protocol": PROTOCOL}),
        ("kp-new", {"agent_version": "9.0.0", "agent_code": "b" * 16, "agent_protocol": PROTOCOL}),
        ("kp-next", {"agent_version": VERSION, "agent_code": "c" * 16, "agent_protocol": PROTOCOL + 1}),
        ("kp-build", {"agent_version": VERSION, "agent_code": "d" * 16, "agent_protocol": PROTOCOL}),
        ("kp-first", {"agent_version": "0.1.0", "agent_protocol": 1}),
        ("kp-never", {}),
        ("kp-gone", {"decommissioned_at": now, **OLD}),  # no part of the fleet: it is neither counted nor offered
        ("sim-01", {"simulated": True, "agent_version": VERSION}),
        ("here", {"is_local": True, "agent_version": VERSION, "agent_protocol": PROTOCOL}),
    ]
    made += [Server(name=name, last_seen_at=now, **fields) for name, fields in more]
    return Server.objects.bulk_create(made)


@pytest.fixture
def page(client, operator):
    client.cookies["django_language"] = "en"
    client.force_login(operator)
    return client


def text(response):
    return " ".join(re.sub(r"<[^>]+>", " ", response.content.decode()).split())


def test_each_agent_has_its_state(fleet):
    states = {row.server.name: row.state for row in versions.rows(versions.target())}
    assert states == {
        "kp-00": "behind", "kp-01": "behind", "kp-02": "behind", "kp-ok": "current", "kp-new": "newer",
        "kp-next": "newer", "kp-build": "behind", "kp-first": "rejoin", "kp-never": "unknown", "sim-01": "own",
        "here": "own",
    }  # fmt: skip
    assert versions.numbers("0.10.2") > versions.numbers("0.9.9") and versions.numbers("x.1") == (0, 1)


def test_the_page_counts_versions_and_names_each_server(page, fleet):
    with CaptureQueriesContext(
        connection,
    ) as few:
        shown = page.get("/servers/agents/")
    said = text(shown)
    assert "Upgrade 4 agents…" in said and "1 simulated server besides" in said
    assert "too old to upgrade from here" in said and "newer than the console" in said
    assert 'name="name" value="kp-00"' in shown.content.decode()
    assert 'name="name" value="kp-ok"' not in shown.content.decode()
    now = timezone.now()
    Server.objects.bulk_create(Server(name=f"more-{n}", last_seen_at=now, **OLD) for n in range(600))
    with CaptureQueriesContext(connection) as many:
        said = text(page.get("/servers/agents/"))
    assert len(many) == len(few)
    assert "110 more are not shown" in said
    assert "more-1" not in text(page.get("/servers/agents/?state=newer"))
    assert "No server runs that." in text(page.get("/servers/agents/?state=none&code=<script>"))


def test_a_viewer_sees_the_page_and_changes_nothing(client, viewer, fleet):
    client.cookies["django_language"] = "en"
    client.force_login(viewer)
    shown = client.get("/servers/agents/")
    assert shown.status_code == 200 and "Upgrade" not in text(shown)
    assert client.get("/servers/agents/upgrade?all=1").status_code == 403
    assert client.post("/servers/agents/upgrade", {"all": "1"}).status_code == 403
    client.post("/servers/kp-00/upgrade")
    assert not Job.objects.exists() and not Batch.objects.exists()


def test_an_upgrade_of_all_that_are_behind_goes_in_waves(page, fleet):
    shown = page.get("/servers/agents/upgrade?all=1")
    assert "It will hit 4 servers" in text(shown) and "Canary" in text(shown)
    seen = re.search(r'name="seen" value="(\w+)"', shown.content.decode())[1]
    names = re.findall(r'name="name" value="([\w-]+)"', shown.content.decode())
    blind = page.post("/servers/agents/upgrade", {"name": names[:2], "seen": seen, "full": "1"})
    assert blind.status_code == 409 and not Batch.objects.exists()
    done = page.post("/servers/agents/upgrade", {"name": names, "seen": seen, "full": "1", "wave": "2"})
    batch = Batch.objects.get()
    assert done.status_code == 302 and done.url == f"/batches/{batch.pk}/"
    wanted = versions.target()
    assert batch.kind == "agent_upgrade" and batch.params == {"digest": wanted.digest, "version": VERSION}
    assert (batch.canary, batch.wave_size, batch.jobs.count()) == (1, 2, 4)
    assert "An upgrade is under way." in text(page.get("/servers/agents/"))
    assert "Upgrade the agent" in text(page.get(done.url))


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("name=kp-ok", "up to date"),
        ("name=here", "comes with the console"),
        ("name=sim-01", "comes with the console"),
        ("name=kp-first", "cannot be upgraded from here"),
        ("name=kp-never", "cannot be upgraded from here"),
        ("name=nobody", "no server called nobody"),
        ("name=kp-00&wave=x", "not a whole number"),
        ("name=kp-00&wave=0", "wave is 0"),
        ("", "No server was chosen"),
    ],
)
def test_what_cannot_be_upgraded_is_said(page, fleet, asked, words):
    shown = page.get(f"/servers/agents/upgrade?{asked}")
    assert words in text(shown) and 200 <= shown.status_code < 500
    assert "Upgrade 0" not in text(shown)


def test_one_agent_is_upgraded_from_its_servers_page(page, fleet):
    shown = page.get("/servers/kp-00/").content.decode()
    assert "/servers/kp-00/upgrade" in shown and "0.0.9" in shown
    assert "/servers/kp-ok/upgrade" not in page.get("/servers/kp-ok/").content.decode()
    done = page.post("/servers/kp-00/upgrade")
    job = Job.objects.get()
    assert done.url == f"/jobs/{job.pk}/" and job.kind == "agent_upgrade" and job.locks == ["agent"]
    again = page.post("/servers/kp-00/upgrade", follow=True)
    assert Job.objects.filter(waiting=True).count() == 1 and again.status_code == 200  # behind the first
    refused = page.post("/servers/kp-ok/upgrade", follow=True)
    assert "up to date" in text(refused)
    assert page.post("/servers/nobody/upgrade").status_code == 404


def test_the_form_of_a_job_does_not_offer_it(page, fleet):
    for path in ("/jobs/new", "/batches/new"):
        shown = page.get(path).content.decode()
        assert 'value="check"' in shown and 'value="agent_upgrade"' not in shown


def test_rest_lists_and_upgrades(fleet):
    api = caller("operator")
    told = api.get("/api/v1/agents").json()
    assert told["console"]["version"] == VERSION and told["console"]["protocol"] == PROTOCOL
    assert {one["server"]: one["state"] for one in told["agents"]}["kp-00"] == "behind"
    assert sum(one["servers"] for one in told["counts"]) == 10  # simulated servers count in no total

    def post(**body):
        return api.post("/api/v1/agents/upgrade", json.dumps(body), content_type="application/json")

    for body, status in (({"servers": ["kp-ok"]}, 409), ({"servers": ["nobody"]}, 404), ({"servers": []}, 422),
                         ({"server": "kp-00"}, 422), ({"wave": 0}, 422)):  # fmt: skip
        refused = post(**body)
        assert refused.status_code == status and refused.json()["error"]["do"], (body, refused.content)
    made = post(servers=["kp-00", "kp-new"], canary=0, ticket="OPS-3")
    assert made.status_code == 201 and made.json()["kind"] == "agent_upgrade" and made.json()["servers"] == 2
    assert caller("viewer").post("/api/v1/agents/upgrade", "{}", content_type="application/json").status_code == 403


def test_a_server_gets_the_code_for_its_signature_alone(client, fleet):
    server, wanted = Server.objects.get(name="kp-00"), versions.target()
    client.cookies["django_language"] = "en"

    def ask(body, key=server.key, mac=None):
        sent = {"body": body, "mac": mac or signing.sign(key, body)}
        english = {"Accept-Language": "en"}
        return client.post("/join/code", json.dumps(sent), content_type="application/json", headers=english)

    good = json.dumps({"op": "code", "server": server.pk, "digest": wanted.digest})
    answer = ask(good)
    assert answer.status_code == 200 and answer["Content-Type"] == "application/gzip" and len(answer.content) > 100_000
    for refused in (
        ask(good, key="0" * 64),
        ask(good, mac="é"),
        ask(json.dumps({"op": "leave", "server": server.pk, "digest": wanted.digest})),
        ask(json.dumps({"op": "code", "server": 10**30, "digest": wanted.digest})),
        ask(json.dumps({"op": "code", "server": "x", "digest": wanted.digest})),
        ask(json.dumps([1])),
        ask("no json"),
    ):
        assert refused.status_code == 403 and len(refused.content) < 500
    other = ask(json.dumps({"op": "code", "server": server.pk, "digest": "0" * 64}))
    assert other.status_code == 409 and b"Start a new upgrade" in other.content
    for body in (b"", b"[]", b'{"body": 1}', b"\xff"):
        assert client.post("/join/code", body, content_type="application/json").status_code in (400, 403)
    assert client.get("/join/code").status_code == 405


def test_no_server_may_be_called_as_the_page(db):
    from console.errors import Conflict
    from console.models import User
    from deployments.services import join

    ada = User.objects.create_user("ada", password="a-long-password", role="administrator")
    with pytest.raises(Conflict):
        join.make("agents", by=ada)
