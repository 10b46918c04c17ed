"""What a page may ask of its socket, and what it hears when it may not."""

import json

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.test import Client

from console import live
from console.asgi import application
from console.frames import MAX_ERRORS, MAX_TOPICS
from console.models import User
from deployments.models import Attempt, Job, Server
from tests.console.pages import Page

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]


@pytest.fixture
def viewer(db):
    return User.objects.create(username="wei", role="viewer", language="en")


@pytest.fixture
def job(db):
    server = Server.objects.create(name="kp-07")
    job = Job.objects.create(server=server, kind="check", not_after="2030-01-01T00:00:00Z")
    Attempt.objects.create(pk=f"a{job.pk}-1-0000000a", job=job, n=1)
    return job


async def publish(*message, **more):
    await sync_to_async(live.publish, thread_sensitive=False)(*message, **more)


async def test_a_message_reaches_the_page_with_its_topic(viewer):
    async with Page(viewer) as page:
        await page.subscribe("jobs")
        await publish("jobs", "job", {"id": 42, "kind": "检查"}, seq=7)
        assert await page.hear() == {"topic": "jobs", "seq": 7, "type": "job", "data": {"id": 42, "kind": "检查"}}


async def test_a_topic_that_was_left_is_silent(viewer):
    async with Page(viewer) as page:
        await page.subscribe("jobs")
        await page.say(op="unsubscribe", topic="jobs")
        await page.say(op="ping")
        assert (await page.hear())["type"] == "pong"
        await publish("jobs", "job", {"id": 42})
        assert await page.silent()


async def test_a_job_is_told_as_it_is_before_anything_changes(viewer, job):
    async with Page(viewer) as page:
        await page.say(op="subscribe", topic=f"job:{job.pk}")
        assert (await page.hear())["type"] == "subscribed"
        state = await page.hear()
        assert (state["type"], state["data"]["state"], state["data"]["server"]) == ("state", "queued", "kp-07")


async def test_a_server_is_told_as_it_is(viewer, job):
    async with Page(viewer) as page:
        await page.subscribe(f"server:{job.server_id}")
        now = await page.hear()
        assert (now["type"], now["data"]["name"], now["data"]["state"]) == ("sample", "kp-07", "never")


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("not json", "bad_json"),
        ("[" * 3000, "bad_json"),
        ('"fleet"', "bad_json"),
        ("{}", "unknown_op"),
        ('{"op": ["subscribe"]}', "unknown_op"),
        ('{"op": "subscribe"}', "unknown_topic"),
        ('{"op": "subscribe", "topic": "h:7:beat"}', "unknown_topic"),
        ('{"op": "subscribe", "topic": "job:٤٢"}', "unknown_topic"),
        ('{"op": "subscribe", "topic": "job:42\\n"}', "unknown_topic"),
        ('{"op": "subscribe", "topic": {"a": 1}}', "unknown_topic"),
        ('{"op": "subscribe", "topic": "fleet:secrets"}', "unknown_topic"),
        ('{"op": "subscribe", "topic": "job:999999"}', "no_such_job"),
        ('{"op": "subscribe", "topic": "server:999999"}', "no_such_server"),
        ('{"op": "subscribe", "topic": "jobs", "after": -1}', "bad_place"),
        ('{"op": "subscribe", "topic": "jobs", "after": 1e400}', "bad_place"),
        ('{"op": "subscribe", "topic": "jobs", "after": true}', "bad_place"),
        ('{"op": "subscribe", "topic": "jobs", "attempt": "a b"}', "bad_place"),
        ('{"op": "subscribe", "topic": "' + "x" * 5000 + '"}', "too_large"),
    ],
)
async def test_what_cannot_be_is_answered_in_words(viewer, frame, code):
    async with Page(viewer) as page:
        await page.say(frame)
        message = await page.hear()
        assert (message["type"], message["data"]["code"]) == ("error", code)
        assert message["data"]["what"] and message["data"]["do"]
        await page.say(op="ping")
        assert (await page.hear())["type"] == "pong"


async def test_a_binary_frame_is_answered_in_words(viewer):
    async with Page(viewer) as page:
        await page.wire.send_input({"type": "websocket.receive", "bytes": b"\x00\xff"})
        assert (await page.hear())["data"]["code"] == "bad_frame"


async def test_too_many_topics_are_refused_and_one_less_lets_another_in(viewer, job):
    names = [f"t{n}" for n in range(MAX_TOPICS + 1)]
    servers = await sync_to_async(Server.objects.bulk_create)([Server(name=name) for name in names])
    async with Page(viewer) as page:
        for server in servers[:MAX_TOPICS]:
            await page.subscribe(f"server:{server.pk}")
        await page.say(op="subscribe", topic=f"server:{servers[-1].pk}")
        assert (await page.hear_type("error"))["data"]["code"] == "too_many"
        await page.say(op="unsubscribe", topic=f"server:{servers[0].pk}")
        await page.subscribe(f"server:{servers[-1].pk}")


async def test_a_socket_that_only_sends_nonsense_is_closed_with_the_reason(viewer):
    async with Page(viewer) as page:
        for _ in range(MAX_ERRORS):
            await page.say("nonsense")
            assert (await page.hear())["data"]["code"] == "bad_json"
        assert (await page.hear())["data"]["code"] == "too_many_errors"
        assert await page.event() == {"type": "websocket.close", "code": 4400, "reason": "too_many_errors"}


