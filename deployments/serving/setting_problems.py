"""What is wrong with settings, before an engine is started with them: (field, sentence) each."""

from collections.abc import Iterator

from deployments.serving import additional, flags, limits, sizing, variables
from deployments.serving.fields import Settings
from deployments.serving.sizing import Engine
from deployments.serving.spec import Spec
from deployments.steps import Text

Problem = tuple[str, Text]
LONG = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
PARALLEL = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")


def problems(settings: Settings, spec: Spec | None, family: str, version: str = "") -> list[Problem]:
    """`spec` is None where the model's figures are not known, `family` '' where there is no NPU; `version` of vLLM."""
    words = flags.problems(settings.extra, version, accept_unknown=settings.accept_unknown)
    found = [("extra", one) for one in words]
    told = variables.problems(settings.env, eager=settings.enforce_eager, family=family)
    found += [("env", one) for one in told]
    found += [*_tokens(settings, spec), *_guesses(settings), *_nodes(settings), *_container(settings)]
    if settings.device == "npu":
        found += [("additional", one) for one in additional.problems(settings, spec)]
        found += [*_chip(settings, family), *_blocks(settings, spec)]
    elif settings.quantization == "ascend":
        found.append(
            (
                "quantization",
                Text("没有 NPU 时不能加载 ascend 量化。", "Without NPU, ascend quantization does not load."),
            )
        )
    if spec is not None:
        found += [*_model(settings, spec), *_weights(settings, spec, family)]
    return found


def engine(settings: Settings) -> Engine:
    """As the planner counts it."""
    return Engine(
        tp=settings.tensor_parallel_size * settings.prefill_context_parallel_size,
        pp=settings.pipeline_parallel_size,
        dp=settings.data_parallel_size,
        ep=settings.enable_expert_parallel,
        utilization=settings.gpu_memory_utilization,
        max_num_seqs=settings.max_num_seqs,
        max_batched_tokens=settings.max_num_batched_tokens or Engine().max_batched_tokens,
        eager=settings.enforce_eager,
    )


def of_memory(settings: Settings, spec: Spec, hbm_mb: float) -> list[Problem]:
    """Whether weights and one request of the whole context find room on NPUs of `hbm_mb` MiB."""
    found = sizing.memory(spec, hbm_mb, engine(settings))
    length = settings.max_model_len or spec.max_position or 0
    if found.kv <= 0:
        gib = f"{-found.kv / 1024:.1f} GiB"
        return [
            (
                "tensor_parallel_size",
                Text(
                    f"每个 NPU 少 {gib}：请增加张量并行、先量化，或提高内存份额。",
                    f"Each NPU lacks {gib}: take more tensor parallel, quantize first, or raise the share of memory.",
                ),
            )
        ]
    if length > found.tokens:
        return [
            (
                "max_model_len",
                Text(
                    f"缓存约有 {found.tokens:,} 个词元，放不下 {length:,} 的上下文：请减小。",
                    f"The cache holds about {found.tokens:,} tokens, less than a context of {length:,}.",
                ),
            )
        ]
    return []


def _chip(settings: Settings, family: str) -> Iterator[Problem]:
    if family in limits.UNSUPPORTED:
        yield "device", Text(f"vLLM-Ascend 不支持 {family}。", f"vLLM-Ascend does not support {family}.")
    if family in limits.NO_BF16 and settings.dtype == "bfloat16":
        yield "dtype", Text(f"{family} 没有 bf16，请用 float16。", f"{family} has no bf16: take float16.")
    if family != "310P":
        return
    if settings.dtype == "auto":
        yield "dtype", Text("310P 须明确写 float16。", "On 310P float16 must be said.")
    if not settings.max_model_len:
        yield "max_model_len", Text("310P 上须写明上下文长度。", "On 310P the context must be said.")
    if settings.cudagraph_mode not in ("", "NONE", "FULL_DECODE_ONLY"):
        yield "cudagraph_mode", Text("310P 只能用 FULL_DECODE_ONLY。", "310P takes FULL_DECODE_ONLY only.")
    if settings.enable_lora:
        yield "enable_lora", Text("310P 不支持 LoRA。", "310P takes no LoRA.")


def _blocks(settings: Settings, spec: Spec | None) -> Iterator[Problem]:
    """128 is forced where the cache of prefixes or prefill in chunks is on; models that mix attention choose."""
    mixed = spec is not None and spec.kv_layers < spec.layers
    few = spec is not None and "deepseek-v4" in spec.name.lower()
    usual = (0, 32, 64, 128) if few else (0, 128)
    if settings.block_size in usual or mixed or settings.prefix_caching == settings.chunked_prefill == "off":
        return
    yield (
        "block_size",
        Text(
            f"NPU 上开启前缀缓存或分块预填充时块大小总是 128，{settings.block_size} 会被改掉：请留 0。",
            f"With prefix caching or chunked prefill the block is 128 on NPUs, not {settings.block_size}: leave 0.",
        ),
    )


