"""Variables that an engine may be given: those with a field of their own, those that other settings took the place of,
those that the console keeps to itself."""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from deployments.steps import Text

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


class Variable(NamedTuple):
    """`choices` or whole numbers from `least` to `most`; both empty: any text."""

    help: Text
    usual: str = ""
    choices: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None


KNOWN: dict[str, Variable] = {
    "HCCL_BUFFSIZE": Variable(Text("MB；每个通信组占两倍。", "MB; each group takes twice of it."), "200", (), 1, 8192),
    "HCCL_CONNECT_TIMEOUT": Variable(Text("秒，120–7200。", "Seconds, 120–7200."), "120", (), 120, 7200),
    "HCCL_EXEC_TIMEOUT": Variable(Text("秒；0：不限。", "Seconds; 0: no limit."), "1836", (), 0, 17_340),
    "HCCL_OP_EXPANSION_MODE": Variable(
        Text("AIV：由向量核通信，310P 不支持。", "AIV: vector cores talk; not on 310P."), "", ("AIV",)
    ),
    "HCCL_INTRA_PCIE_ENABLE": Variable(Text("A2：PCIe 与 RoCE 二选一。", "A2: either PCIe or RoCE."), "", ("0", "1")),
    "HCCL_INTRA_ROCE_ENABLE": Variable(Text("A2：PCIe 与 RoCE 二选一。", "A2: either PCIe or RoCE."), "", ("0", "1")),
    "HCCL_DETERMINISTIC": Variable(Text("结果可重现，较慢。", "The same output again; slower."), "", ("true", "false")),
    "TASK_QUEUE_ENABLE": Variable(Text("算子下发队列。", "Queue of operators."), "1", ("0", "1", "2")),
    "OMP_NUM_THREADS": Variable(Text("CPU 线程数。", "Threads on the CPU."), "", (), 1, 1024),
    "OMP_PROC_BIND": Variable(Text("线程绑核。", "Threads bound to cores."), "", ("true", "false")),
    "CPU_AFFINITY_CONF": Variable(Text("NPU 线程绑核。", "Binding of the NPU's threads."), "", ("0", "1", "2")),
    "PYTORCH_NPU_ALLOC_CONF": Variable(
        Text("插件自己会加 expandable_segments:True。", "The plugin adds expandable_segments:True itself.")
    ),
    "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": Variable(Text("秒；一步的期限。", "Seconds for one step."), "", (), 1, 10**8),
    "VLLM_RPC_TIMEOUT": Variable(Text("毫秒。", "Milliseconds."), "", (), 1, 10**9),
    "VLLM_LOGGING_LEVEL": Variable(
        Text("日志级别。", "How much is logged."), "INFO", ("DEBUG", "INFO", "WARNING", "ERROR")
    ),
    "VLLM_LOG_STATS_INTERVAL": Variable(Text("秒。", "Seconds."), "10", (), 1, 3600),
    "VLLM_ALLOW_LONG_MAX_MODEL_LEN": Variable(
        Text("允许超过模型的上下文；结果可能不对。", "A context beyond the model's; answers may be wrong."),
        "0",
        ("0", "1"),
    ),
    "DYNAMIC_EPLB": Variable(Text("与 eplb_config 一起用。", "Goes with eplb_config."), "", ("true", "false")),
    "VLLM_VERSION": Variable(Text("vLLM 为开发版时写 X.Y.Z。", "X.Y.Z where vllm is a build of your own.")),
}

