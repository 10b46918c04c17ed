import pytest

from console import streams
from deployments.agent import keys


@pytest.mark.parametrize("name", ["telemetry", "logs", "acked", "beat"])
def test_console_and_agent_mean_the_same_names(name):
    assert getattr(streams, name)(7) == getattr(keys, name)(streams.prefix(7)) == f"h:7:{name}"


def test_a_server_may_touch_only_what_is_its_own():
    rules = streams.acl_rules(7, "pw")
    assert [rule for rule in rules if rule[0] in "~&%"] == ["~h:7:*", "&h:7:*"]
    assert streams.rq_prefix(7) == keys.rq_prefix("h:7")
