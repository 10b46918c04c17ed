"""Orders from the console to an agent: signed, obeyed once, answered in the beat, sent again until answered."""

import json
import time
from datetime import timedelta

import pytest
from django.utils import timezone

from console import streams
from console.ingest import Ingest
from deployments.agent import orders as agent_orders
from deployments.agent import signing
from deployments.agent.link import Link
from deployments.models import Order, OrderState, Server
from deployments.services import orders
from tests.deployments.agent_bench import KEY, AgentServer
from tests.waiting import until


@pytest.fixture
def agent(tmp_path, valkey):
    """The agent of server 7, with an order that notes how often it was obeyed and one that cannot be."""
    client = valkey.client()
    client.execute_command("ACL", "SETUSER", "h7", *streams.acl_rules(7, "pw7"))
    made = AgentServer(tmp_path, f"redis://h7:pw7@127.0.0.1:{valkey.port}/0")
    made.client, made.obeyed = client, []
    yield made
    made.close()
    client.acl_deluser("h7")


def link_of(agent):
    from deployments.agent.link import connect

    def note(args):
        agent.obeyed.append(args)
        return "noted"

    def cannot(args):
        raise agent_orders.CannotObey("磁盘已满", "the disk is full")

    return Link(
        agent.config, connect(agent.config), worker_alive=lambda: True, handlers={"note": note, "cannot": cannot}
    )


def beat_of(agent, act):
    """What the agent's next beat says after `act`."""
    heard = agent.client.pubsub(ignore_subscribe_messages=True)
    heard.subscribe("h:7:beat")
    heard.get_message(timeout=1)
    act()
    found = until(lambda: heard.get_message(timeout=1))
    heard.close()
    return json.loads(found["data"])


def entry(key=KEY, **fields):
    body = {"op": "order", "do": "note", "args": {"x": 1}, "server": 7, "nonce": "ab" * 16}
    text = json.dumps(body | {"not_after": int(time.time()) + 60} | fields)
    return json.dumps({"body": text, "mac": signing.sign(key, text)})


def test_an_order_is_obeyed_and_answered_in_the_beat_at_once(agent):
    link = link_of(agent)
    link.tick()
    agent.client.rpush("h:7:orders", entry())
    link.orders_at = 0.0
    said = beat_of(agent, link.tick)
    assert agent.obeyed == [{"x": 1}]
    assert said["orders"] == [["ab" * 16, "done", "noted"]]
    assert said["refused"] == 0
    assert agent.client.llen("h:7:orders") == 0


def test_the_same_order_again_is_obeyed_once_and_answered_again_even_by_a_new_process(agent):
    agent.client.rpush("h:7:orders", entry(), entry())
    link_of(agent).tick()
    agent.client.rpush("h:7:orders", entry())
    link = link_of(agent)
    said = beat_of(agent, link.tick)
    assert len(agent.obeyed) == 1
    assert said["orders"] == [["ab" * 16, "done", "noted"]]


