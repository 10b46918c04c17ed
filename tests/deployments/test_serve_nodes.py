"""What the nodes of a replica over several servers are told of each other."""

import pytest
from django.utils import timezone

from deployments.models import Npu
from deployments.services.serve_nodes import Node, between
from deployments.serving import nodes
from tests.deployments.test_serve_jobs import NAMES, make_server

pytestmark = pytest.mark.django_db


@pytest.fixture
def parts():
    """Two servers whose agents have told by which addresses their NPUs are reached."""
    made = []
    for n in (1, 2):
        told = [{"device": i, "roce": f"198.18.{n}.{i}", "hccs": f"198.19.{n}.{i}" if i else None} for i in range(2)]
        made.append(make_server(f"kp-0{n}", facts={"npu_addresses": told}))
    Npu.objects.update(seen_at=timezone.now())
    return made, [Node(row.pk, rank, NAMES, f"192.0.2.{rank}") for rank, row in enumerate(made)]


def test_each_is_told_the_addresses_of_the_others_npus(parts):
    (first, second), both = parts
    assert between(second, both)["peers"] == ["0/0/roce/198.18.1.0", "0/1/hccs/198.19.1.1", "0/1/roce/198.18.1.1"]
    assert between(first, both)["peers"][0] == "1/0/roce/198.18.2.0"
    assert nodes.peer("1/0/roce/198.18.2.0") == nodes.Peer(1, 0, "roce", "198.18.2.0")
    assert between(first, both[:1]) == {}


def test_an_agent_that_tells_of_no_such_addresses_is_told_of_none(parts):
    """It is of an older version, and would refuse what it does not know."""
    (first, _second), both = parts
    del first.facts["npu_addresses"]
    assert between(first, both) == {}


@pytest.mark.parametrize("told", [None, "x", [1, {}], [{"device": 0, "roce": 7}], [{"device": 0, "roce": "a;b"}]])
def test_what_an_agent_tells_is_not_trusted(parts, told):
    (first, second), both = parts
    second.facts = {"npu_addresses": told}
    second.save()
    assert between(first, both) == {"peers": []}


@pytest.mark.parametrize("text", ["", "1/0/roce", "1/0/ub/198.18.2.0", "x/0/roce/198.18.2.0", "1/0/roce/-i,0"])
def test_what_names_no_peer_is_none(text):
    assert nodes.peer(text) is None
