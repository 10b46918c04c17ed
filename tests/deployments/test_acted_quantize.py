"""Simulated servers act out quantizing: msModelSlim is installed, a model is quantized and told of."""

import json

import pytest

from deployments.demo.models import FILE
from deployments.stacks import frozen, quantizer
from deployments.stacks.catalogue import built_in
from deployments.stacks.options import Options
from tests.deployments.acted import Acted, at_once

__all__ = ["at_once"]

MODEL = {"path": "/data/models/Qwen2.5-7B-Instruct", "name": "Qwen2.5-7B-Instruct", "format": "hf", "dtype": "BF16",
         "weight_bytes": 15_200_000_000, "bytes": 15_200_000_000, "layers": 28, "fingerprint": "ab" * 32}  # fmt: skip
ASKED = {"model": MODEL["path"], "target": "/data/models/Qwen2.5-7B-Instruct-w8a8", "model_type": MODEL["name"],
         "quant_type": "w8a8", "tools": "/opt/ascend-console/stacks/x/msmodelslim", "family": "A2"}  # fmt: skip


@pytest.fixture
def acted(at_once, tmp_path):
    made = Acted("kp-01", tmp_path)
    scene = made.member._scene()
    scene.change(put={f"{MODEL['path']}/{FILE}": json.dumps({"path": MODEL["path"], "model": MODEL})})
    return made


def told(log):
    return [event["data"] for event in log.events if event["e"] == "told"]


def test_a_model_is_quantized_layer_by_layer(acted):
    log = acted.run("quantize", **ASKED)
    assert log.ended["state"] == "succeeded", log.text
    assert [state for _title, state in log.steps] == ["succeeded", "succeeded", "succeeded", "skipped"]
    assert "layer 7 of 28" in log.text and "layer 28 of 28" in log.text
    (one,) = told(log)
    assert one["via"] == "quantized" and one["parent"] == MODEL["fingerprint"] and one["path"] == ASKED["target"]
    assert one["model"]["quant_type"] == "W8A8" and 7e9 < one["model"]["bytes"] < 12e9
    assert acted.member._scene().exists(f"{ASKED['target']}/{FILE}")
    again = acted.run("quantize", **{**ASKED, "model_type": "Qwen2.5-7B-Instruct", "quant_type": "w4a4"})
    assert again.ended["state"] == "failed" and "has no recipe to make" in again.reason


def test_a_look_tells_the_recipe_and_changes_nothing(acted):
    log = acted.run("quantize_look", **ASKED)
    items = {event["key"]: event["found"] for event in log.events if event["e"] == "item"}
    assert "qwen2.5-7b-w8a8" in items["quantize.recipe"] and told(log) == []


def test_conversions_say_what_they_are_not_for(acted):
    log = acted.run("convert", model="/data/m.onnx", target="/data/om", how="onnx_om", chip="910B3")
    assert log.ended["state"] == "succeeded" and "Not for vLLM" in log.text and "ATC run success" in log.text
    assert told(log)[0]["via"] == "converted" and told(log)[0]["model"]["format"] == "om"


def test_msmodelslim_is_installed_beside_the_stack_and_then_skipped(acted):
    stack = "vllm-ascend-0.23.0"
    if acted.installed().current != stack:
        assert acted.install(stack).ended["state"] == "succeeded"

    def plan():
        return quantizer.plan(acted.installed(), built_in().stacks[stack], built_in(), Options())

    first = acted.run("quantizer", plan=frozen.write(plan()), stack=stack)
    assert first.ended["state"] == "succeeded", first.text
    assert "export PATH" in acted.member._scene().read(f"/opt/ascend-console/stacks/{stack}/activate")
    home = f"/opt/ascend-console/stacks/{stack}/msmodelslim/"
    (found,) = [one for one in acted.installed().pythons if one.path.startswith(home)]
    assert found.has("msmodelslim") == quantizer.MSMODELSLIM and found.has("torch_npu")
    assert [step.state for step in plan().steps] == ["satisfied", "run"]
