"""Simulated servers have models: a look tells of them, a deletion takes one away, a look again knows it."""

import pytest

from deployments.demo import models
from tests.deployments.acted import Acted, at_once  # noqa: F401

pytestmark = pytest.mark.usefixtures("at_once")


@pytest.fixture
def acted(tmp_path):
    from deployments.demo import fleet

    return Acted(fleet.server(0).name, tmp_path)


def told(log, what):
    return [event["data"] for event in log.events if event["e"] == "told" and event["told"] == what]


def test_a_look_tells_of_whole_and_half_models_and_of_the_parent(acted):
    log = acted.run("model_scan", folder=models.FOLDER)
    assert log.ended["state"] == "succeeded"
    found = {data["path"].rpartition("/")[2]: data for data in told(log, "artifact")}
    assert "Qwen3-8B" in found and len(found) >= 2
    assert found["Qwen3-8B"]["model"]["problems"] == [] and found["Qwen3-8B"]["model"]["bytes"] > 10**10
    assert told(log, "scan_done") == [{"path": models.FOLDER}]
    assert told(acted.run("model_scan", folder="/srv"), "artifact") == []


def test_the_fleet_has_a_quantized_child_beside_its_parent_and_a_half_one():
    for index in range(12):
        here = {one["path"].rpartition("/")[2]: one for one in models.of_fleet(index)}
        child = here.get("Qwen3-30B-A3B-w8a8")
        if child:
            assert child["parent"] == here["Qwen3-30B-A3B"]["model"]["fingerprint"]
    every = {one["path"].rpartition("/")[2]: one["model"] for index in range(3) for one in models.of_fleet(index)}
    assert set(every) == {row[0] for row in models.FLEET}
    assert [problem[2] for problem in every["Qwen2.5-72B-Instruct"]["problems"]] == [True] * 3


def test_what_was_deleted_is_gone_for_good(acted):
    path = f"{models.FOLDER}/Qwen3-8B"
    wrong = acted.run("model_delete", path=path, fingerprint="a" * 64)
    assert wrong.ended["state"] == "failed" and "another content" in wrong.reason
    log = acted.run("model_delete", path=path, fingerprint=models.fingerprint("Qwen3-8B"))
    assert log.ended["state"] == "succeeded" and told(log, "artifact_gone") == [{"path": path}]
    acted.start()
    again = acted.run("model_scan", folder=path, known=True)
    assert told(again, "artifact") == [] and told(again, "artifact_gone") == [{"path": path}]


def test_what_a_job_has_made_is_found_later(acted):
    scene = acted.member._scene()
    model = {"fingerprint": "b" * 64, "format": "hf", "architecture": "X", "dtype": "I8", "bytes": 5, "problems": []}
    made = models.put(scene, f"{models.FOLDER}/new", model, via="quantized")
    acted.start()
    assert made in told(acted.run("model_scan", folder=models.FOLDER), "artifact")
