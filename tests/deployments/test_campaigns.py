"""Campaigns: the plan of a fleet, approval by a second person, rings with time between, and what is held back."""

import threading

import pytest
from django.db import connection
from django.utils import timezone

from console import alerts
from console.errors import Conflict, ConsoleError, Invalid, NotAllowed
from console.models import Alert, User
from deployments.models import Batch, Campaign, Job, Server
from deployments.services import batches, campaigns, selection, stacks
from tests.deployments.campaign_bench import (  # noqa: F401
    STACK,
    THERE,
    ask_for,
    cpu_facts,
    fixture_ask,
    fixture_begun,
    fixture_clock,
    fixture_second,
    fresh,
    in_english,
    install,
    make_servers,
    reason,
    state,
    told,
    under_way,
)  # fmt: skip
from tests.deployments.handed import finish

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey", "in_english")]


def rings(campaign):
    return {row.server.name: row.ring for row in campaign.members.select_related("server")}


# ---------- the plan ----------


def test_each_server_is_told_what_it_will_do_before(ask):
    make_servers(3)
    make_servers(1, "ready-", facts=cpu_facts(**THERE))
    make_servers(1, "old-", facts=cpu_facts(arch="riscv64"))
    make_servers(1, "mute-", facts={})
    campaign = ask()
    found = {row.server.name: row for row in campaign.members.select_related("server", "plan")}
    assert found["kp-000"].plan.word == "runs" and len(found["kp-000"].plan.steps) > 5
    assert found["kp-000"].plan_id == found["kp-002"].plan_id
    assert found["ready-000"].plan.word == "satisfied"
    for name in ("old-000", "mute-000"):
        assert found[name].ring is None and found[name].plan is None and len(found[name].because) == 2
    assert "riscv64" in found["old-000"].because[1] and "riscv64" in found["old-000"].because[0]
    assert found["old-000"].because[0] != found["old-000"].because[1]
    assert not Job.objects.exists() and campaign.state == "waiting_approval"


