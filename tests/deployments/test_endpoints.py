"""Where a deployment is asked: one answer for the list, its page, commands, the playground and REST."""

import pytest

from deployments.models import Deployment, Gateway, Replica, Server
from deployments.services import endpoints

SERVER = Server(name="kp-01", hostname="kp-01.lab")
DEPLOYMENT = Deployment(name="qwen")
READY = Replica(n=1, state="ready", address="10.0.0.5", port=18000)


def gateway(**more):
    return Gateway(**{"server": SERVER, "address": "10.0.0.9", "port": 19000, "enabled": True, **more})


@pytest.mark.parametrize(
    "more, url",
    [({}, "http://10.0.0.9:19000/v1"), ({"address": "fd00::9"}, "http://[fd00::9]:19000/v1"),
     ({"address": "0.0.0.0"}, "http://kp-01.lab:19000/v1"), ({"address": "::"}, "http://kp-01.lab:19000/v1"),
     ({"address": "::", "server": Server(hostname="a;reboot")}, "http://SERVER:19000/v1"),
     ({"address": "::", "server": Server()}, "http://SERVER:19000/v1"), ({"port": 0}, "")],
)  # fmt: skip
def test_the_address_of_a_gateway_is_one_that_clients_can_write(more, url):
    assert endpoints.of_gateway(gateway(**more)) == url


@pytest.mark.parametrize("more", [{"port": 0}, {"enabled": False}])
def test_where_the_gateway_does_not_stand_a_replica_is_asked(more):
    made = Deployment(name="qwen")
    made.gateway = gateway(**more)
    assert endpoints.of(made, [Replica(n=0, state="loading", port=1), READY]) == "http://10.0.0.5:18000/v1"
    made.gateway = gateway()
    assert endpoints.of(made, [READY]) == "http://10.0.0.9:19000/v1"


def test_nothing_answers_where_nothing_serves():
    assert endpoints.of(DEPLOYMENT, [Replica(n=1, state="loading", address="10.0.0.5", port=18000)]) == ""
    six = Replica(n=1, state="degraded", address="fd00::1", port=18000)
    assert endpoints.of(DEPLOYMENT, [six]) == "http://[fd00::1]:18000/v1"
