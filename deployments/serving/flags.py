"""Further words of an engine's command: split safely, and each flag that may not stand there told with the reason."""

import json
import re
import shlex
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from deployments.steps import Text

FILE = Path(__file__).with_name("vllm_flags.json")
FLAG = re.compile(r"--?[A-Za-z][A-Za-z0-9_.-]*")
NEGATIVE = re.compile(r"-\d+(\.\d+)?")

# Flags that a field of its own stands for.
FIELDS = {
    **{name.replace("_", "-"): name for name in (
        "served_model_name", "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size",
        "enable_expert_parallel", "prefill_context_parallel_size", "decode_context_parallel_size", "max_model_len",
        "max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization", "block_size", "kv_offloading_size", "dtype",
        "quantization", "load_format", "trust_remote_code", "seed", "generation_config", "enforce_eager",
        "async_scheduling", "scheduling_policy", "stream_interval", "enable_lora", "max_loras", "max_lora_rank",
        "enable_auto_tool_choice", "tool_call_parser", "reasoning_parser", "chat_template",
    )},
    "enable-prefix-caching": "prefix_caching", "enable-chunked-prefill": "chunked_prefill",
    "enable-log-requests": "log_requests", "additional-config": "additional", "compilation-config": "cudagraph_mode",
    "cudagraph-capture-sizes": "capture_sizes", "speculative-config": "speculative_method",
    "spec-method": "speculative_method", "spec-model": "speculative_model", "spec-tokens": "num_speculative_tokens",
    "distributed-executor-backend": "backend", "nnodes": "nodes", "kv-offloading-backend": "kv_offloading_size",
    "device-memory-utilization": "gpu_memory_utilization",
}  # fmt: skip
SHORT = {"tp": "tensor_parallel_size", "pp": "pipeline_parallel_size", "dp": "data_parallel_size",
         "ep": "enable_expert_parallel", "q": "quantization", "sc": "speculative_method", "cc": "cudagraph_mode",
         "O": "cudagraph_mode", "n": "nodes", "r": "nodes", "pcp": "prefill_context_parallel_size",
         "dcp": "decode_context_parallel_size"}  # fmt: skip

CONNECTORS = ("kv-transfer-config", "ec-transfer-config")
OWN_MODULE = re.compile(r"(?:vllm|vllm_ascend)\.|$")

_CONSOLE = Text("由控制台给出。", "the console gives it.")
_CODE = Text(
    "会在引擎里运行别的代码，控制台不放行。", "runs other code inside the engine; the console does not pass it on."
)
_OPEN = Text("会打开管理用的接口，控制台不放行。", "opens calls for administration; the console does not pass it on.")
REFUSED = {
    **dict.fromkeys(
        ("model", "host", "port", "uds", "api-key", "node-rank", "master-addr", "master-port", "headless", "hf-token",
         "data-parallel-size-local", "data-parallel-start-rank", "data-parallel-address", "data-parallel-rpc-port",
         "data-parallel-backend", "data-parallel-rank", "api-server-count", "root-path", "config", "device-ids",
         "ssl-keyfile", "ssl-certfile", "ssl-ca-certs", "grpc"), _CONSOLE),
    **dict.fromkeys(
        ("middleware", "tool-parser-plugin", "reasoning-parser-plugin", "io-processor-plugin", "logits-processors",
         "worker-cls", "worker-extension-cls", "scheduler-cls", "model-class-overrides", "log-config-file",
         "logging-config"), _CODE),
    **dict.fromkeys(("enable-sleep-mode", "profiler-config", "weight-transfer-config"), _OPEN),
    "disable-log-stats": Text("会关掉 /metrics，控制台就看不到引擎了。",
                              "switches /metrics off, by which the console watches the engine."),
    "allowed-local-media-path": Text("会让请求读取服务器上的文件。", "lets requests read files of the server."),
}  # fmt: skip
REMOVED = {
    "swap-space": Text(
        "vLLM 0.23.0 已删除，带上会启动失败；可改用“卸载到主机内存的缓存”（--kv-offloading-size）。",
        "is gone from vLLM 0.23.0 and would stop the start; --kv-offloading-size (cache offloaded to host memory) "
        "took its place.",
    ),
    "num-scheduler-steps": Text(
        "vLLM 0.23.0 已删除；用异步调度。", "is gone from vLLM 0.23.0; asynchronous scheduling does it."
    ),
    "use-v2-block-manager": Text("vLLM 0.23.0 已删除，不再需要。", "is gone from vLLM 0.23.0 and no longer needed."),
    "disable-log-requests": Text("已删除；默认就不记录请求。", "is gone; requests are not logged unless asked for."),
    "device": Text("已删除；设备由环境决定。", "is gone; the environment decides the device."),
}


