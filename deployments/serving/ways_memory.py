"""Changes that make room: each gives what to set, and the sum behind it."""

from collections.abc import Callable

from deployments.serving import limits, sizing
from deployments.serving.remedy_case import BATCH, Case, Worked, blocks, gib
from deployments.steps import Text

HIGHEST, HIGH, LOW = 0.95, 0.85, 0.8  # of the memory: where nothing else runs, and where graphs and links need room
CPU_GIB = 4  # vLLM's own cache on a CPU where none is asked for
BUFFER_MB, LEAST_BUFFER_MB, STEP_MB = 200, 64, 128


def context(case: Case) -> Worked | None:
    """Down to what fits: by the engine's own words, else by sizing, else half."""
    now, limit = case.context, case.whole("longest")
    available, needed = case.number("available"), case.number("needed")
    if limit:
        return _shorter(
            now, blocks(limit), Text(f"引擎放得下 {limit:,} 个词元。", f"The engine holds {limit:,} tokens.")
        )
    if now and available and needed and available > 0:
        fits = blocks(now * available / needed)
        sum_ = f"{now:,} × {available:g} GiB / {needed:g} GiB = {fits:,}"
        return _shorter(now, fits, Text(sum_, sum_))
    found = case.memory()
    if found is not None and found.kv > 0 and (now is None or found.tokens < now):
        sum_ = f"{gib(found.kv)} / {found.kv_bytes_per_token / 1024:.1f} KiB = {found.tokens:,} tokens"
        return _shorter(now, found.tokens, Text(f"KV 缓存：{sum_}", f"KV cache: {sum_}"))
    if now and now > 512:
        return _shorter(now, blocks(now / 2), Text(f"{now:,} 的一半。", f"Half of {now:,}."))
    return None


def _shorter(now: int | None, fits: int, sum_: Text) -> Worked | None:
    if fits < 1 or (now is not None and fits >= now):
        return None
    step = Text(f"上下文 {_shown(now)} → {fits:,}", f"Context {_shown(now)} → {fits:,}")
    return Worked({"max_model_len": fits}, (sum_, step))


def _shown(value: int | None) -> str:
    return "—" if value is None else f"{value:,}"


