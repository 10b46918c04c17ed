"""Agents go by a list of addresses of the console's Redis, and to others by the console's signed order."""

import json
import secrets
import shutil
import socket
import subprocess
import time

import pytest

from console import certificates, redis_front, streams
from deployments.agent import addresses, layers, repoint, signing
from deployments.agent import config as configs
from deployments.agent.orders import CannotObey
from tests.conftest import Valkey, free_port
from tests.deployments.agent_bench import KEY, AgentServer
from tests.waiting import until

PLACES = "/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin"


class Place:
    """One Redis with this server's user, and a console that listens there where `heard` says so."""

    def __init__(self, folder, password="pw7"):
        folder.mkdir()
        self.valkey = Valkey(folder)
        self.address = f"redis://127.0.0.1:{self.valkey.port}/0"
        self.client = self.valkey.client()
        self.client.execute_command("ACL", "SETUSER", "h7", *streams.acl_rules(7, password))
        self.client.execute_command("ACL", "SAVE")
        self.beats = []

    def listen(self):
        self.listener = self.client.pubsub(ignore_subscribe_messages=True)
        self.listener.psubscribe(streams.BEATS)
        self.listener.get_message(timeout=1)
        return self

    def beat(self):
        """The newest whole beat that came here."""
        while message := self.listener.get_message():
            said = json.loads(message["data"])
            self.beats += [said] if "agent" in said else []
        return self.beats[-1] if self.beats else {}

    def order(self, args, *, key=KEY, do="repoint"):
        """Push an order; returns its nonce."""
        nonce = secrets.token_hex(8)
        body = json.dumps(
            {"op": "order", "do": do, "args": args, "server": 7, "nonce": nonce, "not_after": int(time.time()) + 600}
        )
        self.client.rpush(streams.orders(7), json.dumps({"body": body, "mac": signing.sign(key, body)}))
        return nonce

    def answer(self, nonce, timeout=20):
        """[state, words] of an order, as the beats here tell it."""

        def told():
            return next((row[1:] for row in self.beat().get("orders", []) if row[0] == nonce), None)

        return until(told, timeout)


@pytest.fixture
def places(tmp_path):
    made = [Place(tmp_path / name).listen() for name in ("one", "two")]
    yield made
    for place in made:
        place.valkey.kill()


@pytest.fixture
def server(tmp_path, places):
    one, _two = places
    made = AgentServer(tmp_path, f"redis://h7:pw7@127.0.0.1:{one.valkey.port}/0")
    yield made
    made.close()


def keep(server, part):
    """What the supervisor does: start the part again when it has ended."""
    process = server.start(part)
    server.kept = getattr(server, "kept", {}) | {part: process}
    return process


def mend(server):
    for part, process in server.kept.items():
        if process.poll() is not None:
            keep(server, part)
    return True


def runs_a_job(server, place):
    """A job that is queued there is taken, and its lines come there."""
    attempt = f"a{server.jobs + 1}-1-{server.jobs + 1:08x}"
    server.enqueue(place.client, server.payload("print('here')", attempt=attempt))
    until(lambda: mend(server) and place.client.xlen(streams.logs(7)), 40)


def test_an_order_moves_link_and_worker_and_the_old_address_stays_behind_it(server, places):
    one, two = places
    keep(server, "link")
    keep(server, "worker")
    until(one.beat)
    state, words = one.answer(one.order({"redis": [two.address], "console": "https://new:8443", "pin": ""}))
    assert state == "done" and words == two.address
    until(two.beat, 20)
    runs_a_job(server, two)
    assert not one.client.xlen(streams.logs(7))
    config = configs.load(server.config.path)
    assert config.addresses == (two.address, one.address) and config.console == "https://new:8443"
    assert (server.state / layers.ADDRESSES).stat().st_mode & 0o777 == 0o600
    assert "pw7" not in (server.state / layers.ADDRESSES).read_text()
    # The new one dies: back to the one from before.
    one.beats.clear()
    two.valkey.kill()
    until(lambda: mend(server) and one.beat(), 60)
    one.client.delete(streams.logs(7))
    server.jobs += 1
    runs_a_job(server, one)


