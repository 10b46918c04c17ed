"""The playground: who may, what may be asked, an engine's stream passed on as it comes, and nothing kept of it."""

import asyncio
import contextlib
import json
import logging
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from auditlog.models import LogEntry
from django.test import override_settings
from django.utils import translation

from console.errors import Conflict, ConsoleError, Invalid
from console.models import User
from deployments.services import engine_stream, playground
from tests.conftest import free_port
from tests.deployments.benchmark_rows import replica, server

SECRET = "the password is xyzzy-4711"
ASK = {"messages": [{"role": "user", "content": SECRET}], "max_tokens": 5, "temperature": 0.5}


class Hostile(BaseHTTPRequestHandler):
    """Answers as the server's `how` says, and notes what it heard and whether the other side hung up."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.server.heard.append(
            (self.headers["Authorization"], json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        )
        getattr(self, self.server.how)()

    def begin(self, status=200, kind="text/event-stream"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def piece(self, data):
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def fine(self):
        self.begin()
        for word in ("Hello", " <b>world</b>"):
            self.piece(f'data: {{"choices":[{{"delta":{{"content":"{word}"}}}}]}}\n\n'.encode())
        self.piece(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def waits(self):
        self.begin()
        self.piece(b"data: {}\n\n")
        self.server.go_on.wait(10)
        with contextlib.suppress(OSError):
            for _turn in range(200):
                self.piece(b"data: {}\n\n")
                time.sleep(0.01)
            return
        self.server.hung_up.set()

    def endless(self):
        self.begin()
        with contextlib.suppress(OSError):
            while True:
                self.piece(b"x" * 65536)

    def breaks(self):
        self.begin()
        self.piece(b"data: {}\n\nda")
        self.close_connection = True

    def refuses(self):
        self.begin(400, "application/json")
        self.piece(json.dumps({"error": {"message": "max_tokens is too large: \x1b[31m 9"}}).encode())
        self.wfile.write(b"0\r\n\r\n")

    def locked(self):
        self.begin(401, "application/json")
        self.piece(b'{"error": "Unauthorized"}')
        self.wfile.write(b"0\r\n\r\n")

    def garbage(self):
        self.wfile.write(b"\x00\x01 no http at all\r\n\r\n")
        self.close_connection = True

    def log_message(self, *_words):
        pass


@pytest.fixture
def engine():
    made = ThreadingHTTPServer(("127.0.0.1", 0), Hostile)
    made.how, made.heard, made.daemon_threads = "fine", [], True
    made.go_on, made.hung_up = threading.Event(), threading.Event()
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def collected(generator):
    async def collect():
        return b"".join([piece async for piece in generator])

    return asyncio.run(collect())


def said(target, asked=ASK):
    with translation.override("en"):
        return collected(playground.answer(target, playground.check(asked), 1)).decode()


@pytest.fixture
def target(db, engine):
    row = replica(port=engine.server_port)
    return playground.choose(row.deployment, None)


def error_of(text):
    event, data = text.strip().splitlines()[-2:]
    assert event == "event: error"
    return json.loads(data.removeprefix("data: "))


def test_the_stream_is_the_engines_own(target, engine):
    text = said(target)
    assert text.count("data: ") == 3 and text.endswith("data: [DONE]\n\n") and "<b>world</b>" in text
    key, body = engine.heard[0]
    assert key == f"Bearer {target.replica.deployment.api_key}"
    assert body["model"] == "qwen-chat" and body["stream"] is True and body["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("how", ["breaks", "garbage"])
def test_an_engine_that_breaks_off_is_told_in_words(target, engine, how):
    engine.how = how
    assert error_of(said(target))["code"] == "engine_away"


def test_an_engine_that_is_away_is_told_in_words(db):
    target = playground.choose(replica(port=free_port()).deployment, None)
    assert "is not reached" in error_of(said(target))["what"]


def test_its_refusal_is_its_own_sentence(target, engine):
    engine.how = "refuses"
    told = error_of(said(target))
    assert told["code"] == "engine_refused" and "max_tokens is too large" in told["what"]


def test_another_key_is_told(target, engine):
    engine.how = "locked"
    assert error_of(said(target))["code"] == "wrong_key"


def test_an_endless_answer_is_ended(target, engine, monkeypatch):
    monkeypatch.setattr(engine_stream, "MOST_BYTES", 1 << 20)
    monkeypatch.setattr(playground, "MOST_LINE", 1 << 24)
    engine.how = "endless"
    assert error_of(said(target))["code"] == "too_much"


def test_a_silent_engine_is_told(target, engine, monkeypatch):
    monkeypatch.setattr(engine_stream, "SILENT_S", 0.1)
    engine.how = "waits"
    assert error_of(said(target))["code"] == "engine_silent"
    engine.go_on.set()


def test_who_leaves_ends_the_answer_of_the_engine(target, engine):
    engine.how = "waits"

    async def leave():
        stream = playground.answer(target, playground.check(ASK), 7)
        assert await anext(stream) == b"data: {}\n\n"
        assert playground._open[7] == 1
        engine.go_on.set()
        await stream.aclose()

    asyncio.run(leave())
    assert engine.hung_up.wait(5)
    assert 7 not in playground._open


def test_one_user_has_only_so_many_at_once(target, monkeypatch):
    monkeypatch.setattr(playground, "EACH", 0)
    assert error_of(said(target))["code"] == "too_many"


@pytest.mark.parametrize(
    "given",
    [
        {}, [], {"messages": []}, {"messages": [{"role": "tool", "content": "x"}]}, {**ASK, "temperature": "hot"},
        {**ASK, "temperature": 9}, {**ASK, "max_tokens": 0}, {**ASK, "seed": -1}, {**ASK, "stop": ["a"] * 9},
        {**ASK, "model": "other"}, {**ASK, "top_p": True}, {"messages": [{"role": "user", "content": None}]},
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_without_repeating_it(given):
    with pytest.raises(Invalid) as refused:
        playground.check(given)
    assert "xyzzy" not in str(refused.value) and refused.value.do


def test_a_long_conversation_is_refused():
    with pytest.raises(Invalid) as refused:
        playground.check({"messages": [{"role": "user", "content": "x" * 200_001}]})
    assert refused.value.code == "too_long"


@pytest.mark.django_db
@pytest.mark.parametrize("state", ["loading", "degraded", "draining", "failed"])
def test_only_who_is_ready_is_offered(state):
    with pytest.raises(Conflict):
        playground.choose(replica(state=state).deployment, None)


@pytest.mark.django_db
def test_simulated_engines_say_nothing(client):
    row = replica(on=server("sim-1", simulated=True))
    with pytest.raises(ConsoleError):
        playground.choose(row.deployment, None)
    user = User.objects.create(username="olga", role="operator")
    client.force_login(user)
    page = client.get("/deployments/qwen/chat", headers={"accept-language": "en"}).content.decode()
    assert "A simulated deployment has no engine" in page


@pytest.mark.django_db
def test_viewers_only_where_the_site_allows_it(client, engine):
    row = replica(port=engine.server_port, settings={"log_requests": True})
    client.force_login(User.objects.create(username="victor", role="viewer"))
    assert client.get("/deployments/qwen/chat").status_code == 403
    refused = client.post("/deployments/qwen/chat/stream", json.dumps(ASK), "application/json")
    assert refused.status_code == 403 and refused.json()["error"]["code"] == "no_playground"
    with override_settings(PLAYGROUND_VIEWERS=True):
        page = client.get("/deployments/qwen/chat", headers={"accept-language": "en"})
    assert page.status_code == 200 and page.headers["Cache-Control"] == "no-store"
    assert "the engine writes what people ask" in page.content.decode()
    assert row.deployment.api_key not in page.content.decode()


@pytest.mark.django_db
def test_nothing_that_is_typed_is_kept(client, engine, caplog):
    replica(port=engine.server_port)
    client.force_login(User.objects.create(username="olga", role="operator"))
    before = LogEntry.objects.count()
    with caplog.at_level(logging.DEBUG):
        answer = client.post("/deployments/qwen/chat/stream", json.dumps(ASK), "application/json")

        async def read():
            return b"".join([piece async for piece in answer.streaming_content])

        assert b"world" in asyncio.run(read())
        bad = client.post("/deployments/qwen/chat/stream", json.dumps({**ASK, "seed": "x"}), "application/json")
        assert bad.status_code == 422
    assert answer.headers["Cache-Control"] == "no-store" and answer.headers["X-Accel-Buffering"] == "no"
    assert "xyzzy" not in caplog.text and LogEntry.objects.count() == before


@pytest.mark.django_db
@pytest.mark.parametrize("body", ["", "{", "[" * 100_000, json.dumps({**ASK, "replica": 9}), "null"])
def test_whatever_is_sent_is_answered_in_words(client, engine, body):
    replica(port=engine.server_port)
    client.force_login(User.objects.create(username="olga", role="operator"))
    answer = client.post("/deployments/qwen/chat/stream", body, "application/json")
    assert answer.status_code in (409, 422) and answer.json()["error"]["do"]
    too_long = client.post("/deployments/qwen/chat/stream", "x" * (playground.MOST_BODY + 1), "application/json")
    assert too_long.status_code == 413


def test_the_warning_of_logged_requests():
    with translation.override("en"):
        assert "switch it off again" in playground.log_warning({"log_requests": True})
        assert playground.log_warning({}) == ""


def test_a_form_instead_of_json_is_refused_in_words(client, engine, operator):
    client.force_login(operator)
    answer = client.post("/deployments/qwen/chat/stream", {"messages": "hello"})
    assert answer.status_code == 422 and answer.json()["error"]["code"] == "invalid_chat"
