"""Keys of a server change while it works: no job is lost, and whatever is cut off leaves it with keys that serve."""

import json
import os
import random
import signal
import time
from datetime import timedelta

import pytest
import redis
from auditlog.models import LogEntry
from django.utils import timezone

from console import streams
from console.errors import NotAllowed
from console.ingest import Ingest
from console.models import Alert, User
from deployments import queues
from deployments.agent import config as configs
from deployments.agent import credentials, dispatch
from deployments.agent import rotation as agent_rotation
from deployments.agent.link import Link, connect, reaches
from deployments.agent.orders import CannotObey
from deployments.models import Attempt, Job, JobState, Order, Phase, Rotation, Server, ServerChange
from deployments.services import enrol, orders, rotation
from tests.deployments.agent_bench import KEY, AgentServer
from tests.waiting import until

OLD_PASSWORD = "pw7-of-before-the-change"


@pytest.fixture
def administrator(db):
    return User.objects.create_user("root", password="only-for-this-test", role="administrator")


@pytest.fixture
def agent(tmp_path, valkey, db):
    """Server 7 as the console knows it, and its agent's config."""
    row = Server.objects.create(pk=7, name="kp-07", key=KEY, redis_password=OLD_PASSWORD, last_seen_at=timezone.now())
    client = valkey.client()
    enrol.apply_rights(client, row)
    made = AgentServer(tmp_path, f"redis://h7:{OLD_PASSWORD}@127.0.0.1:{valkey.port}/0")
    made.client, made.row, made.valkey = client, row, valkey
    yield made
    made.close()
    client.acl_deluser("h7")


def started(agent):
    """The agent's link as its process begins: with what its files say now."""
    config = configs.load(agent.config.path)
    handlers = agent_rotation.Rotation(configs.Current(config), reaches).handlers
    return Link(config, connect(config), worker_alive=lambda: True, handlers=handlers)


@pytest.fixture
def console(valkey, agent):
    made = Ingest(valkey.url)
    made.beats.psubscribe(streams.BEATS)
    made.beats.get_message(timeout=1)
    return made


def turn(console, *links):
    """One look of the agent at its orders, one of the console at its beats, and what the console looks after."""
    for link in links:
        link.orders_at = link.beat_at = 0.0
        link.back_offs["orders"].until = link.back_offs["beat"].until = 0.0
        link.tick()
    console.tick(time.time(), time.monotonic())
    rotation.look_after()
    orders.look_after(timezone.now())  # pushes what waits for a commit that a test never makes


def takes(agent, password):
    try:
        return redis.Redis(port=agent.valkey.port, username="h7", password=password, retry=None).ping()
    except redis.AuthenticationError:
        return False


def begin(agent, by, callbacks):
    with callbacks(execute=True):
        return rotation.start(agent.row, by=by)


def check_goes_by_new_keys(agent, made):
    agent.row.refresh_from_db()
    assert (agent.row.key, agent.row.redis_password) == (made.key, made.password)
    config = configs.load(agent.config.path)
    assert config.key == made.key and config.before is None
    assert takes(agent, made.password) and not takes(agent, OLD_PASSWORD)


def test_both_sides_end_with_the_new_keys_only(agent, console, administrator, django_capture_on_commit_callbacks):
    made = begin(agent, administrator, django_capture_on_commit_callbacks)
    assert takes(agent, OLD_PASSWORD) and takes(agent, made.password)
    link = started(agent)
    with django_capture_on_commit_callbacks(execute=True):
        until(lambda: (turn(console, link), not Rotation.objects.exists())[1])
    check_goes_by_new_keys(agent, made)
    assert (agent.state / "credentials.json").stat().st_mode & 0o777 == 0o600
    assert not Order.objects.exclude(args={}).exists(), "no secret stays in an order that has ended"
    verbs = LogEntry.objects.filter(additional_data__verb__startswith="server.keys").order_by("pk")
    assert [entry.additional_data["verb"] for entry in verbs] == ["server.keys_asked", "server.keys_changed"]
    assert agent.row.keys_changed_at
    changed = ServerChange.objects.get()
    assert (changed.field, changed.after, changed.by_name) == ("credentials", "rotated", administrator.username)


class Cut(BaseException):
    """The agent is killed here."""


def before_trying(patch):
    patch.setattr("deployments.agent.link.redis.Redis.ping", cut)


def before_writing(patch):
    patch.setattr(credentials, "write", cut)


