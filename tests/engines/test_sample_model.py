"""The sample model against the real programs: vLLM on CPUs serves it, msModelSlim quantizes it by its recipe."""

import os
import subprocess
import sys

import pytest

from deployments.artifacts import sample
from deployments.artifacts.read import read
from tests.conftest import ROOT

WITHIN_S = 1800
QUIET = {
    "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1",
}  # fmt: skip


def run(argv, folder, **env):
    done = subprocess.run(
        list(map(str, argv)), env={**os.environ, **QUIET, **env}, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=WITHIN_S, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout + done.stderr


@pytest.mark.parametrize(("kind", "layers"), [("qwen2", 28), ("llama", 2)])
def test_vllm_serves_it(cpu_stack, tmp_path, kind, layers):
    sample.make(tmp_path / "model", kind, layers)
    argv = [
        sys.executable,
        "-m",
        "deployments.stacks.one_prompt",
        "--on",
        "cpu",
        cpu_stack / "activate",
        tmp_path / "model",
    ]
    assert "16 tokens in" in run(argv, tmp_path, PYTHONPATH=str(ROOT))


def test_msmodelslim_takes_it_by_the_recipe_of_28_layers(cpu_stack, tmp_path):
    sample.make(tmp_path / "model", "qwen2", 28)
    argv = [
        cpu_stack / "msmodelslim" / "bin" / "msmodelslim", "quant", "--model_type", "Qwen2.5-7B-Instruct",
        "--model_path", tmp_path / "model", "--save_path", tmp_path / "w8a8", "--device", "cpu", "--quant_type", "w8a8",
        "--trust_remote_code", "False",
    ]  # fmt: skip
    assert "qwen2.5-7b-w8a8" in run(argv, tmp_path)
    made = read(tmp_path / "w8a8")
    assert made.format == "quantized" and made.quant_type == "W8A8" and not made.problems, made.problems