# Of vLLM-Ascend 0.23.0: the key of the additional config that took the variable's place.
DEPRECATED = {
    "VLLM_ASCEND_ENABLE_FLASHCOMM1": "enable_flashcomm1",
    "VLLM_ASCEND_FLASHCOMM2_PARALLEL_SIZE": "flashcomm2_parallel_size",
    "VLLM_ASCEND_ENABLE_MATMUL_ALLREDUCE": "enable_matmul_allreduce",
    "VLLM_ASCEND_ENABLE_MLAPO": "enable_mlapo",
    "VLLM_ASCEND_ENABLE_NZ": "weight_nz_mode",
    "VLLM_ASCEND_ENABLE_FUSED_MC2": "enable_fused_mc2",
    "VLLM_ASCEND_BALANCE_SCHEDULING": "enable_balance_scheduling",
}
REMOVED = ("ASCEND_BUFFER_POOL", "VLLM_ASCEND_ENABLE_CONTEXT_PARALLEL")
_CONSOLE = Text("由控制台给出。", "the console gives it.")
_CODE = Text("会在引擎里运行别的代码。", "runs other code inside the engine.")
_OPEN = Text("会打开管理用的接口。", "opens calls for administration.")
REFUSED: dict[str, Text] = {
    **dict.fromkeys(
        ("VLLM_API_KEY", "VLLM_PORT", "VLLM_HOST_IP", "HCCL_IF_IP",
         "HCCL_SOCKET_IFNAME",
         "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "HCCL_IF_BASE_PORT",
         "RAY_EXPERIMENTAL_NOSET_ASCEND_RT_VISIBLE_DEVICES", "HOME", "HF_TOKEN"),
        _CONSOLE),
    **dict.fromkeys(("ASCEND_RT_VISIBLE_DEVICES", "ASCEND_VISIBLE_DEVICES", "NPU_VISIBLE_DEVICES"),
                    Text("NPU 由控制台选择。", "the console chooses the NPUs.")),
    **dict.fromkeys(("PATH", "LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME",
                     "PYTHONBREAKPOINT", "PYTHONUSERBASE", "PYTHONPLATLIBDIR", "PYTHONPYCACHEPREFIX",
                     "PYTHONEXECUTABLE", "PYTHONWARNINGS",
                     "PYTHONINSPECT", "BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS", "PS4", "GCONV_PATH",
                     "OPENSSL_CONF", "OPENSSL_MODULES", "OPENSSL_ENGINES", "CC", "CXX", "LD_AUDIT",
                     "VLLM_ALLOW_INSECURE_SERIALIZATION", "VLLM_LOGGING_CONFIG_PATH"), _CODE),
    "VLLM_SERVER_DEV_MODE": _OPEN, "VLLM_TORCH_PROFILER_DIR": _OPEN, "VLLM_ALLOW_RUNTIME_LORA_UPDATING": _OPEN,
    "VLLM_CPU_KVCACHE_SPACE": Text("有自己的字段：kv_cache_gib。", "has a field of its own: kv_cache_gib."),
    "VLLM_ENGINE_READY_TIMEOUT_S": Text("有自己的字段：ready_min。", "has a field of its own: ready_min."),
    "VLLM_USE_MODELSCOPE": Text("模型只从磁盘加载。", "models are loaded from disk only."),
    "HF_ENDPOINT": Text("模型只从磁盘加载。", "models are loaded from disk only."),
}  # fmt: skip


def problems(given: Mapping[str, str], *, eager: bool, family: str) -> Iterator[Text]:
    for name, value in given.items():
        yield from _of(name, value)
    if given.get("ASCEND_LAUNCH_BLOCKING") == "1" and not eager:
        yield Text(
            "ASCEND_LAUNCH_BLOCKING=1 不能与图同用：请勾选“不用图”。",
            "ASCEND_LAUNCH_BLOCKING=1 is refused with graphs: tick “No graphs”.",
        )
    if family == "310P" and given.get("HCCL_OP_EXPANSION_MODE") == "AIV":
        yield Text("310P 不支持 HCCL_OP_EXPANSION_MODE=AIV。", "310P does not take HCCL_OP_EXPANSION_MODE=AIV.")
    if given.get("HCCL_INTRA_PCIE_ENABLE") == given.get("HCCL_INTRA_ROCE_ENABLE") == "1":
        yield Text(
            "HCCL_INTRA_PCIE_ENABLE 与 HCCL_INTRA_ROCE_ENABLE 只能开一个。",
            "Of HCCL_INTRA_PCIE_ENABLE and HCCL_INTRA_ROCE_ENABLE only one may be 1.",
        )


def _of(name: str, value: str) -> Iterator[Text]:
    if not NAME.fullmatch(name):
        yield Text(f"“{name[:60]}”不是变量名。", f"“{name[:60]}” is no name of a variable.")
    elif name in REFUSED:
        yield Text(f"{name}：{REFUSED[name].zh}", f"{name}: {REFUSED[name].en}")
    elif name in DEPRECATED:
        key = DEPRECATED[name]
        yield Text(
            f"{name} 已过时：请改写附加配置 {key}。", f"{name} is deprecated: write {key} in the additional config."
        )
    elif name in REMOVED:
        yield Text(f"vLLM-Ascend 0.23.0 已删除 {name}。", f"{name} is gone from vLLM-Ascend 0.23.0.")
    elif name in KNOWN:
        yield from _value(name, KNOWN[name], value)


def _value(name: str, variable: Variable, value: str) -> Iterator[Text]:
    if variable.choices and value not in variable.choices:
        words = ", ".join(variable.choices)
        yield Text(f"{name} 须为其中之一：{words}。", f"{name} must be one of {words}.")
    if variable.least is not None and variable.most is not None:
        number = int(value) if re.fullmatch(r"[0-9]{1,10}", value) else -1
        if not variable.least <= number <= variable.most:
            span = f"{variable.least:,}–{variable.most:,}"
            yield Text(f"{name} 须为 {span} 的整数。", f"{name} must be a whole number of {span}.")
    others = "max_split_size_mb" in value or "garbage_collection_threshold" in value
    if name == "PYTORCH_NPU_ALLOC_CONF" and "expandable_segments:True" in value and others:
        yield Text(
            "PYTORCH_NPU_ALLOC_CONF 里 expandable_segments 与其他两项互斥。",
            "In PYTORCH_NPU_ALLOC_CONF expandable_segments excludes the two others.",
        )