def test_one_that_was_cut_off_before_its_answer_was_noted_is_obeyed_again(agent, monkeypatch):
    agent.client.rpush("h:7:orders", entry())
    with monkeypatch.context() as cut:
        cut.setattr(agent_orders.spool, "write_synced", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            link_of(agent).tick()
    assert agent.client.llen("h:7:orders") == 1
    link_of(agent).tick()
    assert len(agent.obeyed) == 2 and agent.client.llen("h:7:orders") == 0


def test_what_cannot_be_obeyed_says_why(agent):
    agent.client.rpush("h:7:orders", entry(do="cannot"), entry(do="dance", nonce="cd" * 16))
    said = beat_of(agent, link_of(agent).tick)
    assert said["orders"] == [
        ["ab" * 16, "failed", "the disk is full\n磁盘已满"],
        ["cd" * 16, "failed", "this agent knows no order dance\n这台服务器的代理不认识指令 dance"],
    ]


@pytest.mark.parametrize(
    ("hostile", "why"),
    [
        (lambda: entry(key="5b" * 32), "signature"),
        (lambda: entry(server=8), "another server"),
        (lambda: entry(not_after=int(time.time()) - 5), "expired"),
        (lambda: entry(op="run", attempt="a1-1-00000000"), "no order"),
        (lambda: entry(nonce="x"), "nonce"),
        (lambda: entry(args=[1]), "no order"),
        (lambda: json.loads(entry())["body"], "not a signed text"),
        (lambda: "[" * 100_000, "not a signed order"),
        (lambda: b"\xff\xfe", "not a signed order"),
        (lambda: json.dumps({"body": json.loads(entry())["body"].replace('"x": 1', '"x": 2'), "mac": "0" * 64}), "sig"),
    ],
)
def test_what_is_not_signed_for_this_server_and_this_time_is_refused_and_counted(agent, hostile, why):
    agent.client.rpush("h:7:orders", hostile())
    said = beat_of(agent, link_of(agent).tick)
    assert agent.obeyed == [] and said["orders"] == []
    assert said["refused"] == 1 and why in said["last_refusal"]
    assert agent.client.llen("h:7:orders") == 0


def test_an_order_is_no_job_and_a_job_is_no_order(agent):
    outer = json.loads(entry())
    agent.start("worker")
    agent.enqueue(agent.client, outer["body"], outer["mac"])
    until(lambda: (agent.state / "worker.json").exists())
    assert "no known operation" in (agent.state / "worker.json").read_text()


# ---------- the console's side ----------


@pytest.fixture
def joined(db, agent):
    """The console's row of that server."""
    return Server.objects.create(pk=7, name="kp-07", key=KEY, redis_password="pw7", last_seen_at=timezone.now())


def test_an_order_travels_to_the_agent_and_its_answer_back(agent, joined, valkey, django_capture_on_commit_callbacks):
    seen = []
    orders.ended("note")(lambda order: seen.append((order.pk, order.state, order.words)))
    ingest = Ingest(valkey.url)
    ingest.beats.psubscribe(streams.BEATS)
    with django_capture_on_commit_callbacks(execute=True):
        sent = orders.send(joined, "note", {"key": "secret"})
    link = link_of(agent)

    def answered():
        link.orders_at = 0.0
        link.tick()
        ingest.tick(time.time(), time.monotonic())
        return Order.objects.filter(pk=sent.pk, state=OrderState.DONE).first()

    row = until(answered)
    assert agent.obeyed == [{"key": "secret"}]
    assert row.words == "noted" and row.args == {} and row.answered_at
    link.beat_at = 0.0
    answered()
    assert seen == [(sent.pk, "done", "noted")]
    orders._after.pop("note")


def test_another_server_cannot_answer_for_it(joined):
    other = Server.objects.create(name="kp-08")
    sent = orders.send(joined, "note", {})
    assert orders.take_answers({other.pk: [(sent.nonce, "done", "")]}) == []
    assert Order.objects.get().state == OrderState.SENT


def test_an_order_that_redis_lost_is_pushed_again_and_one_that_stands_there_is_not(agent, joined):
    sent = orders.send(joined, "note", {})
    orders.look_after(timezone.now())
    assert agent.client.llen("h:7:orders") == 1
    later = timezone.now() + timedelta(seconds=30)
    orders.look_after(later)
    assert agent.client.llen("h:7:orders") == 1
    agent.client.delete("h:7:orders")
    orders.look_after(timezone.now())
    assert agent.client.llen("h:7:orders") == 0
    orders.look_after(later)
    assert agent.client.llen("h:7:orders") == 1
    sent.refresh_from_db()
    assert sent.pushes == 2


def test_an_order_that_nobody_answers_in_time_ends(joined):
    seen = []
    orders.ended("note")(lambda order: seen.append(order.state))
    orders.send(joined, "note", {"key": "secret"}, valid_s=60)
    orders.look_after(timezone.now() + timedelta(seconds=61))
    row = Order.objects.get()
    assert (row.state, row.args, seen) == (OrderState.EXPIRED, {}, ["expired"])
    orders._after.pop("note")


@pytest.mark.parametrize("hostile", [None, 7, {}, "x" * 99, [1], [["a"]], [[1, "done", ""]], [["a", "sent", ""]]])
def test_what_a_beat_says_about_orders_may_be_anything(hostile):
    assert orders.read_answers(hostile) == []


def test_answers_are_bounded():
    rows = orders.read_answers([["a" * 999, "failed", "w\x00" * 999]] * 99)
    assert len(rows) == orders.MOST_ANSWERS
    assert len(rows[0][0]) == 64 and len(rows[0][2]) == 300 and "\x00" not in rows[0][2]


def test_an_agent_of_before_answers_in_english_only():
    assert Order(words="the disk is full").answer == ("the disk is full", "the disk is full")
    assert Order(words="the disk is full\n磁盘已满").answer == ("磁盘已满", "the disk is full")
    assert Order().answer == ("", "")


def test_two_long_sentences_leave_room_for_each_other():
    words = agent_orders.CannotObey("长" * 400, "long " * 100).words
    assert len(words) == agent_orders.MOST_WORDS and words.count("长") == 109
