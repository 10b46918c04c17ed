"""A gateway with the real nginx and the real vllm-router: what it promises, and what it refuses."""

import http.client
import json
import os
import signal
import socket
import time

import pytest

from deployments.agent.gateways import balancer
from deployments.agent.gateways import folder as folders
from deployments.agent.processes import session_members
from tests.deployments.gateway_bench import Bench, Engine, Load, key_row, needs_gateway
from tests.waiting import until

pytestmark = needs_gateway

JSON = {"Authorization": "Bearer sk-one", "Content-Type": "application/json"}


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    engines = [Engine().start(), Engine().start()]
    made = Bench(tmp_path_factory.mktemp("gateway"), engines)
    try:
        yield made.start()
    finally:
        made.close()
        for engine in engines:
            engine.kill()


@pytest.fixture
def bench(shared):
    """The one gateway of this file, with one key and two engines that are well."""
    shared.keys = [key_row(1, "sk-one")]
    for engine in shared.engines:
        if engine.process.poll() is not None:
            engine.start()
    shared.put(policy="round_robin")
    if all(keeper.poll() is not None for keeper in shared.keepers):
        shared.keep()
    shared.settle()
    until(lambda: shared.now()["state"] == "ready", timeout=20)
    return shared


def test_a_key_opens_the_gateway_and_the_engine_gets_its_own(bench):
    status, said = bench.chat()
    assert (status, said["choices"][0]["message"]["content"]) == (200, "hi")
    assert bench.ask("/v1/models")[0] == 200
    assert bench.ask("/health", key="")[0] == 200
    # Paths on which the router does not pass the header on.
    assert bench.ask("/v1/messages", {"model": "m", "max_tokens": 3, "messages": []})[0] == 200
    assert (
        bench.ask("/v1/chat/completions", {"model": "m", "messages": []}, "", headers={"X-Api-Key": "sk-one"})[0] == 200
    )


@pytest.mark.parametrize(
    "row, code, status",
    [
        ({}, "invalid_api_key", 401),
        (key_row(2, "sk-two", until=1_000_000_000), "expired_api_key", 401),
        (key_row(3, "sk-two", allowed=False), "wrong_deployment", 403),
    ],
)
def test_other_keys_are_refused_in_openais_words(bench, row, code, status):
    bench.keys = [key_row(1, "sk-one"), *([row] if row else [])]
    bench.put()
    bench.settle()
    found, said = bench.chat(key="sk-two")
    assert (found, said["error"]["code"]) == (status, code)
    assert set(said["error"]) == {"message", "type", "param", "code"}
    assert bench.chat()[0] == 200


def test_a_revoked_key_is_dead_on_a_connection_that_stays_open(bench):
    connection = http.client.HTTPConnection("127.0.0.1", bench.port, timeout=10)

    def status():
        connection.request("GET", "/v1/models", headers={"Authorization": "Bearer sk-one"})
        answer = connection.getresponse()
        answer.read()
        return answer.status

    assert status() == 200
    bench.keys = []
    began = time.monotonic()
    bench.put()
    until(lambda: status() == 401, timeout=10)
    assert time.monotonic() - began < 5  # the rest of the 10 s is for the way from the console
    connection.close()


def test_a_key_has_as_many_requests_a_minute_as_it_was_given(bench):
    few = [key_row(4, "sk-few", rate=3), key_row(6, "sk-others", rate=3)]
    bench.keys = [key_row(1, "sk-one"), *few]
    bench.put()
    bench.settle()
    until(lambda: bench.ask("/v1/models", key="sk-few")[0] == 429)  # nginx has its new configuration
    answers = [bench.ask("/v1/models", key="sk-others") for _ in range(6)]
    assert [status for status, _said in answers] == [200] * 3 + [429] * 3
    assert answers[-1][1]["error"]["code"] == "rate_limit_exceeded"
    assert [bench.ask("/v1/models")[0] for _ in range(6)] == [200] * 6


@pytest.mark.parametrize(
    "path",
    [
        "/metrics", "/reset_prefix_cache", "/add_worker?url=http://127.0.0.1:1", "/workers", "/v1/../metrics", "/",
        "/v1/%2e%2e/metrics", "/v1//../metrics", "/v1/load_lora_adapter", "//metrics", "/v1/x/..%2f..%2fmetrics",
    ],
)  # fmt: skip
def test_only_the_api_passes(bench, path):
    for method in ("GET", "POST"):
        status, said = bench.ask(path, method=method, body={})
        assert status in (400, 404) and "secret" not in str(said)
        assert said["error"]["code"] in ("unknown_url", "bad_request")