def in_the_middle_of_writing(patch):
    patch.setattr("deployments.agent.spool.os.fsync", cut)


def before_the_new_file_takes_its_place(patch):
    patch.setattr("pathlib.Path.replace", cut)


def before_the_answer_is_noted(patch):
    patch.setattr("deployments.agent.orders.Orders._note", cut)


def before_the_order_leaves_the_list(patch):
    patch.setattr("redis.Redis.lrem", cut)


def before_the_beat(patch):
    patch.setattr(Link, "_beat", cut)


def cut(*_args, **_named):
    raise Cut


@pytest.mark.parametrize(
    "point",
    [
        before_trying,
        before_writing,
        in_the_middle_of_writing,
        before_the_new_file_takes_its_place,
        before_the_answer_is_noted,
        before_the_order_leaves_the_list,
        before_the_beat,
    ],
)
def test_an_agent_killed_at_any_point_comes_back_with_keys_that_serve_and_goes_on(
    agent, console, administrator, django_capture_on_commit_callbacks, monkeypatch, point
):
    made = begin(agent, administrator, django_capture_on_commit_callbacks)
    link = started(agent)
    link.beat_at = float("inf") if point is not before_the_beat else 0.0
    with monkeypatch.context() as patch:
        point(patch)
        with pytest.raises(Cut):
            link.tick()
    config = configs.load(agent.config.path)
    assert MADE[config.key == made.key] and reaches(config.redis_url) is None
    body = agent.payload("print(1)")
    assert dispatch.opened(config, *agent.signed(body), time.time())["op"] == "run", "what the old key signed is taken"
    link = started(agent)
    with django_capture_on_commit_callbacks(execute=True):
        until(lambda: (turn(console, link), not Rotation.objects.exists())[1])
    check_goes_by_new_keys(agent, made)


MADE = {True: "new", False: "old"}


def test_a_console_killed_before_redis_drops_the_old_password_does_it_later(
    agent, console, administrator, django_capture_on_commit_callbacks
):
    made = begin(agent, administrator, django_capture_on_commit_callbacks)
    link = started(agent)
    with django_capture_on_commit_callbacks():  # what follows the commit is never called
        until(lambda: (turn_without_looking_after(console, link), Rotation.objects.get().phase == Phase.TAKEN)[1])
    assert takes(agent, OLD_PASSWORD)
    with django_capture_on_commit_callbacks(execute=True):
        until(lambda: (turn(console, link), not Rotation.objects.exists())[1])
    check_goes_by_new_keys(agent, made)


def turn_without_looking_after(console, link):
    link.orders_at = link.beat_at = 0.0
    link.tick()
    console._read_beats(time.time())
    console.telemetry.know(Server.objects.all())
    console._note_answers()


def test_connections_by_the_old_password_are_ended(agent, console, administrator, django_capture_on_commit_callbacks):
    thief = redis.Redis(port=agent.valkey.port, username="h7", password=OLD_PASSWORD, retry=None)
    thief.ping()
    begin(agent, administrator, django_capture_on_commit_callbacks)
    link = started(agent)
    with django_capture_on_commit_callbacks(execute=True):
        until(lambda: (turn(console, link), not Rotation.objects.exists())[1])
    with pytest.raises(redis.ConnectionError):
        thief.get("h:7:x")


def test_one_that_nobody_answers_comes_to_nothing_and_locks_nobody_out(
    agent, console, administrator, django_capture_on_commit_callbacks
):
    made = begin(agent, administrator, django_capture_on_commit_callbacks)
    link = started(agent)
    link.beat_at = float("inf")
    link.orders.tick()  # the agent has both, and cannot say so
    with django_capture_on_commit_callbacks(execute=True):
        orders.look_after(timezone.now() + timedelta(seconds=rotation.VALID_S + 1))
    assert not Rotation.objects.exists()
    assert takes(agent, OLD_PASSWORD) and not takes(agent, made.password)
    assert Alert.objects.get(ended_at=None).name == "keys-unchanged"
    fresh = started(agent)
    fresh.tick()
    fresh.back_offs["beat"].until = 0.0
    fresh.tick()
    assert fresh.beats >= 1, "it comes back by the old password"
    # and the next one succeeds, from the keys that the console goes by
    second = begin(agent, administrator, django_capture_on_commit_callbacks)
    with django_capture_on_commit_callbacks(execute=True):
        until(lambda: (turn(console, fresh), not Rotation.objects.exists())[1])
    check_goes_by_new_keys(agent, second)
    assert not Alert.objects.filter(ended_at=None).exists()