def test_an_address_that_does_not_work_changes_nothing(server, places, tmp_path):
    one, two = places
    two.listener.close()
    other = Place(tmp_path / "three", password="another").listen()
    keep(server, "link")
    until(one.beat)
    try:
        for address, words in (
            (f"redis://127.0.0.1:{free_port()}/0", "cannot be reached"),
            (other.address, "does not take this server's password"),
            (two.address, "no console listens there"),
        ):
            state, said = one.answer(one.order({"redis": [address, one.address]}))
            assert state == "failed" and words in said, said
        assert configs.load(server.config.path).addresses == (one.address,)
        assert not (server.state / layers.ADDRESSES).exists()
    finally:
        other.valkey.kill()


def test_an_unsigned_order_moves_nobody(server, places):
    one, two = places
    keep(server, "link")
    until(one.beat)
    refused = one.beat()["refused"]
    one.order({"redis": [two.address]}, key="0" * 64)
    until(lambda: one.beat()["refused"] > refused, 20)
    assert not (server.state / layers.ADDRESSES).exists()
    assert not two.beat()


def test_an_order_to_redis_over_tls_brings_its_authority(server, places, tmp_path):
    one, two = places
    program = shutil.which("stunnel", path=PLACES)
    assert program, "stunnel is not installed: .ci/run"
    key, ca_key, now = certificates.new_key(), certificates.new_key(), certificates.now()
    ca = certificates.authority(ca_key, "CA", now=now)
    (tmp_path / "key").write_text(key)
    (tmp_path / "chain").write_text(certificates.server(key, ca, ca_key, ["127.0.0.1"], now=now))
    front = redis_front.Front("127.0.0.1", free_port(), two.valkey.port, tmp_path / "chain", tmp_path / "key")
    argv = redis_front.prepare(tmp_path / "front", front, program)
    stunnel = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: listens(front.port))
        address = f"rediss://127.0.0.1:{front.port}/0"
        keep(server, "link")
        keep(server, "worker")
        until(one.beat, 30)
        state, words = one.answer(one.order({"redis": [address]}), 40)
        assert state == "failed" and "does not trust who signed" in words
        state, words = one.answer(one.order({"redis": [address], "ca": "no certificate"}), 40)
        assert state == "failed" and "no certificate" in words
        state, words = one.answer(one.order({"redis": [address], "ca": ca}), 40)
        assert state == "done", words
        until(two.beat, 40)
        runs_a_job(server, two)
        config = configs.load(server.config.path)
        assert config.addresses == (address, one.address) and config.redis_ca.strip() == ca.strip()
    finally:
        stunnel.terminate()
        stunnel.wait(10)


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"redis": []},
        {"redis": "redis://x:1/0"},
        {"redis": ["redis://user:pw@x:1/0"]},
        {"redis": ["http://x:1"]},
        {"redis": ["redis://x"]},
        {"redis": ["redis://x:99999/0"]},
        {"redis": ["redis://x:1/3"]},
        {"redis": ["redis://x:1/0?ssl_cert_reqs=none"]},
        {"redis": ["redis://x y:1/0"]},
        {"redis": ["redis://[x:1/0"]},
        {"redis": [7]},
        {"redis": ["redis://x:1/0"] * 9},
        {"redis": ["redis://x:1/0"], "console": "javascript:x"},
        {"redis": ["redis://x:1/0"], "console": "https://x", "pin": "no pin"},
    ],
)
def test_what_is_no_address_is_refused_in_words(args):
    asked = repoint.Repoint(lambda: pytest.fail("read"), lambda config, address: pytest.fail("tried"))
    with pytest.raises(CannotObey) as refused:
        asked.repoint(args)
    assert str(refused.value)


# ---------- which address, with a clock of the test's own ----------

A, B, C = (f"redis://10.0.0.{n}:6379/0" for n in (1, 2, 3))


