"""When many servers fall silent at once the console doubts itself: nothing acts on silence until that is over."""

import itertools
import json
import time
from datetime import timedelta

import pytest
import redis
from django.utils import timezone

from console import doubt, streams
from console.errors import Conflict, NotAllowed
from console.ingest import Ingest
from console.models import Alert, User
from deployments.models import Attempt, Batch, Job, JobState, Server
from deployments.services import batches
from deployments.services.silence import CALM_S, Group, Silence

WALL = 1_800_000_000.0


@pytest.fixture
def administrator(db):
    return User.objects.create_user("root", password="only-for-this-test", role="administrator")


class Fleet:
    """Servers 1 … n of which `silent` are not heard; `turn` lets a second pass."""

    def __init__(self, n):
        self.ages = dict.fromkeys(range(1, n + 1), 1.0)
        self.silent = set()
        self.group = Group(simulated=False)
        self.now = 1000.0

    def turn(self, seconds=1):
        for _ in range(seconds):
            self.now += 1
            self.ages = {pk: age + 1 if pk in self.silent else 1.0 for pk, age in self.ages.items()}
            self.group.judge(self.ages, self.now, WALL + self.now)
        return self.group.on


def test_a_few_are_a_few():
    fleet = Fleet(10)
    fleet.silent = {1, 2, 3}
    assert fleet.turn(200) is None, "three of ten are not more than 30 %"


def test_many_at_once_are_doubted_from_the_moment_they_count_as_silent():
    fleet = Fleet(10)
    fleet.silent = {1, 2, 3, 4}
    assert fleet.turn(14) is None
    on = fleet.turn(2)
    assert (on.silent, on.of, on.ids) == (4, 10, (1, 2, 3, 4))
    fleet.silent |= {5}
    on = fleet.turn(30)
    assert (on.silent, on.ids) == (5, (1, 2, 3, 4, 5))
    assert fleet.turn(7200), "and for as long as they are silent"


def test_two_servers_of_two_are_too_few_to_tell():
    fleet = Fleet(2)
    fleet.silent = {1, 2}
    assert fleet.turn(200) is None
    fleet = Fleet(3)
    fleet.silent = {1, 2, 3}
    assert fleet.turn(20)


def test_one_after_another_is_no_common_cause():
    fleet = Fleet(20)
    for pk in range(1, 20):
        fleet.silent.add(pk)
        assert fleet.turn(80) is None


def test_those_that_were_silent_before_do_not_count():
    fleet = Fleet(20)
    fleet.silent = {1, 2, 3, 4, 5, 6}
    fleet.turn(100)
    fleet.silent |= {7, 8, 9}
    assert fleet.turn(100) is None, "three of fourteen"


def test_it_ends_when_they_have_been_back_for_a_minute():
    fleet = Fleet(10)
    fleet.silent = {1, 2, 3, 4, 5}
    fleet.turn(30)
    fleet.silent = {1}
    assert fleet.turn(int(CALM_S))
    assert fleet.turn(2) is None


def test_two_of_ten_still_silent_are_not_calm():
    fleet = Fleet(10)
    fleet.silent = {1, 2, 3, 4, 5}
    fleet.turn(30)
    fleet.silent = {1, 2}
    assert fleet.turn(600)


def test_flapping_keeps_it_on_and_does_not_flap():
    fleet = Fleet(10)
    seen = []
    for turn in range(10):
        fleet.silent = {1, 2, 3, 4, 5} if turn % 2 == 0 else set()
        for _ in range(30):
            seen.append(fleet.turn() is not None)
    assert seen.count(True) > 270
    assert sum(a != b for a, b in itertools.pairwise(seen)) == 1, "it went on once and stayed on"
    fleet.silent = set()
    assert fleet.turn(int(CALM_S) + 2) is None


def test_whoever_is_known_to_be_down_counts_no_more_until_heard():
    fleet = Fleet(10)
    fleet.silent = {1, 2, 3, 4, 5}
    fleet.turn(30)
    fleet.group.accepted = set(fleet.silent)
    fleet.group.end()
    assert fleet.turn(100) is None
    fleet.silent |= {6, 7}
    assert fleet.turn(30) is None, "two of the five others are too few"
    fleet.silent = set()
    fleet.turn(5)
    fleet.silent = {1, 2, 3, 4}
    assert fleet.turn(20), "heard again, they count again"


# ---------- in the ingest process ----------


class Clock:
    def __init__(self):
        self.passed = 0.0

    def monotonic(self):
        return 5000.0 + self.passed


