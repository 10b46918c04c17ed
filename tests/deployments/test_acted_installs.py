"""Installs that simulated servers act out: every family of the demo, first install, upgrade, downgrade, faults."""

import pytest

from tests.deployments.acted import Acted, at_once

__all__ = ["at_once"]
pytestmark = pytest.mark.usefixtures("at_once")
NEW, OLD = "vllm-ascend-0.23.0", "vllm-ascend-0.18.0"


def test_try(tmp_path):
    server = Acted("kp-13", tmp_path)
    made = server.plan(NEW, firmware="9.0.0.0.205")
    print(made.mode, server.titles(made), made.gaps, made.refusals)
    log = server.install(NEW, firmware="9.0.0.0.205")
    print(log.text)
    print(log.steps)
    assert log.ended["state"] == "succeeded"
    again = server.install(NEW)
    print(again.steps)
    assert 0
