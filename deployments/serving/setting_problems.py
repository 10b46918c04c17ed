"""What is wrong with settings, before an engine is started with them: (field, sentence) each."""

from collections.abc import Iterator

from deployments.serving import limits
from deployments.serving.fields import Settings
from deployments.serving.sizing import Engine
from deployments.serving.spec import Spec
from deployments.steps import Text

Problem = tuple[str, Text]
REFUSED_ENV = {
    "ASCEND_RT_VISIBLE_DEVICES": Text("NPU 由控制台选择。", "The console chooses the NPUs."),
    "VLLM_API_KEY": Text("密钥由控制台给出。", "The console gives the key."),
}


def problems(settings: Settings, spec: Spec | None, family: str) -> list[Problem]:
    """`spec` is None where the model's figures are not known; `family` is '' for a machine without NPUs."""
    found = [*_environment(settings), *_tokens(settings, spec), *_chip(settings, family)]
    if spec is not None:
        found += _model(settings, spec)
    return found


def _environment(settings: Settings) -> Iterator[Problem]:
    for name in settings.env:
        if name in REFUSED_ENV:
            yield "env", Text(f"{name}：{REFUSED_ENV[name].zh}", f"{name}: {REFUSED_ENV[name].en}")


def _chip(settings: Settings, family: str) -> Iterator[Problem]:
    if family in limits.NO_BF16 and settings.dtype == "bfloat16":
        yield "dtype", Text(f"{family} 没有 bf16，请用 float16。", f"{family} has no bf16: take float16.")


def _tokens(settings: Settings, spec: Spec | None) -> Iterator[Problem]:
    length = settings.max_model_len or (spec.max_position if spec else 0) or 0
    if settings.chunked_prefill == "off" and 0 < settings.max_num_batched_tokens < length:
        yield (
            "max_num_batched_tokens",
            Text(
                f"不分块预填充时须至少为上下文长度 {length:,}。",
                f"Without chunked prefill it takes at least {length:,}.",
            ),
        )


def _model(settings: Settings, spec: Spec) -> Iterator[Problem]:
    engine = Engine(tp=settings.tensor_parallel_size, pp=settings.pipeline_parallel_size)
    if settings.device == "npu" and (wrong := limits.of_division(spec, engine, max(engine.npus, 1))):
        field = "pipeline_parallel_size" if wrong.code == "layers" else "tensor_parallel_size"
        yield field, Text(wrong.why.zh + wrong.do.zh, f"{wrong.why.en} {wrong.do.en}")
    for one in limits.of_context(spec, settings.max_model_len or None):
        yield "max_model_len", Text(one.why.zh + one.do.zh, f"{one.why.en} {one.do.en}")
    if settings.data_parallel_size > 1 and not spec.is_moe:
        yield (
            "data_parallel_size",
            Text("稠密模型不用数据并行，请增加副本。", "A dense model takes no data parallel: add replicas instead."),
        )
    if settings.enable_expert_parallel and not spec.is_moe:
        yield "enable_expert_parallel", Text("这个模型没有专家。", "This model has no experts.")
