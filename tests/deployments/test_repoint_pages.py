"""Sending agents to another address: the page, the command, and what comes of the order."""

import json
import os
import re
import subprocess
import sys
import time

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from console import streams
from console.models import Alert, User
from deployments.agent import signing
from deployments.models import Order, OrderState, Server
from deployments.services import orders
from tests.conftest import ROOT
from tests.console.test_ingest import Turns

pytestmark = [pytest.mark.django_db(transaction=True)]

NEW = "rediss://new.example:6380/0"
PATH = "/servers/agents/addresses"


@pytest.fixture
def admin(client, valkey):
    client.cookies["django_language"] = "en"
    client.force_login(User.objects.create_user("ada", password="a-long-password", role="administrator"))
    return client


@pytest.fixture
def fleet(db):
    now, spoken = timezone.now(), {"agent_version": "0.1.0", "agent_protocol": 2}
    return Server.objects.bulk_create(
        [
            Server(name="kp-01", last_seen_at=now, **spoken),
            Server(name="kp-02", **spoken),
            Server(name="kp-old", last_seen_at=now, agent_version="0.1.0"),
            Server(name="kp-never"),
            Server(name="here", is_local=True, last_seen_at=now, **spoken),
            Server(name="sim-01", simulated=True, last_seen_at=now, **spoken),
        ]
    )


def text(response):
    return " ".join(re.sub(r"<[^>]+>", " ", response.content.decode()).split())


def seen(response):
    return re.search(r'name="seen" value="(\w+)"', response.content.decode())[1]


def test_the_page_names_whom_it_hits_and_sends_to_these_alone(admin, valkey, fleet):
    shown = admin.get(PATH)
    said = text(shown)
    assert "It will hit 2 servers" in said and "kp-old is left out: its agent is too old" in said
    assert "here is left out: its agent comes with the console" in said and "sim-01" not in said
    assert admin.post(PATH, {"redis": NEW}).status_code == 409
    few = admin.get(PATH, {"names": "kp-01 nobody"})
    assert "No server is called: nobody" in text(few)
    assert admin.post(PATH, {"redis": NEW, "names": "kp-01 nobody", "seen": seen(few)}).status_code == 422
    assert not Order.objects.exists()
    done = admin.post(PATH, {"redis": f"{NEW}\n{NEW}", "console": "https://new.example:8443/", "seen": seen(shown)})
    assert done.status_code == 302
    order = Order.objects.get(server__name="kp-01")
    assert order.args == {"redis": [NEW], "console": "https://new.example:8443", "pin": "", "ca": ""}
    assert Order.objects.count() == 2
    server = order.server
    entry = json.loads(valkey.client().lrange(streams.orders(server.pk), 0, -1)[0])
    assert signing.is_signed(server.key, entry["body"], entry["mac"])
    assert "no answer yet" in text(admin.get(PATH))


def test_what_the_agents_answer_is_shown_and_a_failure_is_an_alert(admin, valkey, fleet):
    page = admin.get(PATH)
    admin.post(PATH, {"redis": NEW, "seen": seen(page)})
    good, bad = Order.objects.get(server__name="kp-01"), Order.objects.get(server__name="kp-02")
    turns = Turns(valkey.url)
    for order, state, words in ((good, "done", NEW), (bad, "failed", "cannot be reached <b>\n连不到 <b>")):
        beat = {"t": time.time(), "agent": "0.1.0", "orders": [[order.nonce, state, words]]}
        valkey.client().publish(streams.beat(order.server_id), json.dumps(beat))
    for _turn in range(3):  # the first finds that it is subscribed
        turns.turn()
    said = admin.get(PATH)
    assert "has gone there" in text(said) and "stays where it was" in text(said) and b"<b> " not in said.content
    alert = Alert.objects.get(ended_at=None)
    assert alert.name == "repoint-failed" and "kp-02" in alert.what[1]
    assert alert.what[0] == "kp-02 没有改用新的控制台地址（连不到 <b>）。"
    assert alert.what[1] == "kp-02 did not go to the new address (cannot be reached <b>)."
    admin.post(PATH, {"redis": NEW, "names": "kp-02", "seen": seen(admin.get(PATH, {"names": "kp-02"}))})
    again = Order.objects.get(server__name="kp-02", state=OrderState.SENT)
    orders.take_answers({again.server_id: [(again.nonce, "done", NEW)]})
    assert not Alert.objects.filter(ended_at=None).exists()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"redis": ""}, "There are 0 addresses"),
        ({"redis": " ".join(f"rediss://h{n}:1/0" for n in range(9))}, "There are 9 addresses"),
        ({"redis": "rediss://u:p@new:6380/0"}, "leave user and password out"),
        ({"redis": "new:6380"}, "is no address of Redis"),
        ({"redis": "redis://10.9.8.7:6379/0"}, "without TLS"),
        ({"redis": NEW, "console": "http://new.example"}, "without TLS"),
        ({"redis": NEW, "console": "new.example"}, "is no address of the console"),
        ({"redis": NEW, "pin": "abc"}, "curl --pinnedpubkey"),
        ({"redis": NEW, "ca": "no certificate"}, "is no certificate"),
        ({"redis": NEW, "names": "here"}, "No agent of those chosen"),
    ],
)
def test_what_cannot_be_is_said(admin, fleet, fields, words):
    page = admin.get(PATH, {"names": fields.get("names", "")})
    refused = admin.post(PATH, {**fields, "seen": seen(page)})
    assert 400 <= refused.status_code < 500 and words in text(refused).replace("&#x27;", "'")
    assert not Order.objects.exists()
    assert admin.get(PATH, fields).status_code == 200


@pytest.mark.usefixtures("valkey")
def test_nobody_else_may(client, operator, viewer, fleet):
    for user in (operator, viewer):
        client.force_login(user)
        assert client.get(PATH).status_code == 403
        assert client.post(PATH, {"redis": NEW}).status_code == 403
    assert not Order.objects.exists()


@pytest.mark.usefixtures("valkey")
def test_the_command_shows_first_and_sends_with_yes(fleet, capsys):
    call_command("repoint", NEW)
    said = capsys.readouterr().out
    assert "kp-02  (silent now)" in said and "kp-never  left out: it was never heard" in said
    assert "It would hit 2. Nothing was sent" in said and not Order.objects.exists()
    call_command("repoint", NEW, "--servers", "kp-01", "--yes")
    assert "Sent to 1." in capsys.readouterr().out
    assert [order.server.name for order in Order.objects.all()] == ["kp-01"]
    for wrong in ((["redis://x"]), ([NEW, "--servers", "nobody", "--yes"])):
        with pytest.raises(CommandError) as refused:
            call_command("repoint", *wrong)
        assert str(refused.value)


def test_ingest_knows_what_follows_when_an_order_ends():
    program = (
        "import django; django.setup(); import console.ingest; from deployments.services import orders; "
        "print(sorted(orders._after))"
    )
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "console.settings"}
    said = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, cwd=ROOT)
    assert "'repoint'" in said.stdout, said.stderr