def _tokens(settings: Settings, spec: Spec | None) -> Iterator[Problem]:
    length = settings.max_model_len or (spec.max_position if spec else 0) or 0
    if settings.chunked_prefill == "off" and 0 < settings.max_num_batched_tokens < length:
        yield (
            "max_num_batched_tokens",
            Text(
                f"不分块预填充时须至少为上下文长度 {length:,}。",
                f"Without chunked prefill it takes at least the context, {length:,}.",
            ),
        )
    if 0 < settings.max_num_batched_tokens < settings.max_num_seqs:
        yield (
            "max_num_batched_tokens",
            Text(
                f"不得少于同时的请求数 {settings.max_num_seqs}。",
                f"May not be below the requests at once, {settings.max_num_seqs}.",
            ),
        )
    context = max(settings.prefill_context_parallel_size, settings.decode_context_parallel_size)
    if context > 1 and settings.cudagraph_mode in ("FULL", "FULL_AND_PIECEWISE"):
        yield "cudagraph_mode", Text("上下文并行时不能用 FULL 图。", "Context parallel takes no FULL graphs.")
    if settings.tensor_parallel_size % settings.decode_context_parallel_size:
        yield "decode_context_parallel_size", Text("须整除张量并行。", "It must divide tensor parallel.")


def _guesses(settings: Settings) -> Iterator[Problem]:
    wanted = settings.num_speculative_tokens
    if settings.speculative_method and not wanted and settings.speculative_method != "suffix":
        yield (
            "num_speculative_tokens",
            Text("推测解码须写明几个词元。", "Speculative decoding needs a number of tokens."),
        )
    if wanted and not settings.speculative_method:
        yield "speculative_method", Text("请选择推测解码的方法。", "Choose a method of speculative decoding.")
    if (
        settings.speculative_method in ("eagle", "eagle3", "medusa", "draft_model", "dflash")
        and not settings.speculative_model
    ):
        yield (
            "speculative_model",
            Text(
                f"{settings.speculative_method} 须有草稿模型的路径。",
                f"{settings.speculative_method} needs a draft model's path.",
            ),
        )


def _nodes(settings: Settings) -> Iterator[Problem]:
    nodes, dp = settings.nodes, settings.data_parallel_size
    if nodes == 1:
        return
    if settings.device == "cpu":
        yield "nodes", Text("CPU 上的副本只用一台服务器。", "On CPU a replica stays on one server.")
    elif dp > 1 and settings.backend == "mp" and dp % nodes:
        yield "data_parallel_size", Text(f"须能被 {nodes} 台服务器整除。", f"It must be a multiple of {nodes} servers.")
    elif dp == 1 and (settings.tensor_parallel_size * settings.pipeline_parallel_size) % nodes:
        yield (
            "nodes",
            Text(
                f"TP × PP 须能被 {nodes} 整除，每台服务器一样多。",
                f"TP × PP must be a multiple of {nodes}: each server takes the same.",
            ),
        )
    if settings.route in ("podman", "docker") and settings.backend == "ray":
        yield "backend", Text("容器里的多机副本用 mp。", "In containers, several servers take mp.")


def _container(settings: Settings) -> Iterator[Problem]:
    if settings.route in ("podman", "docker") and not settings.image:
        yield "image", Text("容器须写明镜像。", "A container needs an image.")


def _model(settings: Settings, spec: Spec) -> Iterator[Problem]:
    size = Engine(tp=settings.tensor_parallel_size, pp=settings.pipeline_parallel_size)
    if wrong := limits.of_division(spec, size, max(size.npus, 16)):
        field = "pipeline_parallel_size" if wrong.code == "layers" else "tensor_parallel_size"
        yield field, Text(wrong.why.zh + wrong.do.zh, f"{wrong.why.en} {wrong.do.en}")
    if settings.env.get(LONG) != "1":
        for one in limits.of_context(spec, settings.max_model_len or None):
            yield (
                "max_model_len",
                Text(
                    f"{one.why.zh}{one.do.zh}确要更长须设 {LONG}=1，结果可能不对。",
                    f"{one.why.en} {one.do.en} Longer only with {LONG}=1, and answers may be wrong.",
                ),
            )
    if settings.data_parallel_size > 1 and not spec.is_moe:
        yield (
            "data_parallel_size",
            Text("稠密模型不用数据并行，请增加副本。", "A dense model takes no data parallel: add replicas instead."),
        )
    if settings.enable_expert_parallel and not spec.is_moe:
        yield "enable_expert_parallel", Text("这个模型没有专家。", "This model has no experts.")


def _weights(settings: Settings, spec: Spec, family: str) -> Iterator[Problem]:
    if settings.device == "cpu":
        if spec.quant or spec.foreign_quant:
            yield "device", Text("量化的模型不能在 CPU 上运行。", "A quantized model does not run on CPU.")
        return
    for one in limits.of_chip(spec, family, "auto"):
        if one.code in ("quant", "foreign_quant"):
            yield "quantization", Text(one.why.zh + one.do.zh, f"{one.why.en} {one.do.en}")
    if settings.quantization == "ascend" and not spec.quant:
        yield "quantization", Text("这个模型没有量化，请取 auto。", "This model is not quantized: take auto.")
    if spec.quant == "w8a8sc" and settings.load_format != "sharded_state":
        yield "load_format", Text("W8A8SC 须用 sharded_state。", "W8A8SC takes sharded_state.")
