"""What is wrong with settings before an engine is started: each refusal with its field and sentence."""

import dataclasses

import pytest

from deployments.serving import flags, settings
from deployments.serving.setting_problems import of_memory
from deployments.serving.spec import Spec

DENSE = Spec("dense", 64, 5120, 64, 8, 128, 151_936, 40_960, 62_500, kv_layers=64, intermediate=25_600)
QUANTIZED = dataclasses.replace(DENSE, quant="w8a8", weight_mb=33_000)
MOE = dataclasses.replace(DENSE, name="moe", experts=128, expert_share=0.9)
HYBRID = dataclasses.replace(DENSE, kv_layers=16)
TINY = Spec("tiny", 2, 64, 2, 2, 32, 257, 2048, 0.5, dtype="F32", kv_layers=2)


def said(given, spec=DENSE, family="A2", version="0.23.0"):
    return [(field, text.en) for field, text in settings.problems(settings.read(given), spec, family, version)]


GOOD = [
    ({}, DENSE, "A2"),
    ({"tensor_parallel_size": 8, "max_model_len": 16_384, "env": {"HCCL_BUFFSIZE": "400"}}, DENSE, "A2"),
    ({"tensor_parallel_size": 4, "data_parallel_size": 4, "enable_expert_parallel": True,
      "additional": {"enable_flashcomm1": True}}, MOE, "A3"),
    ({"dtype": "float16", "max_model_len": 4096, "cudagraph_mode": "FULL_DECODE_ONLY"}, DENSE, "310P"),
    ({"device": "cpu", "dtype": "float32", "enforce_eager": True}, TINY, ""),
    ({"max_model_len": 100_000, "env": {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}}, DENSE, "A2"),
    ({"block_size": 64}, HYBRID, "A2"),
    ({"block_size": 64, "prefix_caching": "off", "chunked_prefill": "off"}, DENSE, "A2"),
    ({"extra": ["--lora-modules", "a=/b", "--kv-cache-memory-bytes", "-1"]}, DENSE, "A2"),
    ({"extra": ["--made-up", "1"], "accept_unknown": True}, DENSE, "A2"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "spec", "family"), GOOD)
def test_what_is_right_is_let_through(given, spec, family):
    assert said(given, spec, family) == []


