import json
import time

import pytest

import deployments.kinds
from deployments.agent import signing, spool
from deployments.agent.dispatch import Dispatcher, read_counts
from tests.deployments.agent_bench import KEY, PROGRAM, AgentServer, ended

NOW = 1_800_000_000.0


@pytest.fixture
def server(tmp_path, monkeypatch):
    path = [*deployments.kinds.__path__, str(PROGRAM.with_name("agent_kinds"))]
    monkeypatch.setattr(deployments.kinds, "__path__", path)
    deployments.kinds.names.cache_clear()
    made = AgentServer(tmp_path, "redis://127.0.0.1:1/0")
    made.woken = []
    made.dispatcher = Dispatcher(made.config, lambda: NOW, lambda: made.woken.append(1))
    yield made
    made.close()
    deployments.kinds.names.cache_clear()


def body_of(made, **fields):
    return made.payload("print(1)", **{"not_after": NOW + 60, "attempt": "a1-1-0000000a"} | fields)


def folder_of(server):
    return server.config.attempts / "a1-1-0000000a"


def test_a_signed_payload_is_claimed_once(server):
    body, mac = server.signed(body_of(server))
    assert server.dispatcher.handle(body, mac) == "accepted"
    assert (folder_of(server) / "spec.json").read_text() == body
    assert server.woken
    assert server.dispatcher.handle(body, mac) == "already"
    assert read_counts(server.config).already == 1


def test_other_bytes_for_a_claimed_attempt_are_refused(server):
    server.dispatcher.handle(*server.signed(body_of(server)))
    answer = server.dispatcher.handle(*server.signed(body_of(server, job=99)))
    assert answer == "refused: another payload has claimed this attempt"


def altered(body):
    return body.replace("print(1)", "print(2)"), signing.sign(KEY, body)


def signed_by_another(body):
    return body, signing.sign("00" * 32, body)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda s: altered(body_of(s)), "signature"),
        (lambda s: signed_by_another(body_of(s)), "signature"),
        (lambda s: (body_of(s), ""), "signature"),
        (lambda s: (body_of(s), "é"), "signature"),
        (lambda s: (None, "x"), "not a signed text"),
        (lambda s: (body_of(s), ["x"]), "not a signed text"),
        (lambda s: s.signed("x" * 300_000), "not a signed text"),
        (lambda s: s.signed("not json"), "not JSON"),
        (lambda s: s.signed("[" * 100_000), "not JSON"),
        (lambda s: s.signed("[]"), "no known operation"),
        (lambda s: s.signed(body_of(s, op="exec")), "no known operation"),
        (lambda s: s.signed(body_of(s, server=8)), "for another server"),
        (lambda s: s.signed(body_of(s, attempt="../../etc")), "names no attempt"),
        (lambda s: s.signed(body_of(s, not_after=NOW - 1)), "expired 1 s ago"),
        (lambda s: s.signed(body_of(s, not_after=None)), "no time after which it is void"),
        (lambda s: s.signed(body_of(s, not_after=True)), "no time after which it is void"),
        (lambda s: s.signed(body_of(s, not_after="soon")), "no time after which it is void"),
        (lambda s: s.signed(body_of(s, not_after=float("inf"))), "no time after which it is void"),
    ],
)
def test_what_is_not_signed_for_here_and_now_is_refused_and_counted(server, make, reason):
    answer = server.dispatcher.handle(*make(server))
    assert answer.startswith("refused: ") and reason in answer
    assert list(server.config.attempts.iterdir()) == []
    counts = read_counts(server.config)
    assert counts.refused == 1 and reason in counts.last_refusal


def test_expiry_is_judged_by_redis_not_by_this_clock(server):
    far_ahead = time.time() + 10**9
    server.dispatcher.redis_now = lambda: far_ahead
    assert "expired" in server.dispatcher.handle(*server.signed(body_of(server, not_after=time.time() + 600)))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"kind": "no_such"}, "does not know the job kind no_such"),
        ({"kind": "../check"}, "does not know the job kind"),
        ({"params": {"programs": 5}}, "programs: must be a list of texts"),
        ({"params": {"programs": [], "shell": "rm"}}, "shell: there is no such parameter"),
        ({"params": {}}, "programs: is missing"),
        ({"params": None}, "No steps could be made"),
    ],
)
def test_a_signed_payload_that_makes_no_steps_is_refused_and_told_to_the_console(server, fields, reason):
    body, mac = server.signed(body_of(server, **fields))
    assert reason in server.dispatcher.handle(body, mac)
    told = ended(folder_of(server))
    assert told["state"] == "failed" and reason in told["reason"][1]
    assert server.dispatcher.handle(body, mac) == "already"


def cancel(server):
    body = {"op": "cancel", "attempt": "a1-1-0000000a", "server": 7, "not_after": NOW + 60, "nonce": "1"}
    return server.signed(json.dumps(body))


def test_a_cancel_reaches_the_attempt(server):
    server.dispatcher.handle(*server.signed(body_of(server)))
    assert server.dispatcher.handle(*cancel(server)) == "accepted"
    assert (folder_of(server) / "cancel").exists()
    assert server.dispatcher.handle(*cancel(server)) == "already"


def test_a_cancel_that_comes_first_keeps_the_attempt_from_beginning(server):
    assert server.dispatcher.handle(*cancel(server)) == "accepted"
    assert ended(folder_of(server))["state"] == "cancelled"
    assert server.dispatcher.handle(*server.signed(body_of(server))).startswith("refused")
    assert spool.runner_identity(folder_of(server)) is None
