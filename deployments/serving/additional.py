"""The keys of vLLM-Ascend's --additional-config: their types and defaults, and what excludes what."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from deployments.serving.fields import Settings
from deployments.serving.spec import Spec
from deployments.steps import Text


class Key(NamedTuple):
    """`default` tells the type: a bool, an int, a list or an object. `inner` are the known keys of an object."""

    default: Any
    help: Text
    choices: tuple[int, ...] = ()
    inner: tuple[str, ...] = ()


_LEAVING = Text("计划删除。", "Planned for removal.")
KEYS: dict[str, Key] = {
    "enable_cpu_binding": Key(True, Text("在 ARM 上绑定 CPU 核。", "Pins workers to cores on ARM.")),
    "enable_flashcomm1": Key(
        False, Text("TP ≥ 2、高并发；MoE 须开专家并行。", "TP 2 or more, many requests; MoE needs EP.")
    ),
    "enable_matmul_allreduce": Key(False, Text("A2；不用图时更好。", "A2; better without graphs.")),
    "enable_mlapo": Key(True, Text("DeepSeek W8A8；占用内存。", "DeepSeek W8A8; costs memory.")),
    "weight_nz_mode": Key(1, Text("0 关，1 只对量化，2 全部。", "0 off, 1 quantized only, 2 all."), (0, 1, 2)),
    "enable_fused_mc2": Key(0, Text("1 或 2；W8A8，EP ≤ 32。", "1 or 2; W8A8, EP up to 32."), (0, 1, 2)),
    "enable_mc2_hierarchy_comm": Key(False, Text("与 enable_fused_mc2 互斥。", "Not with enable_fused_mc2.")),
    "enable_balance_scheduling": Key(False, Text("不用于 PD 分离。", "Not where prefill and decode are apart.")),
    "recompute_scheduler_enable": Key(False, Text("只用于 kv_consumer 节点。", "Only on kv_consumer nodes.")),
    "enable_shared_expert_dp": Key(False, Text("共享专家用数据并行。", "Shared experts by data parallel.")),
    "multistream_overlap_shared_expert": Key(False, Text("共享专家与通信重叠。", "Shared experts beside talking.")),
    "enable_async_exponential": Key(False, Text("采样与计算重叠。", "Sampling beside computing.")),
    "enable_kv_nz": Key(False, Text("缓存用 NZ 格式。", "The cache in NZ format.")),
    "enable_dsa_cp": Key(False, Text("须 enable_flashcomm1。", "Needs enable_flashcomm1.")),
    "enable_sparse_sfa_c8": Key(False, Text("稀疏注意力的 C8。", "C8 of sparse attention.")),
    "enable_sparse_li_c8": Key(False, Text("索引器的 C8。", "C8 of the indexer.")),
    "enable_prefill_mc2": Key(False, Text("预填充用 MC2。", "MC2 in prefill.")),
    "mega_moe_max_tokens": Key(65_536, Text("MoE 每步的词元上限。", "Most tokens of a step of MoE.")),
    "enable_reduce_sample": Key(False, Text("logprobs 不再正确。", "Breaks logprobs.")),
    "SLO_limits_for_dynamic_batch": Key(-1, Text("毫秒；-1：不限。", "Milliseconds; -1: none.")),
    "pa_shape_list": Key([], Text("分页注意力的形状。", "Shapes of paged attention.")),
    "flashcomm2_parallel_size": Key(0, _LEAVING),
    "layer_sharding": Key({}, _LEAVING),
    "multistream_overlap_gate": Key(False, _LEAVING),
    "xlite_graph_config": Key({}, Text("xlite 图。", "xlite graphs."), inner=("enabled", "full_mode")),
    "weight_prefetch_config": Key({}, Text("权重预取。", "Prefetch of weights.")),
    "finegrained_tp_config": Key(
        {},
        Text("部分层自己的张量并行。", "Tensor parallel of single layers."),
        inner=tuple(f"{one}_tensor_parallel_size" for one in ("lmhead", "oproj", "embedding", "mlp")),
    ),
    "ascend_compilation_config": Key({}, Text("编译选项。", "Options of compiling.")),
    "eplb_config": Key(
        {}, Text("专家负载均衡；还须环境变量 DYNAMIC_EPLB。", "Balancing experts; needs DYNAMIC_EPLB, too.")
    ),
    "profiling_chunk_config": Key({}, Text("按测得的速度分块。", "Chunks by measured speed.")),
    "rejection_sampler_config": Key({}, Text("推测解码的拒绝采样。", "Rejection sampling of guesses.")),
}
GONE = {
    "torchair_graph_config": Text(
        "已删除；图由图模式（cudagraph_mode）决定。", "is gone; the graph mode decides graphs."
    ),
    "ascend_scheduler_config": Text("已删除；用 vLLM 自己的调度器。", "is gone; vLLM's own scheduler is used."),
    "enable_sparse_c8": Text(
        "已拆分为 enable_sparse_sfa_c8 与 enable_sparse_li_c8。",
        "was split into enable_sparse_sfa_c8 and enable_sparse_li_c8.",
    ),
}
MOST_DEPTH = 4


def problems(settings: Settings, spec: Spec | None) -> Iterator[Text]:
    given = settings.additional
    for name, value in given.items():
        yield from _of_key(name, value)
    yield from _together(settings, spec, given)


def _of_key(name: str, value: Any) -> Iterator[Text]:
    if name in GONE:
        yield Text(f"{name} {GONE[name].zh}", f"{name} {GONE[name].en}")
        return
    if name not in KEYS:
        yield Text(f"vLLM-Ascend 没有附加配置 {name[:60]}。", f"vLLM-Ascend has no additional key {name[:60]}.")
        return
    key = KEYS[name]
    if type(value) is not type(key.default):
        words = {bool: ("true 或 false", "true or false"), int: ("整数", "a whole number"), list: ("列表", "a list"),
                 dict: ("一个对象", "an object")}[type(key.default)]  # fmt: skip
        yield Text(f"{name} 须为{words[0]}。", f"{name} must be {words[1]}.")
    elif key.choices and value not in key.choices:
        words_of = ", ".join(map(str, key.choices))
        yield Text(f"{name} 须为其中之一：{words_of}。", f"{name} must be one of {words_of}.")
    elif isinstance(value, dict) and key.inner and (strange := sorted(set(value) - set(key.inner))):
        yield Text(f"{name} 没有 {strange[0][:60]}。", f"{name} has no {strange[0][:60]}.")
    if _depth(value) > MOST_DEPTH:
        yield Text(f"{name} 嵌套太深。", f"{name} is nested too deeply.")


def _depth(value: Any, at: int = 0) -> int:
    if at > MOST_DEPTH or not isinstance(value, (dict, list)):
        return at
    inner = value.values() if isinstance(value, dict) else value
    return max((_depth(one, at + 1) for one in inner), default=at)


def _together(settings: Settings, spec: Spec | None, given: Mapping[str, Any]) -> Iterator[Text]:
    tp, moe = settings.tensor_parallel_size, spec is not None and spec.is_moe
    flash = given.get("enable_flashcomm1") is True
    if flash and tp < 2:
        yield Text("enable_flashcomm1 须张量并行至少为 2。", "enable_flashcomm1 needs tensor parallel of 2 or more.")
    if flash and moe and not settings.enable_expert_parallel:
        yield Text("MoE 上 enable_flashcomm1 须开专家并行。", "On MoE, enable_flashcomm1 needs expert parallel.")
    if flash and settings.max_num_batched_tokens % tp:
        yield Text(
            f"用 enable_flashcomm1 时每步的词元数须能被 {tp} 整除。",
            f"With enable_flashcomm1 the tokens of one step must be a multiple of {tp}.",
        )
    if given.get("enable_dsa_cp") is True and not flash:
        yield Text("enable_dsa_cp 须 enable_flashcomm1。", "enable_dsa_cp needs enable_flashcomm1.")
    if given.get("enable_fused_mc2") in (1, 2):
        yield from _fused(settings, spec, given)
    if given.get("recompute_scheduler_enable") is True and not any("kv_consumer" in one for one in settings.extra):
        yield Text(
            "recompute_scheduler_enable 只能用于 kv_consumer 节点，否则启动失败。",
            "recompute_scheduler_enable goes on kv_consumer nodes only, else the start fails.",
        )
    if given.get("eplb_config") and "DYNAMIC_EPLB" not in settings.env and "EXPERT_MAP_RECORD" not in settings.env:
        yield Text("eplb_config 还须环境变量 DYNAMIC_EPLB。", "eplb_config needs the variable DYNAMIC_EPLB, too.")


def _fused(settings: Settings, spec: Spec | None, given: Mapping[str, Any]) -> Iterator[Text]:
    if given.get("enable_mc2_hierarchy_comm") is True:
        yield Text(
            "enable_fused_mc2 与 enable_mc2_hierarchy_comm 互斥。",
            "enable_fused_mc2 and enable_mc2_hierarchy_comm exclude each other.",
        )
    if spec is not None and not spec.quant.startswith("w8a8"):
        yield Text("enable_fused_mc2 须 W8A8 的模型。", "enable_fused_mc2 needs a W8A8 model.")
    if settings.tensor_parallel_size * settings.data_parallel_size > 32:
        yield Text("enable_fused_mc2 的 EP 不得超过 32。", "enable_fused_mc2 takes an EP of 32 at most.")