BAD = [
    ({"tensor_parallel_size": 3}, DENSE, "A2", "tensor_parallel_size", "cannot be divided by 3"),
    ({"pipeline_parallel_size": 64}, TINY, "A2", "pipeline_parallel_size", "2 layers"),
    ({"max_model_len": 100_000}, DENSE, "A2", "max_model_len", "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1"),
    ({"dtype": "bfloat16", "max_model_len": 4096}, DENSE, "310P", "dtype", "no bf16"),
    ({"max_model_len": 4096}, DENSE, "310P", "dtype", "float16 must be said"),
    ({"dtype": "float16"}, DENSE, "310P", "max_model_len", "must be said"),
    ({"dtype": "float16", "max_model_len": 4096, "cudagraph_mode": "PIECEWISE"}, DENSE, "310P",
     "cudagraph_mode", "only"),
    ({"dtype": "float16", "max_model_len": 4096, "enable_lora": True}, DENSE, "310P", "enable_lora", "no LoRA"),
    ({"block_size": 16}, DENSE, "A2", "block_size", "128"),
    ({"chunked_prefill": "off", "max_num_batched_tokens": 4096}, DENSE, "A2", "max_num_batched_tokens", "40,960"),
    ({"max_num_batched_tokens": 128}, DENSE, "A2", "max_num_batched_tokens", "256"),
    ({"data_parallel_size": 2}, DENSE, "A2", "data_parallel_size", "add replicas"),
    ({"enable_expert_parallel": True}, DENSE, "A2", "enable_expert_parallel", "no experts"),
    ({"speculative_method": "mtp"}, DENSE, "A2", "num_speculative_tokens", "number of tokens"),
    ({"num_speculative_tokens": 2}, DENSE, "A2", "speculative_method", "Choose"),
    ({"speculative_method": "eagle3", "num_speculative_tokens": 2}, DENSE, "A2", "speculative_model", "draft"),
    ({"quantization": "ascend"}, DENSE, "A2", "quantization", "not quantized"),
    ({}, dataclasses.replace(QUANTIZED, quant="w4a8"), "A1", "device", "does not support"),
    ({"dtype": "float16", "max_model_len": 4096}, dataclasses.replace(DENSE, quant="w4a8"), "310P",
     "quantization", "w4a8"),
    ({}, dataclasses.replace(DENSE, foreign_quant="AWQ"), "A2", "quantization", "GPUs"),
    ({"device": "cpu"}, QUANTIZED, "", "device", "quantized"),
    ({"device": "cpu", "nodes": 2}, TINY, "", "nodes", "one server"),
    ({"nodes": 2, "tensor_parallel_size": 1}, DENSE, "A2", "nodes", "multiple of 2"),
    ({"route": "docker"}, DENSE, "A2", "image", "needs an image"),
    ({"decode_context_parallel_size": 2, "tensor_parallel_size": 2, "cudagraph_mode": "FULL"}, DENSE, "A2",
     "cudagraph_mode", "no FULL"),
    ({"additional": {"enable_flashcomm1": True}}, DENSE, "A2", "additional", "2 or more"),
    ({"additional": {"enable_flashcomm1": True}, "tensor_parallel_size": 4}, MOE, "A2", "additional",
     "expert parallel"),
    ({"additional": {"enable_fused_mc2": 1}}, DENSE, "A2", "additional", "W8A8"),
    ({"additional": {"enable_fused_mc2": 1, "enable_mc2_hierarchy_comm": True}}, QUANTIZED, "A2", "additional",
     "exclude"),
    ({"additional": {"enable_dsa_cp": True}}, DENSE, "A2", "additional", "enable_flashcomm1"),
    ({"additional": {"recompute_scheduler_enable": True}}, DENSE, "A2", "additional", "kv_consumer"),
    ({"additional": {"torchair_graph_config": {}}}, DENSE, "A2", "additional", "gone"),
    ({"additional": {"weight_nz_mode": True}}, DENSE, "A2", "additional", "whole number"),
    ({"additional": {"weight_nz_mode": 3}}, DENSE, "A2", "additional", "one of 0, 1, 2"),
    ({"additional": {"made_up": 1}}, DENSE, "A2", "additional", "no additional key"),
    ({"additional": {"eplb_config": {"dynamic_eplb": True}}}, MOE, "A2", "additional", "DYNAMIC_EPLB"),
    ({"additional": {"xlite_graph_config": {"on": True}}}, DENSE, "A2", "additional", "has no on"),
    ({"env": {"VLLM_ASCEND_ENABLE_NZ": "1"}}, DENSE, "A2", "env", "weight_nz_mode"),
    ({"env": {"ASCEND_BUFFER_POOL": "1"}}, DENSE, "A2", "env", "gone"),
    ({"env": {"VLLM_API_KEY": "x"}}, DENSE, "A2", "env", "console gives it"),
    ({"env": {"LD_PRELOAD": "/x.so"}}, DENSE, "A2", "env", "other code"),
    ({"env": {"VLLM_SERVER_DEV_MODE": "1"}}, DENSE, "A2", "env", "administration"),
    ({"env": {"HCCL_CONNECT_TIMEOUT": "5"}}, DENSE, "A2", "env", "120"),
    ({"env": {"ASCEND_LAUNCH_BLOCKING": "1"}}, DENSE, "A2", "env", "No graphs"),
    ({"env": {"A-B": "1"}}, DENSE, "A2", "env", "no name"),
    ({"extra": ["--swap-space", "4"]}, DENSE, "A2", "extra", "gone from vLLM"),
    ({"extra": ["--port", "1"]}, DENSE, "A2", "extra", "console gives it"),
    ({"extra": ["--port=1"]}, DENSE, "A2", "extra", "console gives it"),
    ({"extra": ["--por", "1"]}, DENSE, "A2", "extra", "short for --port"),
    ({"extra": ["--max_num_seqs", "1"]}, DENSE, "A2", "extra", "field of its own"),
    ({"extra": ["-tp", "2"]}, DENSE, "A2", "extra", "tensor_parallel_size"),
    ({"extra": ["--no-enable-prefix-caching"]}, DENSE, "A2", "extra", "prefix_caching"),
    ({"extra": ["--middleware", "x.y"]}, DENSE, "A2", "extra", "other code"),
    ({"extra": ["--made-up"]}, DENSE, "A2", "extra", "not known that vLLM 0.23.0 has"),
    ({"extra": ["/bin/sh"]}, DENSE, "A2", "extra", "Begin with a flag"),
    ({"extra": ["--port", "1"], "accept_unknown": True}, DENSE, "A2", "extra", "console gives it"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "spec", "family", "field", "words"), BAD)
