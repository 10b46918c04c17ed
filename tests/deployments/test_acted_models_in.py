"""Simulated servers fetch models of the catalogue and make sample models; nothing is called."""

import pytest

from deployments.demo import fleet, models
from tests.deployments.acted import Acted, at_once  # noqa: F401
from tests.deployments.test_acted_models import told

pytestmark = pytest.mark.usefixtures("at_once")
ASKED = {"source": "huggingface", "model": "Qwen/Qwen2.5-72B-Instruct", "endpoint": "https://none.invalid"}


@pytest.fixture
def acted(tmp_path):
    return Acted(fleet.server(0).name, tmp_path)


def test_a_sample_model_is_made_once(acted):
    asked = {"model": "llama", "layers": "28", "folder": "/data/models/s"}
    first, again = acted.run("sample_model", **asked), acted.run("sample_model", **asked)
    (one,) = told(first, "artifact")
    assert one["via"] == "sample" and one["model"]["layers"] == 28 and told(again, "artifact") == [one]
    assert [event["state"] for event in again.events if event["e"] == "step_end"] == ["skipped"]


def test_a_download_is_looked_at_and_comes(acted):
    look = acted.run("download_look", folder="/data/models/q72", **ASKED)
    assert {e["key"] for e in look.events if e["e"] == "item"} >= {"download.bytes", "download.room"}
    assert told(look, "artifact") == []
    log = acted.run("download", folder="/data/models/q72", **ASKED)
    (one,) = told(log, "artifact")
    assert log.ended["state"] == "succeeded" and one["path"] == "/data/models/q72"
    assert one["model"]["fingerprint"] == models.fingerprint("Qwen2.5-72B-Instruct"), "that of the fleet's own copies"
    assert one in told(acted.run("model_scan", folder="/data/models"), "artifact")


def test_a_model_that_nobody_knows_is_refused(acted):
    log = acted.run("download", folder="/data/models/x", **{**ASKED, "model": "some/thing"})
    assert log.ended["state"] == "failed" and "catalogue" in log.reason


def test_a_copy_is_acted_on_both_sides(acted):
    pair = {"pair": "ab" * 16, "port": 8700, "model": "/data/models/Qwen3-8B"}
    assert acted.run("model_serve", **pair).ended["state"] == "succeeded"
    log = acted.run("model_copy", server="sim-1", folder="/data/models/copy", address="10.0.0.1", **pair)
    assert log.ended["state"] == "succeeded"
    assert [one["via"] for one in told(log, "artifact")] == ["copied"]