def test_rings_by_size_rack_and_label_and_a_canary_on_which_something_runs(ask):
    made = make_servers(5)
    make_servers(1, "a-ready-", facts=cpu_facts(**THERE))
    assert rings(ask(size=3)) == {
        "kp-000": 0, "a-ready-000": 1, "kp-001": 1, "kp-002": 1, "kp-003": 2, "kp-004": 2
    }  # fmt: skip
    found = ask(by="rack", size=2, canary=0)
    assert set(rings(found).values()) == {1, 2} and found.titles["1"][1] == "Rack A0, A1"
    Server.objects.filter(pk__in=[made[0].pk, made[1].pk]).update(labels={"ring": "test"})
    Server.objects.filter(pk=made[2].pk).update(labels={"ring": "prod"})
    found = ask(by="label", label="ring", values=["test", "prod"], canary=0)
    assert [found.titles[n][1] for n in "123"] == ["ring=test", "ring=prod", "Without label ring"]
    assert rings(found)["kp-002"] == 2


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"by": "moon"}, "bad_plan"), ({"by": "label"}, "bad_plan"), ({"soak_min": -1}, "bad_plan"),
        ({"at_once": 900}, "bad_plan"), ({"size": 0}, "bad_plan"), ({"stack": "none"}, "unknown_stack"),
        ({"params": {"plan": "[]"}}, "unknown_choice"), ({"params": {"route": "x"}}, "invalid_params"),
        ({"asked": selection.Asked(names=["kp-404"])}, "bad_selection"),
        ({"asked": selection.Asked(racks=["Z"])}, "no_server"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_words(ask, more, code):
    make_servers(2)
    with pytest.raises(ConsoleError) as refused:
        ask(**more)
    assert refused.value.code == code and not Campaign.objects.exists()


def test_where_nothing_would_run_none_is_made(ask):
    make_servers(2, facts=cpu_facts(**THERE))
    with pytest.raises(Conflict) as refused:
        ask()
    assert refused.value.code == "nothing_to_do"
    Server.objects.update(facts={})
    with pytest.raises(Conflict) as refused:
        ask()
    assert refused.value.code == "none_can"


# ---------- approval ----------


def test_it_takes_a_second_person_who_is_an_operator_now(ask, operator, viewer, second):
    make_servers(2)
    campaign = ask()
    for who in (operator, viewer):
        with pytest.raises(NotAllowed):
            campaigns.approve(campaign, by=who, seen=campaign.digest)
    before = User.objects.get(pk=second.pk)
    User.objects.filter(pk=second.pk).update(role="viewer")
    with pytest.raises(NotAllowed):
        campaigns.approve(campaign, by=before, seen=campaign.digest)
    assert not Batch.objects.exists() and fresh(campaign).state == "waiting_approval"


def test_of_two_that_approve_one_is_told_that_it_was_done(ask, second):
    make_servers(2)
    third = User.objects.create_user("zhao", role="administrator")
    campaign = ask()
    stale = campaigns.find(campaign.pk)
    campaigns.approve(campaign, by=second, seen=campaign.digest)
    with pytest.raises(Conflict) as refused:
        campaigns.approve(stale, by=third, seen=campaign.digest)
    assert "wang" in refused.value.what and Batch.objects.count() == 1
    with pytest.raises(Conflict):
        campaigns.reject(stale, by=third, note="no")


def test_a_plan_that_changed_before_the_approval_is_shown_anew(ask, second):
    made = make_servers(2)
    campaign = ask()
    seen = campaign.digest
    told(made[0], **THERE)
    with pytest.raises(Conflict) as refused:
        campaigns.approve(campaign, by=second, seen=seen)
    assert refused.value.code == "plan_changed" and not Batch.objects.exists()
    again = fresh(campaign)
    assert again.digest != seen and again.members.get(server=made[0]).plan.word == "satisfied"
    campaigns.approve(again, by=second, seen=again.digest)
    assert fresh(campaign).state == "approved"


def test_it_is_rejected_with_a_note_withdrawn_or_expires(ask, operator, second):
    make_servers(2)
    first, other, late = ask(), ask(), ask()
    with pytest.raises(Invalid):
        campaigns.reject(first, by=second, note=" ")
    assert campaigns.reject(first, by=second, note="Not this week").state == "rejected"
    with pytest.raises(NotAllowed):
        campaigns.withdraw(other, by=second)
    assert campaigns.withdraw(other, by=operator).state == "withdrawn"
    Campaign.objects.filter(pk=late.pk).update(expires_at=timezone.now())
    with pytest.raises(Conflict) as refused:
        campaigns.approve(fresh(late), by=second, seen=late.digest)
    assert "Expired" in refused.value.what
    assert campaigns.expire(timezone.now()) == [late.pk] and fresh(late).state == "expired"
    for one in (first, other, late):
        with pytest.raises(Conflict):
            campaigns.approve(fresh(one), by=second, seen=one.digest)


def test_two_that_approve_in_the_same_moment_begin_it_once(ask, second):
    make_servers(3)
    third = User.objects.create_user("zhao", role="operator")
    campaign, gate, told_ = ask(), threading.Barrier(2), []

    def approve(by):
        gate.wait(10)
        try:
            campaigns.approve(campaigns.find(campaign.pk), by=by, seen=campaign.digest)
            told_.append("approved")
        except ConsoleError as error:
            told_.append(error.code)
        finally:
            connection.close()

    threads = [threading.Thread(target=approve, args=(by,)) for by in (second, third)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60)
    assert sorted(told_) == ["approved", "wrong_state"]
    assert Batch.objects.count() == 1 and Job.objects.count() == 3


# ---------- rings ----------


def test_ring_after_ring_to_the_end_with_versions_before_and_after(begun, clock):
    make_servers(5)
    campaign = begun()
    sizes = []
    while state(campaign) == "running" and (now := under_way(campaign)):
        sizes.append(len(now))
        install(*now)
    assert sizes == [1, 2, 2] and state(campaign) == "succeeded"
    row = campaign.members.first()
    assert row.before["stack"] == "" and row.after["stack"] == STACK and row.after["vllm"] == "0.32.0"
    assert row.after["matches"] is True and row.before["vllm"] == ""


def test_what_was_approved_is_what_the_job_holds(begun):
    make_servers(2)
    campaign = begun()
    job = under_way(campaign)[0]
    assert job.params["plan"].startswith("[{") and job.locks == ["stack"] and job.requester.username != "wang"
    assert "plan" not in Job.objects.filter(batch=campaign.batch_id, state="draft").first().params


def test_the_next_ring_waits_for_the_time_of_watching(begun, clock):
    make_servers(3)
    campaign = begun(soak_min=30)
    install(*under_way(campaign))
    assert under_way(campaign) == [] and state(campaign) == "running"
    clock.move(minutes=29)
    batches.advance(campaign.batch_id)
    assert under_way(campaign) == []
    clock.move(minutes=2)
    batches.advance(campaign.batch_id)
    assert len(under_way(campaign)) == 2


def test_an_alert_in_that_time_stops_it_and_going_on_forgives_it(begun, clock, operator):
    make_servers(3)
    before = make_servers(1, "kp-9")[0]
    alerts.fire("card-lost", f"server:{before.pk}", what=("旧", "old"), do=("看", "look"))
    campaign = begun(soak_min=30)
    job = under_way(campaign)[0]
    install(job)
    for name in ("card-lost", "clone"):
        alerts.fire(name, f"server:{job.server_id}", what=("丢卡", "A card is lost"), do=("看", "look"))
    batches.advance(campaign.batch_id)
    assert state(campaign) == "stopped" and "A card is lost (+1)" in reason(campaign)
    assert Alert.objects.filter(name="campaign-stopped", ended_at=None).count() == 1
    batches.resume(campaign.batch, by=operator)
    assert state(campaign) == "running" and not Alert.objects.filter(name="campaign-stopped", ended_at=None).exists()
    clock.move(minutes=31)
    batches.advance(campaign.batch_id)
    assert len(under_way(campaign)) == 2


def test_a_server_that_no_longer_matches_stops_it_but_not_before_it_could_tell(begun, clock):
    make_servers(3)
    campaign = begun()
    job = under_way(campaign)[0]
    finish(job)
    assert state(campaign) == "running" and under_way(campaign) == []
    clock.move(minutes=4)
    batches.advance(campaign.batch_id)
    assert state(campaign) == "stopped" and job.server.name in reason(campaign)


def test_failures_below_the_rule_stop_it_at_the_end_of_their_ring(begun, clock, operator):
    make_servers(6)
    campaign = begun(canary=0, size=3, at_once=1, stop_after=3, spread=False)
    finish(*under_way(campaign), state="failed")
    install(*under_way(campaign))
    install(*under_way(campaign))
    assert state(campaign) == "stopped" and "did not end well: kp-000" in reason(campaign)
    batches.resume(campaign.batch, by=operator)
    assert [job.server.name for job in under_way(campaign)] == ["kp-003"]


def test_retry_runs_the_approved_plan_again_before_the_rings_that_follow(begun, clock, operator):
    make_servers(3)
    campaign = begun()
    failed = under_way(campaign)[0]
    finish(failed, state="failed")
    assert state(campaign) == "stopped" and "canary" in reason(campaign)
    told(failed, kernel="6.6.0-99")
    frozen = Job.objects.get(pk=failed.pk).params["plan"]
    batches.retry_failed(campaign.batch, by=operator)
    assert [job.pk for job in under_way(campaign)] == [failed.pk]
    assert under_way(campaign)[0].params["plan"] == frozen
    install(*under_way(campaign))
    assert len(under_way(campaign)) == 2


def test_a_restart_of_everything_goes_on_from_rows_alone(begun, clock):
    make_servers(3)
    campaign = begun(soak_min=5)
    install(*under_way(campaign))
    stacks._read_before.clear()
    clock.move(minutes=6)
    assert batches.under_way() == [campaign.batch_id]
    batches.advance_all(batches.under_way())
    batches.advance_all(batches.under_way())
    assert len(under_way(campaign)) == 2
