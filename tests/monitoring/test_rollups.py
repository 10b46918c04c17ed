"""Longer rows of history: what they hold, gaps, late rows, a process that was away, retention, reading."""

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from console.errors import Invalid
from deployments.models import Server
from monitoring import history
from monitoring.models import Minute, Rollup
from monitoring.services import rollups, series

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
ENGINE = [3, 1, 40.0, 800.0, 90.0, 35.0, 12.0]


def minute(server, at, aicore=50, temp=60, n=60, **more):
    return Minute(server=server, at=at, data={"n": n, "npus": {"0.0": [aicore, 1000, temp, None]}, **more})


@pytest.fixture
def minutes(server):
    """An hour of minutes from noon on, with a hole of 20 minutes."""
    rows = [minute(server, NOON + timedelta(minutes=n), n, 40 + n) for n in range(60) if not 20 <= n < 40]
    Minute.objects.bulk_create(rows)
    return server


def kept(step):
    return {row.at: row.data for row in Rollup.objects.filter(step_s=step)}


def test_five_minutes_and_hours_are_made_of_minutes(minutes):
    rollups.roll(NOON + timedelta(minutes=61))
    short = kept(300)
    assert len(short) == 8 and NOON + timedelta(minutes=20) not in short
    assert short[NOON]["npus"]["0.0"] == [2.0, 1000.0, 44.0, None] and short[NOON]["n"] == 300
    assert kept(3600) == {NOON: {"n": 2400, "npus": {"0.0": [29.5, 1000.0, 99.0, None]}}}


def test_what_counts_by_samples_counts_by_samples(server):
    Minute.objects.bulk_create([minute(server, NOON, 100, n=1), minute(server, NOON + timedelta(minutes=1), 0, n=9)])
    rollups.roll(NOON + timedelta(minutes=6))
    assert kept(300)[NOON]["npus"]["0.0"][0] == 10.0


def test_the_window_that_is_under_way_waits(minutes):
    rollups.roll(NOON + timedelta(minutes=4, seconds=59))
    assert not Rollup.objects.exists()


def test_it_may_run_twice_and_takes_what_came_late(minutes):
    rollups.roll(NOON + timedelta(minutes=61))
    rollups.roll(NOON + timedelta(minutes=61))
    assert len(kept(300)) == 8
    minute(minutes, NOON + timedelta(minutes=22), 80).save()
    rollups.roll(NOON + timedelta(minutes=66))  # of more than a few windows ago: not each time
    rollups.roll(NOON + timedelta(minutes=121))
    assert kept(300)[NOON + timedelta(minutes=20)]["npus"]["0.0"][0] == 80.0
    assert kept(3600)[NOON]["n"] == 2460


def test_after_a_day_away_everything_is_made(server):
    rows = [minute(server, NOON + timedelta(minutes=n)) for n in range(0, 24 * 60, 10)]
    Minute.objects.bulk_create(rows)
    rollups.roll(NOON + timedelta(minutes=11))
    rollups.roll(NOON + timedelta(hours=24, minutes=1))
    assert len(kept(300)) == 144 and len(kept(3600)) == 24


def test_engines_are_kept_beside_npus(server):
    Minute.objects.bulk_create(
        [minute(server, NOON, engines={"7": ENGINE}), minute(server, NOON + timedelta(minutes=1))]
    )
    rollups.roll(NOON + timedelta(minutes=6))
    assert kept(300)[NOON]["engines"]["7"] == ENGINE


def test_sums_of_samples_know_unknown_from_nothing():
    sums = history.Sums()
    npu = {"npu": 0, "chip": 0, "aicore": None, "hbm_used_mb": 10, "temp_c": -5, "power_w": None}
    sums.add([npu], {3: {"running": 0, "ttft_ms": None}})
    sums.add([{**npu, "temp_c": -9, "hbm_used_mb": 20}])
    assert sums.data() == {"n": 2, "npus": {"0.0": [None, 15.0, -5, None]}, "engines": {"3": [0.0] + [None] * 6}}


def test_what_is_old_goes_in_batches(server, settings, monkeypatch):
    monkeypatch.setattr(rollups, "DELETED", 1)
    settings.HISTORY_RAW_HOURS, settings.HISTORY_5MIN_DAYS, settings.HISTORY_HOUR_DAYS = 2, 1, 2
    now = timezone.now()
    Minute.objects.bulk_create([minute(server, now - timedelta(hours=n, minutes=1)) for n in range(4)])
    for step, age in ((300, 0.5), (300, 1.5), (3600, 1.5), (3600, 2.5)):
        Rollup.objects.create(server=server, step_s=step, at=now - timedelta(days=age), data={"n": 1, "npus": {}})
    assert rollups.prune() == 4
    assert Minute.objects.count() == 2 and {(row.step_s) for row in Rollup.objects.all()} == {300, 3600}


def test_a_gap_is_none_on_the_grid(minutes, monkeypatch):
    monkeypatch.setattr(timezone, "now", lambda: NOON + timedelta(hours=1))
    found = series.read(minutes, NOON, NOON + timedelta(hours=1))
    assert (found.step_s, len(found.at)) == (60, 60)
    aicore = found.npus["0.0"]["aicore"]
    assert aicore[19] == 19 and aicore[20:40] == [None] * 20 and aicore[40] == 40
    assert found.npus["0.0"]["power_w"] == [None] * 60


@pytest.mark.parametrize(
    ("ago", "span", "step"),
    [
        ({"hours": 1}, {"hours": 1}, 60),
        ({"hours": 23}, {"hours": 23}, 60),
        ({"days": 2}, {"hours": 1}, 300),  # the minutes are gone
        ({"days": 5}, {"days": 5}, 300),
        ({"days": 30}, {"days": 30}, 3600),
        ({"days": 365}, {"days": 365}, 6 * 3600),
        ({"days": 700}, {"hours": 1}, 3600),
    ],
)
def test_the_step_is_the_finest_that_is_kept_and_can_be_drawn(ago, span, step):
    now = timezone.now()
    since = now - timedelta(**ago)
    assert series.step_for(since, since + timedelta(**span), now) == step


def test_a_year_is_read_in_one_query_as_few_points(server, django_assert_num_queries):
    now = timezone.now()
    Rollup.objects.bulk_create(
        Rollup(server=server, step_s=3600, at=rollups.floor(now, 3600) - timedelta(hours=n),
               data={"n": 3600, "npus": {"0.0": [n % 100, 1, 2, 3]}})
        for n in range(0, 24 * 364, 5)
    )  # fmt: skip
    with django_assert_num_queries(1):
        found = series.read(server, now - timedelta(days=364), now)
    assert len(found.at) <= series.MOST_POINTS + 1
    assert sum(one is not None for one in found.npus["0.0"]["aicore"]) > 1400


@pytest.mark.parametrize("given", [{"since": "x"}, {"span": "nan"}, {"since": "9e99"}, {"since": "5", "until": "4"}])
def test_a_bad_time_is_refused_in_words(server, given):
    with pytest.raises(Invalid):
        series.read(server, *series.asked(given))


def test_servers_do_not_mix(server):
    other = Server.objects.create(name="kp-02")
    Minute.objects.bulk_create([minute(server, NOON, 10), minute(other, NOON, 90)])
    rollups.roll(NOON + timedelta(minutes=6))
    assert {row.server.name: row.data["npus"]["0.0"][0] for row in Rollup.objects.all()} == {
        "kp-01": 10.0,
        "kp-02": 90.0,
    }
