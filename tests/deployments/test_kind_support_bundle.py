"""The kind `support_bundle`: a step for each source that fails alone, and nothing that it would hold or change."""

import json

from deployments.kinds import support_bundle
from deployments.kinds.support_bundle import SOURCES, VARIABLE, Params


def test_each_source_is_a_step_that_fails_alone():
    params = Params(7, since=10, until=20, names=["kp-01"], salt="ab", most_mb=5, seconds=60, engines=["e3"])
    steps = support_bundle.steps(params)
    assert [step.argv for step in steps] == [["{python}", "-m", "deployments.agent.support", name] for name in SOURCES]
    assert all(step.may_fail and not step.needs_root and step.timeout_s > 60 for step in steps)
    told = json.loads(steps[0].env[VARIABLE])
    assert told["bundle"] == 7 and told["names"] == ["kp-01"] and told["engines"] == ["e3"] and told["hosts"] is False


def test_it_holds_nothing_and_undoes_nothing():
    assert support_bundle.locks(Params(1)) == support_bundle.undo(Params(1)) == []
