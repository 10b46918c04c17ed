"""Settings of a revision: what is stored, the command and the variables that come of them."""

import json

import pytest

from deployments.serving import command, flags, settings
from deployments.serving.command import Place
from deployments.steps import BadParams, Text

HERE = Place("/models/qwen3-8b", "127.0.0.1", 18_000, 1)


def value(argv, flag):
    return argv[argv.index(flag) + 1]


def test_only_what_differs_is_stored_and_read_back():
    given = {
        "tensor_parallel_size": 4,
        "max_num_seqs": 256,
        "env": {"HCCL_BUFFSIZE": "400"},
        "extra": ["--max-logprobs", "5"],
    }
    read = settings.read(given)
    kept = settings.as_json(read)
    assert kept == {"tensor_parallel_size": 4, "env": {"HCCL_BUFFSIZE": "400"}, "extra": ["--max-logprobs", "5"]}
    assert settings.read(json.loads(json.dumps(kept))) == read
    assert settings.as_json(settings.read({})) == {}


def test_a_cpu_takes_fewer_requests_at_once_unless_told():
    assert settings.read({"device": "cpu"}).max_num_seqs == 16
    assert settings.as_json(settings.read({"device": "cpu"})) == {"device": "cpu"}
    assert settings.as_json(settings.read({"device": "cpu", "max_num_seqs": 256})) == {
        "device": "cpu",
        "max_num_seqs": 256,
    }


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"tensor_parallel_size": 0}, "tensor_parallel_size"),
        ({"tensor_parallel_size": "2"}, "tensor_parallel_size"),
        ({"gpu_memory_utilization": 1.5}, "gpu_memory_utilization"),
        ({"gpu_memory_utilization": float("nan")}, "gpu_memory_utilization"),
        ({"device": "gpu"}, "device"),
        ({"device": []}, "device"),
        ({"env": ["a"]}, "env"),
        ({"env": {"A": 1}}, "env"),
        ({"env": {"A": "1\nB=2"}}, "env"),
        ({"extra": ["a\0b"]}, "extra"),
        ({"additional": {"a": "b\0"}}, "additional"),
        ({"additional": {"a": [float("nan")]}}, "additional"),
        ({"additional": {"a": "b" * 70_000}}, "additional"),
        ({"capture_sizes": ["8", "x"]}, "capture_sizes"),
        ({"npu_ids": [0]}, "npu_ids"),
        ({"chat_template": "template.jinja"}, "chat_template"),
        ({"served_model_name": "--port"}, "served_model_name"),
    ],
)
def test_what_no_field_takes_is_refused_by_name(given, field):
    with pytest.raises(BadParams) as caught:
        settings.read(given)
    assert [name for name, _ in caught.value.problems] == [field]


def test_npus_of_one_replica():
    assert settings.npus(settings.read({})) == 1
    assert settings.npus(settings.read({"tensor_parallel_size": 4, "pipeline_parallel_size": 2})) == 8
    assert settings.npus(settings.read({"tensor_parallel_size": 4, "data_parallel_size": 4})) == 16
    assert settings.npus(settings.read({"device": "cpu", "tensor_parallel_size": 2})) == 0


def test_a_difference_names_both_sides():
    old, new = {"tensor_parallel_size": 2}, {"tensor_parallel_size": 4, "enforce_eager": True, "env": {"A": "1"}}
    found = settings.diff(old, new)
    assert [(one.field, one.before, one.after) for one in found] == [
        ("tensor_parallel_size", "2", "4"), ("enforce_eager", "off", "on"), ("env", "", "A=1"),
    ]  # fmt: skip
    assert found[0].label == Text("张量并行", "Tensor parallel")
    assert settings.diff(old, {"tensor_parallel_size": 2, "max_num_seqs": 256}) == []


def test_the_plain_command():
    argv = command.argv(settings.read({"served_model_name": "qwen3"}), HERE)
    assert argv == [
        "python", "-m", "vllm.entrypoints.openai.api_server", "--model", "/models/qwen3-8b", "--served-model-name",
        "qwen3", "--host", "127.0.0.1", "--port", "18000", "--enable-force-include-usage", "--tensor-parallel-size",
        "1", "--max-num-seqs", "256", "--gpu-memory-utilization", "0.9",
    ]  # fmt: skip
    assert value(command.argv(settings.read({}), HERE), "--served-model-name") == "qwen3-8b"


def test_each_setting_has_its_words():
    given = {
        "max_model_len": 8192, "dtype": "float16", "prefix_caching": "off", "chunked_prefill": "on",
        "enforce_eager": True, "cudagraph_mode": "FULL_DECODE_ONLY", "capture_sizes": ["8", "1"],
        "speculative_method": "mtp",
        "num_speculative_tokens": 1,
        "additional": {"enable_cpu_binding": False}, "log_requests": True,
        "extra": ["--max-logprobs", "5"],
    }  # fmt: skip
    argv = command.argv(settings.read(given), HERE)
    assert value(argv, "--max-model-len") == "8192"
    assert {
        "--no-enable-prefix-caching",
        "--enable-chunked-prefill",
        "--enforce-eager",
        "--enable-log-requests",
    } <= set(argv)
    wanted = {"cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": [1, 8]}
    assert json.loads(value(argv, "--compilation-config")) == wanted
    assert json.loads(value(argv, "--speculative-config")) == {"method": "mtp", "num_speculative_tokens": 1}
    assert json.loads(value(argv, "--additional-config")) == {"enable_cpu_binding": False}
    assert argv[-2:] == ["--max-logprobs", "5"]