def seqs(case: Case) -> Worked | None:
    """Half as many requests, or as many as the cache holds of the whole context where that is less."""
    now, length = case.settings.max_num_seqs, case.context
    if now <= 1:
        return None
    fewer = max(1, now // 2)
    found = case.memory()
    tokens = case.kv_tokens or (found.tokens if found else 0)
    if tokens and length and 1 <= tokens // length < fewer:
        fewer = tokens // length
        sum_ = f"{tokens:,} / {length:,} = {fewer}"
        return Worked(
            {"max_num_seqs": fewer},
            (Text(f"缓存里的词元 / 上下文：{sum_}", f"Tokens of the cache / context: {sum_}"),),
        )
    return Worked({"max_num_seqs": fewer}, (Text(f"{now} → {fewer}", f"{now} → {fewer}"),))


def share_up(case: Case) -> Worked | None:
    """On a CPU it is the cache that has a size of its own."""
    if case.on_cpu:
        words = f"{(gib_now := case.settings.kv_cache_gib or CPU_GIB)} → {gib_now * 2} GiB"
        return Worked({"kv_cache_gib": gib_now * 2}, (Text(words, words),))
    now = case.settings.gpu_memory_utilization
    if now >= HIGHEST:
        return None
    return Worked({"gpu_memory_utilization": HIGHEST}, _share(case, now, HIGHEST))


def share_down(case: Case) -> Worked | None:
    now, wanted = case.settings.gpu_memory_utilization, 0.0
    if case.on_cpu:
        return None
    free, total = case.number("free"), case.number("total")
    if free and total and 0 < free < total:
        wanted = int((free / total - 0.02) * 100) / 100
    if not wanted:
        wanted = HIGH if now > HIGH else LOW
    if not 0.05 < wanted < now:
        return None
    return Worked({"gpu_memory_utilization": wanted}, _share(case, now, wanted))


def _share(case: Case, now: float, then: float) -> tuple[Text, ...]:
    lines = [Text(f"{now:g} → {then:g}", f"{now:g} → {then:g}")]
    if case.hbm_mb:
        visible = case.hbm_mb * sizing.VISIBLE
        sum_ = f"{gib(visible)} × {then:g} − {gib(visible)} × {now:g} = {visible * (then - now) / 1024:+.1f} GiB"
        lines.append(Text(sum_, sum_))
    found = case.memory(utilization=then)
    if found is not None:
        lines.append(_cache(found))
    return tuple(lines)


def _cache(found: sizing.Memory) -> Text:
    return Text(
        f"KV 缓存将有 {gib(max(0.0, found.kv))}，{found.tokens:,} 个词元。",
        f"The KV cache will have {gib(max(0.0, found.kv))}, {found.tokens:,} tokens.",
    )


def batch(case: Case) -> Worked | None:
    now = case.settings.max_num_batched_tokens or BATCH
    fewer = max(512, now // 2, case.settings.max_num_seqs)
    if case.settings.chunked_prefill == "off":
        fewer = max(fewer, case.context or 0)  # vLLM refuses less
    if fewer >= now:
        return None
    lines = [Text(f"{now:,} → {fewer:,}", f"{now:,} → {fewer:,}")]
    if case.spec is not None and not case.on_cpu:
        before, after = (sizing.activations_mb(case.spec, case.engine(max_batched_tokens=one)) for one in (now, fewer))
        lines.append(Text(f"激活：{gib(before)} → {gib(after)}", f"Activations: {gib(before)} → {gib(after)}"))
    return Worked({"max_num_batched_tokens": fewer}, tuple(lines))


def tp_up(case: Case) -> Worked | None:
    """The next size that divides the model and finds its NPUs; it is not said where none is known to do."""
    now = case.settings.tensor_parallel_size
    others = case.settings.pipeline_parallel_size * case.settings.data_parallel_size
    if case.on_cpu or case.spec is None:
        return None
    for tp in (one for one in (2, 4, 8, 16, 32) if one > now):
        if case.npus and tp * others > case.npus:
            return None
        if limits.of_division(case.spec, case.engine(tp=tp), max(tp, case.npus)) is not None:
            continue
        before, after = (sizing.weights_mb(case.spec, case.engine(tp=one)) for one in (now, tp))
        lines = [
            Text(f"每个 NPU 的权重：{gib(before)} → {gib(after)}", f"Weights of each NPU: {gib(before)} → {gib(after)}")
        ]
        if (found := case.memory(tp=tp)) is not None:
            if found.kv <= 0 and tp < 32:
                continue
            lines.append(_cache(found))
        return Worked({"tensor_parallel_size": tp}, tuple(lines))
    return None


def hccl_buffer(case: Case) -> Worked | None:
    """What the operator asks for, rounded up; else twice as much. It is counted twice in the memory of the NPU."""
    now = case.whole("has") or _buffer(case)
    needed = case.whole("needed") or 2 * now
    then = -(-max(needed, now + 1) // STEP_MB) * STEP_MB
    lines = (
        Text(f"{now} → {then} MB（需要 {needed} MB）", f"{now} → {then} MB ({needed} MB are needed)"),
        Text(f"每个通信域占用 2 × {then} MB 显存。", f"Each communicator takes 2 × {then} MB of the NPU's memory."),
    )
    return Worked(case.env(HCCL_BUFFSIZE=str(then)), lines)


def hccl_buffer_down(case: Case) -> Worked | None:
    now = _buffer(case)
    then = max(LEAST_BUFFER_MB, now // 2)
    if then >= now:
        return None
    return Worked(case.env(HCCL_BUFFSIZE=str(then)), (Text(f"{now} → {then} MB", f"{now} → {then} MB"),))


def _buffer(case: Case) -> int:
    text = case.settings.env.get("HCCL_BUFFSIZE", "")
    return int(text) if text.isdecimal() and 0 < len(text) < 8 else BUFFER_MB


def cpu_cache(case: Case) -> Worked | None:
    """Half of it, where the host has too little."""
    now = case.settings.kv_cache_gib or CPU_GIB
    if not case.on_cpu or now <= 1:
        return None
    return Worked({"kv_cache_gib": max(1, now // 2)}, (Text(f"{now} → {now // 2} GiB", f"{now} → {now // 2} GiB"),))


MEMORY_WAYS: dict[str, Callable[[Case], Worked | None]] = {
    "context": context,
    "seqs": seqs,
    "share_up": share_up,
    "share_down": share_down,
    "batch": batch,
    "tp_up": tp_up,
    "hccl_buffer": hccl_buffer,
    "hccl_buffer_down": hccl_buffer_down,
    "cpu_cache": cpu_cache,
}