@pytest.fixture
def world(valkey, db, monkeypatch):
    """Ten real servers and ten simulated, all heard by an ingest whose clock the test moves."""

    monkeypatch.setattr(doubt, "_away_until", 0.0)  # another test may have taken Redis away just now

    class World:
        clock = Clock()
        client = valkey.client()

        def listen(self):
            self.ingest = Ingest(valkey.url)
            self.ingest.telemetry.monotonic = self.clock.monotonic
            self.ingest._reading_since = self.clock.monotonic()
            self.ingest.beats.psubscribe(streams.BEATS)
            self.ingest.beats.get_message(timeout=1)

        def turn(self, *heard, seconds=1):
            for _ in range(seconds):
                self.clock.passed += 1
                at = self.clock.monotonic()
                for server in heard:
                    self.client.publish(streams.beat(server.pk), json.dumps({"active": []}))
                self.ingest.tick(time.time(), at)

    made = World()
    seen = timezone.now()
    made.real = [Server.objects.create(name=f"kp-{n:02}", last_seen_at=seen) for n in range(10)]
    made.demo = [Server.objects.create(name=f"demo-{n}", last_seen_at=seen, simulated=True) for n in range(10)]
    made.listen()
    made.turn(*made.real, *made.demo)
    return made


def test_no_job_is_lost_no_wave_begins_and_one_alert_is_open_until_they_are_back(
    world, django_capture_on_commit_callbacks
):
    until = timezone.now() + timedelta(hours=1)
    running = Job.objects.create(server=world.real[0], kind="check", state=JobState.RUNNING, not_after=until)
    Attempt.objects.create(pk="a1-1-00000000", job=running, n=1, state=JobState.RUNNING, next_line=2)
    assert doubt.read() == []
    world.turn(*world.real[6:], *world.demo, seconds=20)
    (on,) = doubt.read()
    assert (on.simulated, on.silent, on.of) == (False, 6, 10)
    assert doubt.is_on(False) and not doubt.is_on(True)
    batch = Batch.objects.create(kind="check")
    for wave, server in enumerate(world.real[:2]):
        Job.objects.create(server=server, kind="check", state=JobState.DRAFT, batch=batch, wave=wave, not_after=until)
    world.turn(*world.real[6:], *world.demo, seconds=90)
    running.refresh_from_db()
    assert running.state == JobState.RUNNING
    batches.advance(batch.pk)
    assert set(batch.jobs.values_list("state", flat=True)) == {JobState.DRAFT}
    alert = Alert.objects.get(ended_at=None)
    assert (alert.name, alert.subject, alert.severity) == ("fleet-silent", "", "critical")
    world.turn(*world.real, *world.demo, seconds=int(CALM_S) + 3)
    assert doubt.read() == [] and not Alert.objects.filter(ended_at=None).exists()
    with django_capture_on_commit_callbacks():
        batches.advance(batch.pk)
    assert JobState.QUEUED in batch.jobs.values_list("state", flat=True)
    world.turn(*world.real[1:], *world.demo, seconds=70)
    running.refresh_from_db()
    assert running.state == JobState.LOST, "a single silent server is believed"


def test_the_alert_counts_those_that_follow(world):
    world.turn(*world.real[6:], *world.demo, seconds=20)
    assert "6 of 10" in Alert.objects.get(ended_at=None).what[1]
    world.turn(*world.real[8:], *world.demo, seconds=30)
    world.turn(*world.real[4:], *world.demo, seconds=5)
    assert "8 of 10" in Alert.objects.get(ended_at=None).what[1]


def test_simulated_servers_are_doubted_apart(world):
    world.turn(*world.real, seconds=20)
    assert [one.simulated for one in doubt.read()] == [True]
    assert Alert.objects.get(ended_at=None).subject == "simulated"


def test_an_administrator_who_knows_that_they_are_down_ends_it(world, administrator, operator):
    job = Job.objects.create(
        server=world.real[0], kind="check", state=JobState.RUNNING, not_after=timezone.now() + timedelta(hours=1)
    )
    with pytest.raises(Conflict):
        doubt.end_by_hand(by=administrator)
    world.turn(*world.real[6:], *world.demo, seconds=70)
    with pytest.raises(NotAllowed):
        doubt.end_by_hand(by=operator)
    doubt.end_by_hand(by=administrator)
    world.turn(*world.real[6:], *world.demo, seconds=7)
    assert doubt.read() == [] and not Alert.objects.filter(ended_at=None).exists()
    job.refresh_from_db()
    assert job.state == JobState.LOST