def test_experts_over_two_servers():
    both = settings.read(
        {"nodes": 2, "data_parallel_size": 4, "tensor_parallel_size": 4, "enable_expert_parallel": True}
    )
    first = Place("/m", "10.0.0.1", 18_000, 8, 0, ("10.0.0.1", "10.0.0.2"), "eth0", {"dp": 19_000, "hccl": 20_000})
    second = Place("/m", "10.0.0.2", 18_000, 8, 1, ("10.0.0.1", "10.0.0.2"), "eth0", {"dp": 19_000, "hccl": 20_000})
    one, two = command.argv(both, first), command.argv(both, second)
    for argv in (one, two):
        assert value(argv, "--data-parallel-size") == "4" and value(argv, "--data-parallel-size-local") == "2"
        assert (
            value(argv, "--data-parallel-address") == "10.0.0.1" and value(argv, "--data-parallel-rpc-port") == "19000"
        )
    assert "--headless" not in one and "--host" in one
    assert one[2] == "vllm.entrypoints.openai.api_server" and two[2:5] == ["vllm.entrypoints.cli.main", "serve", "/m"]
    assert "--headless" in two and value(two, "--data-parallel-start-rank") == "2" and "--host" not in two
    env = command.environment(both, second)
    assert (
        env["HCCL_IF_IP"] == "10.0.0.2" and env["GLOO_SOCKET_IFNAME"] == "eth0" and env["HCCL_IF_BASE_PORT"] == "20000"
    )


def test_stages_over_two_servers():
    both = settings.read({"nodes": 2, "pipeline_parallel_size": 2, "tensor_parallel_size": 8})
    second = Place("/m", "10.0.0.2", 18_000, 8, 1, ("10.0.0.1", "10.0.0.2"))
    argv = command.argv(both, second)
    assert (
        value(argv, "--nnodes") == "2"
        and value(argv, "--node-rank") == "1"
        and value(argv, "--master-addr") == "10.0.0.1"
    )
    ray = settings.read({"nodes": 2, "pipeline_parallel_size": 2, "tensor_parallel_size": 8, "backend": "ray"})
    assert command.argv(ray, second) == [
        "ray",
        "start",
        "--address=10.0.0.1:6379",
        "--node-ip-address=10.0.0.2",
        "--block",
    ]


def test_the_environment_is_offline_and_without_what_the_starter_adds():
    env = command.environment(settings.read({"env": {"HCCL_BUFFSIZE": "400"}}), HERE)
    assert env["HF_HUB_OFFLINE"] == env["VLLM_NO_USAGE_STATS"] == env["DO_NOT_TRACK"] == "1"
    assert env["https_proxy"] == "" and env["HCCL_BUFFSIZE"] == "400" and env["VLLM_ENGINE_READY_TIMEOUT_S"] == "1800"
    assert not {"ASCEND_RT_VISIBLE_DEVICES", "VLLM_API_KEY", "VLLM_CPU_KVCACHE_SPACE"} & set(env)
    assert command.environment(settings.read({"device": "cpu"}), HERE)["VLLM_CPU_KVCACHE_SPACE"] == "1"


def test_every_flag_is_one_that_both_ends_of_the_line_have():
    everything = {
        **dict.fromkeys(command.FLAGS, True), **dict.fromkeys(command.SWITCHES, "off"), "max_model_len": 4096,
        "max_num_batched_tokens": 4096, "block_size": 128, "kv_offloading_size": 1, "dtype": "float16",
        "quantization": "ascend", "load_format": "sharded_state", "seed": 1, "generation_config": "vllm",
        "tool_call_parser": "hermes", "reasoning_parser": "qwen3", "chat_template": "/t",
        "scheduling_policy": "priority",
        "stream_interval": 2, "prefill_context_parallel_size": 2, "decode_context_parallel_size": 2,
        "pipeline_parallel_size": 2, "log_requests": True, "cudagraph_mode": "NONE", "speculative_method": "ngram",
        "num_speculative_tokens": 2, "additional": {"enable_mlapo": False}, "nodes": 2,
    }  # fmt: skip
    argv = command.argv(settings.read(everything), Place("/m", "10.0.0.1", 18_000, 8, 0, ("10.0.0.1", "10.0.0.2")))
    given = {flags.plain(word) for word in argv if word.startswith("--")}
    assert len(given) > 35
    assert given <= flags.known("0.23.0") and given <= flags.known("0.32.0")
