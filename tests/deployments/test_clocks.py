"""Servers whose clock is wrong: how far is taken from their beats, and who is alerted."""

import json
import time
from datetime import timedelta

import pytest
from django.utils import timezone

from console import schedule, streams
from console.models import Alert
from deployments.models import Server
from deployments.services import clocks
from monitoring.ingest import Telemetry
from tests.console.test_ingest import Turns
from tests.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)


def fleet(*offsets, **fields):
    made = []
    for n, offset in enumerate(offsets):
        values = {"clock_offset_s": offset, "last_seen_at": timezone.now(), **fields}
        made.append(Server.objects.create(name=f"kp-{n:02}", **values))
    return made


def open_alerts():
    return {alert.subject: alert.what[1] for alert in Alert.objects.filter(name=clocks.ALERT, ended_at=None)}


def set_offset(server, seconds):
    Server.objects.filter(pk=server.pk).update(clock_offset_s=seconds)
    schedule.judge_clocks()


def test_who_is_a_minute_off_is_alerted_until_it_is_right_again():
    ahead, behind, *_right = fleet(61.0, -7200.0, 0.01, -0.2, 59.0)
    schedule.judge_clocks()
    schedule.judge_clocks()
    assert open_alerts() == {
        f"server:{ahead.pk}": "The clock of kp-00 is 61 s ahead of the console's.",
        f"server:{behind.pk}": "The clock of kp-01 is 7200 s behind the console's.",
    }
    assert set(Alert.objects.values_list("count", flat=True)) == {1}
    set_offset(behind, -45.0)
    assert f"server:{behind.pk}" in open_alerts(), "not right yet"
    set_offset(behind, -0.3)
    set_offset(ahead, 0.0)
    assert open_alerts() == {}


def test_where_most_are_off_the_console_doubts_its_own_clock():
    servers = fleet(300.1, 299.8, 300.0, 0.0)
    schedule.judge_clocks()
    assert open_alerts() == {
        "": "The clocks of 3 of 4 servers differ from the console's: most likely its own is wrong."
    }
    set_offset(servers[0], 0.0)
    assert set(open_alerts()) == {f"server:{servers[1].pk}", f"server:{servers[2].pk}"}


def test_who_is_silent_simulated_or_gone_is_not_judged():
    fleet(500.0, last_seen_at=timezone.now() - timedelta(minutes=5))
    Server.objects.create(
        name="gone", clock_offset_s=500.0, last_seen_at=timezone.now(), decommissioned_at=timezone.now()
    )
    Server.objects.create(name="sim", clock_offset_s=500.0, last_seen_at=timezone.now(), simulated=True)
    Server.objects.create(name="unknown", last_seen_at=timezone.now())
    schedule.judge_clocks()
    assert open_alerts() == {}


@pytest.mark.parametrize("said", [None, "12", True, float("nan"), float("inf"), 1e300, [1]])
def test_a_beat_with_no_time_says_nothing(said):
    (server,) = fleet(None)
    telemetry = Telemetry()
    telemetry.know([server])
    telemetry.clock(server.pk, said, 1000.0)
    telemetry.beat(server.pk, 1000.0)
    telemetry.flush()
    server.refresh_from_db()
    assert server.clock_offset_s is None and server.last_seen_at is not None


def test_a_beat_that_was_late_on_its_way_makes_nobody_seem_behind():
    (server,) = fleet(None)
    telemetry = Telemetry()
    telemetry.know([server])
    for sent in (900.0, 1000.25, 930.0):  # all taken at once, after ingest stood still
        telemetry.clock(server.pk, sent, 1000.0)
    telemetry.beat(server.pk, 1000.0)
    telemetry.flush()
    server.refresh_from_db()
    assert server.clock_offset_s == 0.25


def test_ingest_takes_it_from_the_beat(valkey):
    (server,) = fleet(None)
    turns = Turns(valkey.url)
    turns.turn(3.0)
    valkey.client().publish(streams.beat(server.pk), json.dumps({"t": time.time() + 90}))

    def offset():
        turns.turn()
        turns.ingest.telemetry.flush()
        server.refresh_from_db()
        return server.clock_offset_s

    assert until(offset, 10) == pytest.approx(90, abs=5)
