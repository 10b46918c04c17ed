"""Alerts open once, are counted while they last, and end by themselves or by hand."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import connections
from django.utils import timezone

from console import alerts
from console.errors import NotAllowed, NotFound
from console.models import Alert, User

WORDS = {"what": ("数据库满了", "The database is full"), "do": ("清理磁盘。", "Free some space.")}


@pytest.mark.django_db
def test_an_open_alert_is_counted_and_has_its_newest_words():
    first = alerts.fire("disk-full", "server:7", **WORDS)
    again = alerts.fire("disk-full", "server:7", **{**WORDS, "do": ("再看。", "Look again.")}, severity="critical")
    assert (first.pk, again.count, again.severity, again.do[1]) == (again.pk, 2, "critical", "Look again.")
    assert alerts.counts() == (1, 1)
    assert alerts.fire("disk-full", "server:8", **WORDS).pk != first.pk


@pytest.mark.django_db
def test_what_ended_opens_anew():
    first = alerts.fire("disk-full", **WORDS)
    assert alerts.resolve("disk-full")
    assert not alerts.resolve("disk-full")
    assert alerts.counts() == (0, 0)
    assert alerts.fire("disk-full", **WORDS).pk != first.pk


@pytest.mark.django_db(transaction=True)
def test_many_who_fire_at_once_open_one():
    def fire(_):
        try:
            return alerts.fire("disk-full", **WORDS).pk
        finally:
            connections.close_all()

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(fire, range(16)))) == 1
    assert Alert.objects.get().count == 16


@pytest.mark.django_db
def test_an_operator_resolves_by_hand_and_a_viewer_does_not():
    alert = alerts.fire("disk-full", **WORDS)
    viewer, operator = (User.objects.create_user(role, role=role) for role in ("viewer", "operator"))
    with pytest.raises(NotAllowed):
        alerts.resolve_by_hand(viewer, alert.pk)
    assert alerts.resolve_by_hand(operator, alert.pk).resolved_by == operator
    with pytest.raises(NotFound):
        alerts.resolve_by_hand(operator, alert.pk + 1)


@pytest.mark.django_db
def test_old_ones_go_and_open_ones_stay():
    old = alerts.fire("disk-full", **WORDS)
    alerts.fire("still-open", **WORDS)
    Alert.objects.update(started_at=timezone.now() - timedelta(days=400))
    Alert.objects.filter(pk=old.pk).update(ended_at=timezone.now() - timedelta(days=alerts.KEPT_DAYS + 1))
    assert alerts.prune() == 1
    assert Alert.objects.get().name == "still-open"