class Link:
    """A link whose clock, list and network the test moves."""

    def __init__(self, tmp_path, more=(B,)):
        data = {"server_id": 7, "name": "kp-07", "redis_url": A.replace("//", "//h7:pw7@"), "prefix": "h:7", "key": KEY}
        path = tmp_path / "config.json"
        path.write_text(json.dumps({**data, "state_dir": str(tmp_path), "redis_more": list(more)}))
        self.path, self.now, self.beats = path, 1000.0, 0
        self.listening = {A: 1, B: 1, C: 1}  # address -> listeners; not there: cannot be reached
        self.down_since = None
        self.follower = repoint.Follower(self.current, self.probe, lambda: self.now)

    def current(self):
        return configs.load(self.path)

    def probe(self, config, address):
        if address not in self.listening:
            raise CannotObey("连不到", "cannot be reached")
        return self.listening[address]

    def run(self, seconds):
        """Turns of a second; the address at their end."""
        for _second in range(seconds):
            self.now += 1.0
            up = self.follower.at in self.listening
            self.down_since = None if up else self.down_since or self.now
            self.beats += up
            moved = self.follower.turn(
                away_s=0.0 if up else self.now - self.down_since + 0.1,
                listeners=self.listening.get(self.follower.at, 0), beats=self.beats,
            )  # fmt: skip
            if moved:
                self.down_since, self.beats = None, 0
        assert addresses.present(self.current()) == self.follower.at
        return self.follower.at

    def order(self, *wished):
        repoint.Repoint(self.current, self.probe).repoint({"redis": list(wished)})


@pytest.fixture
def link(tmp_path):
    return Link(tmp_path)


def test_the_next_address_is_tried_when_one_is_away_and_left_when_it_is_back(link):
    assert link.run(30) == A
    del link.listening[A]
    assert link.run(5) == A
    assert link.run(20) == B
    assert "h7:pw7@10.0.0.2" in link.current().redis_url
    assert link.run(100) == B
    link.listening[A] = 1
    assert link.run(70) == A


def test_where_nothing_answers_it_stays_and_goes_to_the_first_that_does(link):
    link.listening = {}
    assert link.run(100) == A
    link.listening = {B: 1}
    assert link.run(20) == B


def test_a_redis_at_which_no_console_listens_is_left_where_one_listens_elsewhere(link):
    link.listening = {A: 0, B: 0}
    assert link.run(200) == A  # the console starts anew
    link.listening = {A: 0, B: 1}
    assert link.run(70) == B


def test_with_one_address_there_is_nothing_to_decide(tmp_path):
    link = Link(tmp_path, more=())
    link.listening = {}
    assert link.run(200) == A


def test_an_order_takes_effect_after_the_next_beat_and_the_old_list_ends_when_confirmed(link):
    link.order(C)
    link.beats -= 1  # none goes through just now
    assert link.run(1) == A
    assert link.run(2) == C
    assert link.current().addresses == (C, A, B)
    assert link.run(int(repoint.CONFIRM_S) + 30) == C
    assert link.current().addresses == (C,)


def test_an_order_whose_console_falls_silent_is_left_again_and_not_confirmed(link):
    link.order(C)
    assert link.run(5) == C
    link.listening[C] = 0
    assert link.run(70) == A
    assert link.run(int(repoint.CONFIRM_S) + 100) == A
    assert link.current().addresses == (C, A, B)


def test_an_order_that_comes_twice_changes_nothing_more(link):
    link.order(C)
    link.order(C)
    assert link.current().addresses == (C, A, B)
    link.order(B, C)
    assert link.current().addresses == (B, C, A)


def test_joining_anew_ends_the_list_that_was_sent(link):
    link.order(C)
    data = json.loads(link.path.read_text())
    link.path.write_text(json.dumps({**data, "key": "ab" * 32}))
    assert link.current().addresses == (A, B)
    (link.path.parent / layers.ADDRESSES).write_text('{"over": "cut')
    assert link.current().addresses == (A, B)