def test_an_ingest_that_begins_anew_goes_on_doubting(world):
    world.turn(*world.real[6:], *world.demo, seconds=20)
    world.listen()
    world.turn(*world.real[6:], *world.demo, seconds=80)
    (on,) = doubt.read()
    assert on.silent == 6
    assert Alert.objects.filter(name="fleet-silent").count() == 1
    world.turn(*world.real, *world.demo, seconds=int(CALM_S) + 3)
    assert doubt.read() == []


def test_an_ingest_that_begins_in_the_middle_of_silence_doubts_too(world):
    """The console was restarted because nothing was seen; the network is still cut."""
    world.listen()
    world.turn(*world.real[6:], *world.demo, seconds=20)
    (on,) = doubt.read()
    assert on.silent == 6


def test_after_redis_was_away_nobody_is_blamed_for_our_deafness(world):
    world.clock.passed += 300
    world.ingest._due.clear()
    world.ingest._reading_since = world.clock.monotonic()
    world.turn(*world.real, *world.demo, seconds=5)
    assert doubt.read() == []


def test_those_in_maintenance_or_cut_off_do_not_count(world):
    Server.objects.filter(pk__in=[one.pk for one in world.real[:3]]).update(maintenance=True)
    Server.objects.filter(pk__in=[one.pk for one in world.real[3:6]]).update(cut_off_at=timezone.now())
    world.turn(*world.real[6:], *world.demo, seconds=80)
    assert doubt.read() == []


def test_silence_state_survives_a_redis_that_forgot_it(world):
    world.turn(*world.real[6:], *world.demo, seconds=20)
    world.client.delete(streams.DOUBT)
    world.ingest._due.clear()
    world.turn(*world.real[6:], *world.demo, seconds=3)
    assert doubt.is_on(False)


def test_reading_without_redis_is_no_doubt_and_does_not_wait_again(settings, monkeypatch):
    monkeypatch.setattr(doubt, "_away_until", 0.0)
    asked = []

    class Away:
        def get(self, name):
            asked.append(name)
            raise redis.ConnectionError

    monkeypatch.setattr(doubt, "client", Away)
    assert doubt.read() == [] and doubt.read() == []
    assert len(asked) == 1


def test_who_lost_the_lease_and_gets_it_again_begins_to_listen_then(valkey, db):
    ingest = Ingest(valkey.url)
    assert ingest.holds_lease(1000.0) and ingest._reading_since == 1000.0
    valkey.client().set(streams.INGEST_LEASE, "another")
    assert not ingest.holds_lease(1010.0)
    valkey.client().delete(streams.INGEST_LEASE)
    assert ingest.holds_lease(1020.0) and ingest._reading_since == 1020.0


# ---------- on pages ----------


def test_every_page_says_so_and_an_administrator_ends_it_there(world, client, administrator, operator):
    client.force_login(operator)
    assert 'role="alert"' not in client.get("/").content.decode()
    world.turn(*world.real[6:], *world.demo, seconds=20)
    for path in ("/", "/jobs/", "/doubt/"):
        page = client.get(path, headers={"accept-language": "en"}).content.decode()
        assert "6 of 10 servers fell silent at once." in page and "/doubt/end" not in page
    refused = client.post("/doubt/end", follow=True, headers={"accept-language": "en"}).content.decode()
    assert "Only an administrator" in refused
    client.force_login(administrator)
    assert "/doubt/end" in client.get("/").content.decode()
    back = client.post("/doubt/end", headers={"referer": "http://testserver/jobs/"})
    assert back.url == "http://testserver/jobs/"
    assert client.post("/doubt/end", headers={"referer": "http://elsewhere.example/"}).url == "/"
    world.turn(*world.real[6:], *world.demo, seconds=2)
    assert client.get("/doubt/").content.decode().strip() == ""


def test_just_after_a_restart_the_banner_names_those_that_fell_silent_before(world, client, operator):
    doubt.write(world.client, [doubt.Doubt(False, WALL, 0, 10, (1, 2, 3, 4, 5, 6))])
    client.force_login(operator)
    page = client.get("/doubt/", headers={"accept-language": "en"}).content.decode()
    doubt.write(world.client, [])
    assert "6 of 10 servers fell silent at once." in page


def test_the_group_state_is_kept_as_json_that_can_be_read_back():
    one = doubt.Doubt(True, WALL, 3, 4, (1, 2, 3))
    assert doubt.parse(json.dumps([vars(one)]).encode()) == [one]
    assert doubt.parse(None) == []
    assert Silence().is_on is False
