"""Evaluations with the real engines: vLLM of the CPU stack, and transformers with what msModelSlim has written."""

import array
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from deployments.agent.processes import session_members
from deployments.kinds import evaluate
from tests.engines import tiny_model
from tests.waiting import until

ROOT = Path(__file__).parents[2]
RECIPE = """apiversion: modelslim_v1
metadata:
  config_id: own
  score: 50
  verified_model_types: []
  label: {{w_bit: 8, a_bit: {bits}, is_sparse: False, kv_cache: False}}
spec:
  process:
    - type: "linear_quant"
      qconfig:
{act}        weight: {{scope: "per_channel", dtype: "int8", symmetric: True, method: "minmax"}}
      include: ["*"]
{data}  runner: "model_wise"
  save: [{{type: "ascendv1_saver", part_file_size: 4}}]
"""
ACT = '        act: {{scope: "{}", dtype: "int8", symmetric: {}, method: "minmax"}}\n'
RECIPES = {
    "W8A16": (16, "", ""),
    "W8A8_DYNAMIC": (8, ACT.format("per_token", "True"), ""),
    "W8A8": (8, ACT.format("per_tensor", "False"), "  dataset: calibration.jsonl\n"),
}


@pytest.fixture(scope="module")
def parent(tmp_path_factory):
    """A model that is sure of what it says: with its usual weights by chance each token is as likely as any other, and
    damage would not show."""
    folder = tmp_path_factory.mktemp("models") / "parent"
    tiny_model.make(folder)
    for name in tiny_model.shapes():
        norm, embedding = "norm" in name, "embed" in name
        rescale(folder / "model.safetensors", name, 50.0 if norm else 20.0 if embedding else 5.0)
    return folder


def rescale(path, name, factor):
    """The numbers of one tensor times the factor."""
    data = bytearray(path.read_bytes())
    (length,) = struct.unpack("<Q", data[:8])
    begin, end = (8 + length + place for place in json.loads(data[8 : 8 + length])[name]["data_offsets"])
    values = array.array("f", bytes(data[begin:end]))
    data[begin:end] = array.array("f", (value * factor for value in values)).tobytes()
    path.write_bytes(data)


def quantized(stack, parent, kind):
    out = parent.parent / kind
    if out.is_dir():
        return out
    bits, act, data = RECIPES[kind]
    recipe = parent.parent / f"{kind}.yaml"
    recipe.write_text(RECIPE.format(bits=bits, act=act, data=data))
    words = ["The machine room is too hot.", "机房的温度太高了。", "1 2 3 4"]
    lines = "".join(json.dumps({"inputs_pretokenized": one}) + "\n" for one in words)
    (parent.parent / "calibration.jsonl").write_text(lines)
    argv = [str(stack / "msmodelslim/bin/msmodelslim"), "quant", "--model_type", "Qwen2.5-7B-Instruct", "--model_path",
            str(parent), "--save_path", str(out), "--device", "cpu", "--config_path", str(recipe)]  # fmt: skip
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = subprocess.run(argv, env=env, cwd=parent.parent, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert (out / "quant_model_description.json").is_file(), done.stdout[-3000:] + done.stderr[-3000:]
    return out


def evaluated(stack, folder, parent, child, **more):
    """(answers, verdict) of all the steps, each as the runner starts it."""
    folder.mkdir()
    stacks = folder / "stacks"
    stacks.mkdir()
    (stacks / "current").symlink_to(stack)
    given = {"max_tokens": 8, "pasted": 'The sky is\n{"prompt": "1 + 1 =", "reference": " 2"}\n天空是', **more}
    params = evaluate.Params(child=str(child), parent=str(parent), stacks=str(stacks), **given)
    env = {**os.environ, "ASCEND_ITEMS": str(folder / "items"), "PYTHONPATH": str(ROOT), "VLLM_CPU_KVCACHE_SPACE": "1"}
    for step in evaluate.steps(params):
        argv = [sys.executable if word == "{python}" else word for word in step.argv]
        done = subprocess.run(argv, cwd=folder, env={**env, **step.env}, capture_output=True, text=True, timeout=1800)
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    rows = [json.loads(line) for line in (folder / "items").read_text().splitlines()]
    return [row["data"] for row in rows[:-1]], rows[-1]["data"]


@pytest.mark.parametrize("kind", list(RECIPES))
def test_what_msmodelslim_wrote_passes_by_the_reference(cpu_stack, parent, tmp_path, kind):
    answers, verdict = evaluated(cpu_stack, tmp_path / "run", parent, quantized(cpu_stack, parent, kind))
    measured = verdict["measured"]
    assert verdict["engine"] == "reference" and len(answers) == 3
    assert any(f"{kind} × 14" in note[1] for note in verdict["notes"]), verdict["notes"]
    assert measured["parent_perplexity"] > 1 and measured["garbled"] == 0
    assert abs(measured["perplexity_change_pct"]) < 2 and verdict["passed"], verdict["sentence"]
    print(kind, measured)


def test_a_damaged_scale_does_not_pass(cpu_stack, parent, tmp_path):
    child = tmp_path / "damaged"
    shutil.copytree(quantized(cpu_stack, parent, "W8A16"), child)
    (weights,) = child.glob("*.safetensors")
    for name in ("self_attn.o_proj", "mlp.down_proj"):
        rescale(weights, f"model.layers.0.{name}.weight_scale", 40.0)
    _answers, verdict = evaluated(cpu_stack, tmp_path / "run", parent, child)
    assert verdict["passed"] is False and verdict["faults"], verdict
    print(verdict["sentence"][1])


def test_two_float_models_are_asked_by_vllm(cpu_stack, parent, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(parent, other)
    rescale(other / "model.safetensors", "model.norm.weight", 1.001)
    answers, verdict = evaluated(cpu_stack, tmp_path / "run", parent, other)
    assert verdict["engine"] == "vllm" and len(answers) == 3
    assert all(one["tokens"] == 8 and one["parent_perplexity"] > 1 for one in answers), answers
    by_reference, _v = evaluated(cpu_stack, tmp_path / "again", parent, other, engine="reference")
    for one, same in zip(answers, by_reference, strict=True):
        assert one["parent_perplexity"] == pytest.approx(same["parent_perplexity"], rel=0.15), "two engines, one model"
    print(verdict["sentence"][1])


def test_a_cancel_leaves_nothing_of_vllm(cpu_stack, parent, tmp_path):
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks" / "current").symlink_to(cpu_stack)
    child = shutil.copytree(parent, tmp_path / "same")
    params = evaluate.Params(child=str(child), parent=str(parent), stacks=str(tmp_path / "stacks"), engine="vllm")
    step = evaluate.steps(params)[1]
    argv = [sys.executable if word == "{python}" else word for word in step.argv]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(argv, cwd=tmp_path, env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        until(lambda: b"Initializing a V1 LLM engine" in (tmp_path / "log").read_bytes(), 600, 0.2)
        assert len(session_members(process.pid)) > 2, "the server and its engine are processes of their own"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        until(lambda: not session_members(process.pid), 5)
    finally:
        for pid in session_members(process.pid):
            os.kill(pid, signal.SIGKILL)