@lru_cache(maxsize=1)
def _data() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def known(version: str) -> frozenset[str]:
    """Flags without dashes that a vLLM of that version takes; those that all share where it is not known whole."""
    return frozenset([*_data()["common"], *_data()["versions"].get(version, ())])


def split(text: str) -> list[str]:
    """Words as a shell would make them, without running anything. Raises ValueError with a sentence in English."""
    lines = [line.strip().removesuffix("\\") for line in text.splitlines()]
    try:
        return [word for line in lines for word in shlex.split(line)]
    except ValueError:
        raise ValueError("a quotation mark is not closed") from None


def names(words: list[str]) -> Iterator[str]:
    """The flags among words, as they are written, without `=value`."""
    for word in words:
        flag = word.partition("=")[0]
        if FLAG.fullmatch(flag) and not NEGATIVE.fullmatch(flag):
            yield flag


def problems(words: list[str], version: str = "", *, accept_unknown: bool = False) -> list[Text]:
    """What keeps these words from standing behind the command."""
    found = [said for flag in names(words) if (said := _said(flag, version, accept_unknown))]
    found += [Text(f"{flag}：{_CODE.zh}", f"{flag}: {_CODE.en}") for flag in _loads_modules(words)]
    if words and not FLAG.fullmatch(words[0].partition("=")[0]):
        found.insert(
            0, Text(f"须以参数开头，而不是“{words[0][:40]}”。", f"Begin with a flag, not with “{words[0][:40]}”.")
        )
    return found


def _loads_modules(words: list[str]) -> Iterator[str]:
    """Flags whose connector is a module that neither vLLM nor vLLM-Ascend has: it would be imported."""
    for place, word in enumerate(words):
        flag, equals, text = word.partition("=")
        if plain(flag) not in CONNECTORS or not FLAG.fullmatch(flag):
            continue
        text = text if equals else "".join(words[place + 1 : place + 2])
        if "." in flag:  # one key of the JSON: --kv-transfer-config.kv_connector_module_path x
            told: Any = {flag.rpartition(".")[2]: text}
        else:
            try:
                told = json.loads(text)
            except (ValueError, RecursionError):
                continue  # the engine does not read it either
        if any(not OWN_MODULE.match(str(one)) for one in _modules(told)):
            yield flag


def _modules(told: Any) -> Iterator[Any]:
    rows = told.items() if isinstance(told, dict) else enumerate(told) if isinstance(told, list) else ()
    for name, value in rows:
        if str(name).replace("-", "_").endswith("module_path"):
            yield value
        yield from _modules(value)


def plain(flag: str) -> str:
    """Without dashes and without the `no-` of what is switched off; nested ones (`-cc.mode`) by their first part."""
    bare = flag.lstrip("-").split(".")[0].replace("_", "-")
    return bare[3:] if bare.startswith("no-") else bare


def _said(flag: str, version: str, accept_unknown: bool) -> Text | None:
    name = plain(flag)
    if name in REMOVED:
        return Text(f"{flag}：{REMOVED[name].zh}", f"{flag} {REMOVED[name].en}")
    if name in REFUSED:
        return Text(f"{flag}：{REFUSED[name].zh}", f"{flag}: {REFUSED[name].en}")
    if field := FIELDS.get(name) or (SHORT.get(name) if not flag.startswith("--") else None):
        return Text(f"{flag} 有自己的字段：{field}。", f"{flag} has a field of its own: {field}.")
    near = _begun(name, version)
    if near:
        return Text(f"{flag} 是 --{near} 的缩写，请写全。", f"{flag} is short for --{near}: write it out.")
    if name in known(version) or accept_unknown:
        return None
    of = f" {version}" if version else ""
    return Text(
        f"不知道 vLLM{of} 有 {flag}：未知参数会使启动失败。若确知有它，请勾选“我知道这些参数”。",
        f"It is not known that vLLM{of} has {flag}: an unknown flag stops the start. "
        "Where you know that it has, tick “I know these flags”.",
    )


def _begun(name: str, version: str) -> str:
    """argparse takes a beginning for the whole: so `--mod x` would be the model. The whole flag that is meant."""
    if name in known(version):
        return ""
    whole = [one for one in (*FIELDS, *REFUSED, *REMOVED) if one.startswith(name)]
    return min(whole, key=len) if len(name) > 1 and whole else ""