def test_what_an_engine_refuses_itself_is_passed_on(bench):
    status, said = bench.chat(model="none")
    assert (status, said["error"]["message"]) == (404, "The model `none` does not exist.")


RAW = [
    b"Authorization: Bearer",
    b"Authorization: Bearer ",
    b"Authorization: Basic c2stb25l",
    b"Authorization: Bearer sk-one sk-one",
    b"Authorization: Bearer sk-one\r\nAuthorization: Bearer sk-one",
    b"Authorization: Bearer \xff\xfe\x00sk-one",
    b"Authorization: Bearer ../keys",
    b"Authorization: Bearer sk-one\x01",
    b"Authorization: Bearer " + b"k" * 6000,
    b"Authorization: Bearer " + b"k" * 60000,
    b"Authorization: Bearer ${key_folder}",
    b"X-Api-Key: sk-one\r\nAuthorization: Bearer wrong",
]


@pytest.mark.parametrize("header", RAW, ids=range(len(RAW)))
def test_hostile_headers_open_nothing_and_break_nothing(bench, header):
    with socket.create_connection(("127.0.0.1", bench.port), timeout=10) as raw:
        raw.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + header + b"\r\n\r\n")
        answer = b""
        while data := raw.recv(65536):
            answer += data
    status = int(answer.split(b" ", 2)[1])
    assert status in (400, 401) and b'"error"' in answer
    assert bench.ask("/v1/models")[0] == 200


def test_a_stream_arrives_word_by_word(bench):
    slow = Engine(pause=0.15).start()
    try:
        connection = http.client.HTTPConnection("127.0.0.1", bench.port, timeout=10)
        body = {"model": "m", "messages": [], "max_tokens": 6, "stream": True}
        others, bench.engines = bench.engines, [slow]
        bench.put()
        bench.settle()
        until(lambda: list(balancer.engines(bench.spec["router_port"])) == [f"http://127.0.0.1:{slow.port}"])
        began = time.monotonic()
        connection.request("POST", "/v1/chat/completions", json.dumps(body), JSON)
        answer = connection.getresponse()
        first = answer.read1()
        first_s = time.monotonic() - began
        rest = answer.read()
        whole_s = time.monotonic() - began
        connection.close()
    finally:
        bench.engines = others
        slow.kill()
    assert first.startswith(b"data: ") and b"[DONE]" in rest
    assert whole_s >= 0.9 and first_s < whole_s / 2


def test_totals_are_what_clients_were_told(bench):
    bench.keys = [key_row(1, "sk-one"), key_row(11, "sk-eleven")]
    bench.put()
    bench.settle()
    with Load(bench.port, clients=4, key="sk-eleven") as load:
        until(lambda: load.count_reaches(80))
    assert not load.failed
    status, _said = bench.chat(key="sk-eleven", odd=True, max_tokens=9)  # whose text looks like a usage
    assert status == 200
    bench.chat(key="sk-eleven", model="none")
    told = [load.tokens[0] + 2, 1, load.tokens[1] + 7, load.tokens[2] + 9]
    assert until(lambda: [row[2:] for row in bench.now()["usage"] if row[1:3] == [11, told[0]]]) == [told]


def test_changed_keys_and_engines_under_load_drop_no_request(bench):
    third = Engine().start()
    others = bench.engines
    try:
        with Load(bench.port) as kept, Load(bench.port, clients=2, fresh=True) as fresh:
            for n in range(4):
                bench.engines = [*others, third] if n % 2 else others[:1]
                bench.keys = [key_row(1, "sk-one"), *(key_row(20 + m, f"sk-{m}") for m in range(n))]
                bench.put()
                bench.settle()
                seen = len(kept.results)
                until(lambda seen=seen: kept.count_reaches(seen + 20))
        assert not kept.failed and not fresh.failed
    finally:
        bench.engines = others
        third.kill()


def test_a_changed_configuration_drops_no_request_of_new_clients(bench):
    """nginx is reloaded for a rate that no key had. It closes idle connections then, which a client may just be using:
    those on connections of their own lose nothing."""
    with Load(bench.port, clients=4, fresh=True) as load:
        for rate in (5000, 6000, 7000):
            bench.keys = [key_row(1, "sk-one"), key_row(5, "sk-five", rate=rate)]
            bench.put()
            bench.settle()
            seen = len(load.results)
            until(lambda seen=seen: load.count_reaches(seen + 20))
    assert not load.failed