def test_a_password_that_redis_does_not_take_leaves_the_agent_as_it_was(agent):
    handlers = agent_rotation.Rotation(configs.Current(agent.config), reaches).handlers
    args = {"key": "6b" * 32, "password": "not-known-to-this-redis", "from": "x"}
    with pytest.raises(CannotObey, match="does not take"):
        handlers["rotate"](args)
    assert configs.load(agent.config.path).key == KEY
    for bad in ({}, {"key": "xx"}, {**args, "key": 7}, {**args, "password": "a b"}, {**args, "password": None}):
        with pytest.raises(CannotObey, match="holds no"):
            handlers["rotate"](bad)
    agent.client.execute_command("ACL", "SETUSER", "h7", f">{args['password']}")
    with pytest.raises(CannotObey, match="does not have"):
        handlers["rotate"](args)


def test_a_config_written_anew_ends_what_was_sent_before(agent):
    made = credentials.Pair("6b" * 32, "p" * 32)
    credentials.write(agent.state, credentials.Kept(configs.load(agent.config.path).origin, made))
    assert configs.load(agent.config.path).key == made.key
    data = json.loads(agent.config.path.read_text()) | {"key": "7c" * 32}
    agent.config.path.write_text(json.dumps(data))
    assert configs.load(agent.config.path).key == "7c" * 32
    (agent.state / "credentials.json").write_text('{"over": 1')
    assert configs.load(agent.config.path).key == "7c" * 32


def test_who_may_and_which_servers(agent, administrator, operator):
    with pytest.raises(NotAllowed):
        rotation.start(agent.row, by=operator)
    silent = Server.objects.create(name="kp-08")
    demo = Server.objects.create(name="demo-1", simulated=True, last_seen_at=timezone.now())
    begun, refused = rotation.start_all([agent.row, silent, demo, agent.row], by=administrator)
    assert [made.server_id for made in begun] == [7]
    assert [(server.name, error.code) for server, error in refused] == [
        ("kp-08", "server_offline"), ("demo-1", "simulated"), ("kp-07", "rotation_under_way"),
    ]  # fmt: skip


@pytest.mark.django_db(transaction=True)
def test_real_processes_killed_over_and_over_while_keys_change_lose_no_job(agent, console, administrator):
    """Jobs are queued all the while, as the console does it; the link and the worker are killed at random."""
    rest = random.Random(7)
    parts = {part: agent.start(part) for part in ("link", "worker")}
    queued = []
    rotations = 0
    end = time.monotonic() + 12
    while time.monotonic() < end:
        if not Rotation.objects.exists() and rotations < 3:
            Server.objects.update(last_seen_at=timezone.now())
            rotation.start(Server.objects.get(pk=7), by=administrator)
            rotations += 1
        if len(queued) < 60:
            queued.append(queue_one(agent, len(queued)))
        console.tick(time.time(), time.monotonic())
        time.sleep(0.05)
        if rest.random() < 0.06:
            part = rest.choice(["link", "worker"])
            os.kill(parts[part].pid, signal.SIGKILL)
            parts[part].wait()
            parts[part] = agent.start(part)
    until(lambda: (look(console), not Rotation.objects.exists())[1], timeout=30)
    until(lambda: (look(console), not unended())[1], timeout=30)
    agent.row.refresh_from_db()
    assert rotations >= 1 and agent.row.key != KEY
    assert not takes(agent, OLD_PASSWORD)
    ran = sorted(path.read_text() for path in (agent.state / "marks").iterdir())
    assert ran == ["x"] * len(queued), "each job ran once"
    assert Server.objects.get(pk=7).refused == 0


def queue_one(agent, n):
    marks = agent.state / "marks"
    marks.mkdir(exist_ok=True)
    program = f"open({str(marks / str(n))!r}, 'a').write('x')"
    job = Job.objects.create(
        server_id=7, kind="try_program", params={"programs": [program]}, not_after=timezone.now() + timedelta(hours=1)
    )
    attempt = Attempt.objects.create(pk=f"a{job.pk}-1-{n:08x}", job=job, n=1, pushed_at=timezone.now(), pushes=1)
    queues.push(Attempt.objects.select_related("job__server").get(pk=attempt.pk))
    return attempt


def look(console):
    console.tick(time.time(), time.monotonic())
    time.sleep(0.05)


def unended():
    return list(Job.objects.exclude(state=JobState.SUCCEEDED).values_list("pk", "state"))
