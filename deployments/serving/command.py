"""The command line and the environment of an engine, made of a revision's settings and the place where it runs."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from deployments.serving.fields import Settings

MODULE = "vllm.entrypoints.openai.api_server"
# Of a node that answers nobody: the module above passes over --headless and starts a server of its own (vLLM 0.32.0,
# entrypoints/cli/serve.py). It takes the model as its first word.
HEADLESS = "vllm.entrypoints.cli.main"
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
READY_S = 600  # vLLM's own limit; larger models take longer
DP_PORT, RAY_PORT, MASTER_PORT = 13389, 6379, 29501

# Fields whose flag is their name with dashes and stands only where the value is not the engine's own default.
VALUES = {
    "max_model_len": 0, "max_num_batched_tokens": 0, "block_size": 0, "kv_offloading_size": 0, "dtype": "auto",
    "quantization": "auto", "load_format": "auto", "seed": 0, "generation_config": "auto", "tool_call_parser": "",
    "reasoning_parser": "", "chat_template": "", "scheduling_policy": "fcfs", "stream_interval": 1,
    "prefill_context_parallel_size": 1, "decode_context_parallel_size": 1, "pipeline_parallel_size": 1,
}  # fmt: skip
FLAGS = ("enable_expert_parallel", "trust_remote_code", "enforce_eager", "enable_auto_tool_choice", "enable_lora")
SWITCHES = {
    "prefix_caching": "enable-prefix-caching",
    "chunked_prefill": "enable-chunked-prefill",
    "async_scheduling": "async-scheduling",
}


@dataclass(frozen=True)
class Place:
    """Where one process of a replica runs. `devices` are the NPUs of this server; `node_addresses` are those of all
    servers of the replica, by rank; `ports`: dp, ray, hccl."""

    model: str
    address: str
    port: int
    devices: int
    node_rank: int = 0
    node_addresses: tuple[str, ...] = ()
    interface: str = ""
    ports: Mapping[str, int] = field(default_factory=dict)

    @property
    def head(self) -> str:
        return self.node_addresses[0] if self.node_addresses else self.address


def argv(settings: Settings, place: Place) -> list[str]:
    """The words that start this node's part. With Ray, the other nodes only join the head's cluster."""
    if settings.nodes > 1 and settings.backend == "ray" and place.node_rank > 0:
        address = place.node_addresses[place.node_rank]
        port = place.ports.get("ray", RAY_PORT)
        return ["ray", "start", f"--address={place.head}:{port}", f"--node-ip-address={address}", "--block"]
    words = ["python", "-m", HEADLESS, "serve", place.model]
    if place.node_rank == 0:
        words = ["python", "-m", MODULE, "--model", place.model]
    words += ["--served-model-name", name(settings, place.model)]
    if place.node_rank == 0:
        # So that gateways can count the tokens of a stream whose client did not ask for them.
        words += ["--host", place.address, "--port", str(place.port), "--enable-force-include-usage"]
    words += ["--tensor-parallel-size", str(settings.tensor_parallel_size)]
    words += ["--max-num-seqs", str(settings.max_num_seqs)]
    if settings.device == "npu":
        words += ["--gpu-memory-utilization", f"{settings.gpu_memory_utilization:g}"]
    return [*words, *_given(settings), *_over_nodes(settings, place), *_objects(settings), *settings.extra]


def name(settings: Settings, model: str) -> str:
    """What requests name as their model."""
    return settings.served_model_name or PurePosixPath(model).name or "model"


def _given(settings: Settings) -> list[str]:
    words: list[str] = []
    for field_name, usual in VALUES.items():
        value = getattr(settings, field_name)
        if value != usual:
            words += [f"--{field_name.replace('_', '-')}", str(value)]
    words += [f"--{one.replace('_', '-')}" for one in FLAGS if getattr(settings, one)]
    for field_name, flag in SWITCHES.items():
        value = getattr(settings, field_name)
        if value != "auto":
            words.append(f"--{flag}" if value == "on" else f"--no-{flag}")
    if settings.enable_lora:
        words += ["--max-loras", str(settings.max_loras), "--max-lora-rank", str(settings.max_lora_rank)]
    if settings.kv_offloading_size:
        words += ["--kv-offloading-backend", "native"]
    return [*words, *(["--enable-log-requests"] if settings.log_requests else [])]


def _over_nodes(settings: Settings, place: Place) -> list[str]:
    dp, several = settings.data_parallel_size, settings.nodes > 1
    words = ["--data-parallel-size", str(dp)] if dp > 1 else []
    if not several:
        return words
    if settings.backend == "ray":
        return [
            *words,
            "--distributed-executor-backend",
            "ray",
            *(["--data-parallel-backend", "ray"] if dp > 1 else []),
        ]
    headless = ["--headless"] if place.node_rank else []
    if dp > 1:
        local = dp // settings.nodes
        words += ["--data-parallel-size-local", str(local), "--data-parallel-address", place.head]
        words += ["--data-parallel-rpc-port", str(place.ports.get("dp", DP_PORT))]
        rank = ["--data-parallel-start-rank", str(local * place.node_rank)] if place.node_rank else []
        return [*words, *headless, *rank]
    words += ["--distributed-executor-backend", "mp", "--nnodes", str(settings.nodes)]
    words += ["--node-rank", str(place.node_rank), "--master-addr", place.head]
    return [*words, "--master-port", str(place.ports.get("dp", MASTER_PORT)), *headless]


def _objects(settings: Settings) -> list[str]:
    """The flags that take JSON."""
    made = {
        "--compilation-config": _graphs(settings),
        "--speculative-config": _speculative(settings),
        "--additional-config": settings.additional if settings.device == "npu" else {},
    }
    return [word for flag, value in made.items() if value for word in (flag, json.dumps(value, separators=(",", ":")))]


def _graphs(settings: Settings) -> dict[str, Any]:
    sizes = sorted(int(one) for one in settings.capture_sizes)
    found = {"cudagraph_mode": settings.cudagraph_mode, "cudagraph_capture_sizes": sizes}
    return {name: value for name, value in found.items() if value}


def _speculative(settings: Settings) -> dict[str, Any]:
    if not settings.speculative_method:
        return {}
    found = {
        "method": settings.speculative_method,
        "num_speculative_tokens": settings.num_speculative_tokens,
        "model": settings.speculative_model,
    }
    return {name: value for name, value in found.items() if value}


def environment(settings: Settings, place: Place) -> dict[str, str]:
    """Variables of the engine, without the NPUs it sees and without its key, which the starter adds.

    A proxy is empty: engines load from disk and speak to each other only.
    """
    made = dict.fromkeys(PROXIES, "")
    made |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    if settings.ready_min * 60 > READY_S:
        made["VLLM_ENGINE_READY_TIMEOUT_S"] = str(settings.ready_min * 60)
    if settings.device == "cpu":
        made["VLLM_CPU_KVCACHE_SPACE"] = str(settings.kv_cache_gib or 1)
    if settings.nodes > 1:
        made |= _between_nodes(settings, place)
    return made | settings.env


def _between_nodes(settings: Settings, place: Place) -> dict[str, str]:
    """Each node's own address and card, said to all who talk to others."""
    own = place.node_addresses[place.node_rank] if place.node_addresses else place.address
    made = {"VLLM_HOST_IP": own, "HCCL_IF_IP": own}
    if place.interface:
        made |= dict.fromkeys(("HCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"), place.interface)
    if "hccl" in place.ports:
        made["HCCL_IF_BASE_PORT"] = str(place.ports["hccl"])
    if settings.backend == "ray":
        made["RAY_EXPERIMENTAL_NOSET_ASCEND_RT_VISIBLE_DEVICES"] = "1"
    return made