def test_what_is_wrong_is_said_at_its_field(given, spec, family, field, words):
    found = said(given, spec, family)
    assert [name for name, _ in found] == [field] and words in found[0][1]
    assert all(text.zh for _, text in settings.problems(settings.read(given), spec, family))


def test_a_flag_of_a_version_is_known_to_that_version_only():
    assert said({"extra": ["--max-num-queued-reqs", "9"]}, version="0.32.0") == []
    assert said({"extra": ["--max-num-queued-reqs", "9"]}, version="0.23.0")


def test_words_are_split_as_a_shell_would_and_nothing_is_run():
    assert flags.split("--lora-modules 'a=/x y' \\\n --max-logprobs 5") == [
        "--lora-modules",
        "a=/x y",
        "--max-logprobs",
        "5",
    ]
    assert flags.split("--x $(reboot) `id` ; rm") == ["--x", "$(reboot)", "`id`", ";", "rm"]
    with pytest.raises(ValueError, match="not closed"):
        flags.split("--x 'a")


def test_memory_that_does_not_suffice():
    one = of_memory(settings.read({}), DENSE, 65_536)
    assert one[0][0] == "tensor_parallel_size" and "lacks" in one[0][1].en
    assert of_memory(settings.read({"tensor_parallel_size": 4}), DENSE, 65_536) == []
    small = of_memory(
        settings.read({"tensor_parallel_size": 2, "max_model_len": 40_960, "gpu_memory_utilization": 0.58}),
        DENSE,
        65_536,
    )
    assert small[0][0] == "max_model_len" and "tokens" in small[0][1].en


@pytest.mark.parametrize(
    "env",
    ["LD_PRELOAD", "LD_AUDIT", "PATH", "PYTHONPATH", "PYTHONWARNINGS", "BASH_ENV", "PS4", "SHELLOPTS", "OPENSSL_CONF",
     "GCONV_PATH", "CC", "VLLM_LOGGING_CONFIG_PATH", "VLLM_TORCH_PROFILER_DIR", "VLLM_API_KEY", "A B", "A\nB", ""],
)  # fmt: skip
def test_no_variable_brings_code_or_takes_what_is_the_consoles(env):
    assert [field for field, _text in said({"env": {env: "x"}})] == ["env"] if env else True
    assert said({"env": {"PYTHONHASHSEED": "0", "VLLM_PLUGINS": "ascend"}}) == []


OWN = '{"kv_connector":"MooncakeConnector","kv_connector_module_path":"vllm_ascend.distributed.mooncake_connector"}'
HIDDEN = '{"kv_connector_extra_config":{"connectors":[{"kv_connector_module_\\u0070ath":"evil"}]}}'


@pytest.mark.parametrize(
    ("words", "fine"),
    [
        (["--kv-transfer-config", OWN], True),
        (["--kv-transfer-config", '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'], True),
        (["--kv-transfer-config", '{"kv_connector_module_path":"evil"}'], False),
        (["--kv-transfer-config", '{"kv_connector_module_path":"vllm_evil"}'], False),
        (["--kv_transfer_config=" + HIDDEN], False),
        (["--kv-transfer-config.kv_connector_module_path", "evil"], False),
        (["--ec-transfer-config.ec_connector_module_path=evil"], False),
        (["--log-config-file", "/tmp/x.json"], False),
        (["--profiler-config", "{}"], False),
        (["--api-key", "x"], False), (["--api_key=x"], False), (["--api-k", "x"], False),
        (["--host", "0.0.0.0"], False), (["--ho=0.0.0.0"], False), (["/other/model"], False),
    ],
)  # fmt: skip
def test_no_word_brings_code_key_or_address(words, fine):
    told = said({"extra": words, "accept_unknown": True})
    assert (told == []) is fine and {field for field, _text in told} <= {"extra"}
