"""Campaigns while the world changes after the approval: what is held back, left out, stopped, asked again."""

import dataclasses

import pytest
from django.utils import timezone

from console.errors import Conflict, NotAllowed
from console.models import Alert, User
from deployments.models import CampaignPlan, Job, JobState, Server
from deployments.services import batches, campaign_held, campaigns, jobs, lifecycle, stacks
from tests.deployments.campaign_bench import (  # noqa: F401
    STACK,
    THERE,
    fixture_ask,
    fixture_begun,
    fixture_clock,
    fixture_second,
    fresh,
    in_english,
    install,
    make_servers,
    reason,
    stack_at,
    state,
    told,
    under_way,
)  # fmt: skip
from tests.deployments.handed import finish

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey", "in_english")]


def test_a_server_whose_plan_differs_at_its_turn_is_held_back_and_asked_about(begun, clock, second, operator):
    made = make_servers(3)
    campaign = begun()
    told(made[1], pythons=[stack_at("older", torch="1")], stack_current="older", glibc="2.17")
    told(made[2], **THERE)
    install(*under_way(campaign))
    assert under_way(campaign) == [] and state(campaign) == "running"
    rows = campaign_held.held(campaign)
    assert [row.server.name for row in rows] == ["kp-001", "kp-002"]
    assert "steps were approved, now there are 0" in rows[1].held[1] and rows[0].plan is None
    assert Alert.objects.filter(name="campaign-held", ended_at=None).exists()
    with pytest.raises(NotAllowed):
        campaign_held.approve_held(campaign, by=operator, seen=campaign_held.held_digest(rows))
    with pytest.raises(Conflict):
        campaign_held.approve_held(campaign, by=second, seen="other")
    assert campaign_held.approve_held(campaign, by=second, seen=campaign_held.held_digest(rows)) == 1
    assert [job.server.name for job in under_way(campaign)] == ["kp-002"]
    install(*under_way(campaign))
    assert state(campaign) == "running"
    assert campaign_held.leave_out(campaign, by=operator) == 1
    assert Job.objects.get(server=made[1]).state == "cancelled" and state(campaign) == "failed"
    assert not Alert.objects.filter(name="campaign-held", ended_at=None).exists()


def test_a_held_plan_that_changes_again_is_not_approved_unseen(begun, clock, second):
    made = make_servers(2)
    campaign = begun()
    told(made[1], **THERE)
    install(*under_way(campaign))
    seen = campaign_held.held_digest(campaign_held.held(campaign))
    told(made[1])
    with pytest.raises(Conflict):
        campaign_held.approve_held(campaign, by=second, seen=seen)
    assert under_way(campaign) == [] and "now there are" in campaign_held.held(campaign)[0].held[1]
    seen = campaign_held.held_digest(campaign_held.held(campaign))
    assert campaign_held.approve_held(campaign, by=second, seen=seen) == 1
    assert [job.server_id for job in under_way(campaign)] == [made[1].pk]


def test_the_same_steps_with_other_commands_are_another_plan(begun, clock):
    made = make_servers(2)
    campaign = begun()
    told(made[1], stacks_root="/data/stacks")
    install(*under_way(campaign))
    assert "the same steps, but other commands" in campaign_held.held(campaign)[0].held[1]


def test_what_was_left_out_runs_no_plan_that_nobody_approved(begun, clock, operator):
    made = make_servers(2)
    campaign = begun()
    told(made[1], **THERE)
    install(*under_way(campaign))
    campaign_held.leave_out(campaign, by=operator)
    batches.retry_failed(campaign.batch, by=operator)
    assert under_way(campaign) == [] and [row.server_id for row in campaign_held.held(campaign)] == [made[1].pk]


def test_a_server_that_was_decommissioned_is_left_out(begun, clock):
    made = make_servers(3)
    admin = User.objects.create_user("ada", role="administrator")
    campaign = begun()
    lifecycle.decommission(made[1], made[1].name, by=admin)
    Server.objects.filter(pk=made[2].pk).update(leaving_at=timezone.now())
    install(*under_way(campaign))
    assert under_way(campaign) == []
    for server in made[1:]:
        row = Job.objects.get(server=server)
        assert row.state == "cancelled" and "decommissioned" in row.reason[1]


def test_a_stack_that_was_withdrawn_stops_it(begun, clock, tmp_path, settings, operator):
    make_servers(3)
    campaign = begun(soak_min=1)
    known = stacks.catalogue()
    install(*under_way(campaign))
    clock.move(minutes=2)
    gone = dataclasses.replace(known, stacks={**known.stacks})
    gone.stacks[STACK] = dataclasses.replace(known.stacks[STACK], state="withdrawn")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stacks, "catalogue", lambda: gone)
        batches.advance(campaign.batch_id)
        assert state(campaign) == "stopped" and "was withdrawn" in reason(campaign)
        batches.resume(campaign.batch, by=operator)
        assert state(campaign) == "stopped"
    batches.resume(campaign.batch, by=operator)
    assert len(under_way(campaign)) == 2


def test_an_approver_who_is_demoted_takes_the_approval_along(begun, clock, second, operator):
    make_servers(3)
    campaign = begun(soak_min=1)
    install(*under_way(campaign))
    User.objects.filter(pk=second.pk).update(role="viewer")
    clock.move(minutes=2)
    batches.advance(campaign.batch_id)
    assert under_way(campaign) == [] and fresh(campaign).state == "waiting_approval"
    assert state(campaign) == "paused" and "may no longer approve" in reason(campaign)
    batches.resume(campaign.batch, by=operator)
    assert under_way(campaign) == [] and state(campaign) == "paused"
    third = User.objects.create_user("zhao", role="operator")
    with pytest.raises(NotAllowed):
        campaigns.approve(fresh(campaign), by=operator, seen=campaign.digest)
    campaigns.approve(fresh(campaign), by=third, seen=campaign.digest)
    assert len(under_way(campaign)) == 2 and fresh(campaign).decided_by == third


def test_pause_and_stop_hold_for_what_is_held_back_too(begun, clock, operator):
    made = make_servers(4)
    campaign = begun(size=3)
    batches.pause(campaign.batch, by=operator)
    install(*under_way(campaign))
    assert under_way(campaign) == []
    told(made[1], **THERE)
    batches.resume(campaign.batch, by=operator)
    assert len(under_way(campaign)) == 2 and len(campaign_held.held(campaign)) == 1
    batches.stop(campaign.batch, by=operator)
    assert not Job.objects.filter(batch=campaign.batch_id, state=JobState.WAITING_APPROVAL).exists()
    with pytest.raises(Conflict) as refused:
        jobs.retry_job(Job.objects.get(server=made[1]), by=operator)
    assert refused.value.code == "never_planned"


def test_a_single_install_job_passes_the_gate_of_campaigns_untouched(operator):
    server = make_servers(1)[0]
    job = jobs.queue_job(server, "install", {"stack": STACK}, by=operator)
    finish(job)
    assert Job.objects.get(pk=job.pk).state == "succeeded" and not CampaignPlan.objects.exists()