async def test_nobody_reads_without_signing_in(db):
    async with Page(AnonymousUser()) as page:
        message = await page.hear()
        assert message["data"]["code"] == "not_signed_in"
        assert (await page.event())["code"] == 4401
        await page.say(op="subscribe", topic="jobs")
        assert await page.silent()


@pytest.mark.parametrize(
    ("origin", "host", "own"),
    [
        ("http://127.0.0.1:8000", "127.0.0.1:8000", True),
        ("https://console.dc1", "console.dc1", True),
        ("https://console.dc1:8443", "console.dc1", True),
        ("http://127.0.0.1:3000", "127.0.0.1:8000", False),
        ("https://elsewhere.test", "console.dc1", False),
        ("null", "console.dc1", False),
        ("http://[", "console.dc1", False),
    ],
)
async def test_a_page_of_another_site_is_refused_in_words(viewer, origin, host, own):
    async with Page(viewer, headers=[(b"origin", origin.encode()), (b"host", host.encode())]) as page:
        if own:
            await page.subscribe("jobs")
        else:
            assert (await page.hear())["data"]["code"] == "other_site"
            assert (await page.event())["code"] == 4403


async def test_errors_come_in_the_language_of_the_page(viewer):
    viewer.language = ""
    async with Page(viewer, headers=[(b"accept-language", b"en-GB,en;q=0.8,zh;q=0.5")]) as page:
        await page.say("nonsense")
        assert (await page.hear())["data"]["what"] == "The frame is not a JSON object."


async def test_a_topic_asks_for_its_role(viewer, monkeypatch):
    secret = live.Topic("jobs", lambda user, match: user.may("administrator"), conflate=list)
    monkeypatch.setattr("console.frames.topics", lambda: [secret])
    administrator = await sync_to_async(User.objects.create)(username="lin", role="administrator", language="en")
    async with Page(viewer) as page, Page(administrator) as other:
        await page.say(op="subscribe", topic="jobs")
        assert (await page.hear())["data"]["code"] == "not_allowed"
        await other.subscribe("jobs")
        await publish("jobs", "job", {"id": 1})
        assert (await other.hear())["type"] == "job"
        assert await page.silent()


def test_numbers_that_json_has_no_word_for_are_unknown():
    channel, payload = live.message("server:7", "sample", {"npus": [{"temp_c": float("nan")}], "text": "\ud800"}, seq=3)
    assert channel == "live:server:7"
    assert json.loads(payload) == {"seq": 3, "type": "sample", "data": {"npus": [{"temp_c": None}], "text": "?"}}


async def say_hello(page):
    """True when the socket still answers."""
    await page.say(op="ping")
    return (await page.hear())["type"] == "pong"


async def change(user, **fields):
    await sync_to_async(User.objects.filter(pk=user.pk).update)(**fields)


@pytest.mark.parametrize("fields", [{"is_active": False}, {"password": "another"}])
async def test_a_socket_does_not_outlive_its_user(viewer, monkeypatch, fields):
    monkeypatch.setattr("console.sockets.WATCH_S", 0.05)
    async with Page(viewer) as page:
        await page.subscribe("jobs")
        await change(viewer, **fields)
        assert (await page.hear())["data"]["code"] == "not_signed_in"
        assert (await page.event())["code"] == 4401


async def test_a_socket_loses_the_topics_that_its_user_s_new_role_may_not_read(viewer, monkeypatch):
    monkeypatch.setattr("console.sockets.WATCH_S", 0.05)
    secret = live.Topic("jobs", lambda user, match: user.may("operator"), conflate=list)
    monkeypatch.setattr("console.frames.topics", lambda: [secret])
    await change(viewer, role="operator")
    viewer.role = "operator"
    async with Page(viewer) as page:
        await page.subscribe("jobs")
        await change(viewer, role="viewer")
        message = await page.hear()
        assert (message["topic"], message["data"]["code"]) == ("jobs", "not_allowed")
        await publish("jobs", "job", {"id": 1})
        assert await say_hello(page)


def signed_in(user):
    client = Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    cookie = f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}; django_language=en"
    return client, [(b"cookie", cookie.encode()), (b"host", b"127.0.0.1")]


async def test_the_whole_application_knows_its_user_by_the_session(viewer, monkeypatch):
    monkeypatch.setattr("console.sockets.WATCH_S", 0.05)
    client, headers = await sync_to_async(signed_in)(viewer)
    async with Page(None, headers=headers, application=application) as page:
        await page.subscribe("jobs")
        assert await say_hello(page)
        await sync_to_async(client.logout)()
        assert (await page.hear())["data"]["what"] == "You are not signed in."
    async with Page(None, application=application) as page:
        assert (await page.hear())["data"]["code"] == "not_signed_in"


async def test_another_address_is_no_socket(viewer):
    page = Page(None, application=application)
    page.wire.scope["path"] = "/elsewhere/"
    await page.wire.send_input({"type": "websocket.connect"})
    assert (await page.event())["type"] == "websocket.close"
    await page.wire.wait()