def test_another_policy_drops_no_request_and_no_stream(bench):
    """A second router takes over; the first ends when its streams have, also where the keeper is killed between. As
    with each reload of nginx, clients with connections of their own lose nothing."""
    slow = Engine(pause=0.2).start()
    bench.engines.append(slow)
    bench.put(policy="round_robin")
    bench.settle()
    try:
        with Load(bench.port, clients=4, fresh=True) as fresh:
            for policy in ("random", "round_robin"):
                first = folders.identity(bench.folder, "router")
                bench.put(policy=policy)
                until(lambda first=first: folders.identity(bench.folder, "router") not in (None, first), timeout=20)
                if policy == "random":
                    bench.keepers[-1].kill()
                    bench.keepers[-1].wait()
                    bench.keep()
                seen = len(fresh.results)
                until(lambda seen=seen: fresh.count_reaches(seen + 6), timeout=20)
                until(lambda: folders.identity(bench.folder, "router_old") is None, timeout=20)
        assert not fresh.failed
        assert folders.noted(bench.folder, "router")["at"][0] == bench.spec["router_port"], "back where it was"
    finally:
        bench.engines.remove(slow)
        slow.kill()
        bench.put()


def test_a_dead_engine_leaves_within_five_seconds(bench):
    with Load(bench.port) as load:
        until(lambda: load.count_reaches(30))
        died = time.monotonic()
        bench.engines[0].kill()
        dead = f"http://127.0.0.1:{bench.engines[0].port}"
        until(lambda: not balancer.engines(bench.spec["router_port"])[dead]["healthy"], timeout=5)
        seen = len(load.results)
        until(lambda: load.count_reaches(seen + 60))
    assert not [one for one in load.failed if one[0] > died + 5]
    # What it had in its hands is repeated where nothing was sent to the client yet: each client lost one at most.
    assert len(load.failed) <= len(load.threads)
    until(lambda: bench.now()["state"] == "degraded")
    assert bench.now()["reason"][1] == "1 of 2 engines answer."


def test_without_its_keeper_old_and_new_clients_go_on(bench):
    """Nothing but nginx, router and engines: no console, no agent, no keeper."""
    with Load(bench.port) as old:
        until(lambda: old.count_reaches(20))
        for keeper in bench.keepers:
            if keeper.poll() is None:
                keeper.kill()
                keeper.wait()
        with Load(bench.port, clients=3, fresh=True) as new:
            until(lambda: new.count_reaches(40))
        seen = len(old.results)
        until(lambda: old.count_reaches(seen + 40))
        before = [folders.identity(bench.folder, name) for name in ("nginx", "router")]
        bench.keep()
        until(lambda: folders.is_kept(bench.folder))
        bench.put()
        bench.settle()
        after = [folders.identity(bench.folder, name) for name in ("nginx", "router")]
    assert not old.failed and not new.failed
    assert before == after and all(before)  # adopted, and not started anew


@pytest.mark.parametrize("name", ["router", "nginx"])
def test_a_program_that_was_killed_is_started_again(bench, name):
    who = folders.identity(bench.folder, name)
    os.kill(who.pid, signal.SIGKILL)
    until(lambda: folders.identity(bench.folder, name) not in (None, who))
    assert session_members(who.pid) == [], "what the killed one had started is gone, and its port is free"
    until(lambda: bench.now()["state"] == "ready" and bench.chat()[0] == 200, timeout=15)
    after = folders.identity(bench.folder, name)
    assert len(session_members(after.pid)) >= (2 if name == "nginx" else 1)


def test_workers_of_a_killed_nginx_end_when_the_gateway_is_stopped(tmp_path):
    made = Bench(tmp_path, [])
    made.put()
    folders.set_wish(made.folder, "run")
    try:
        keeper = made.keep()
        until(lambda: made.now().get("state") == "degraded", timeout=20)  # both run, without an engine
        who = folders.identity(made.folder, "nginx")
        keeper.kill()
        keeper.wait()
        os.kill(who.pid, signal.SIGKILL)
        until(lambda: folders.identity(made.folder, "nginx") is None)
        assert session_members(who.pid), "its workers live on"
    finally:
        made.close()
    assert session_members(who.pid) == []
