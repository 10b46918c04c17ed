"""Changes of graph capture and of how a model is divided."""

from collections.abc import Callable

from deployments.serving.remedy_case import Case, Worked
from deployments.steps import Text

SIZES = (1, 2, 4, 8, 16, 32, 64)
MLA_HEADS = (128, 64, 32)
GROWS = (1, 2, 4, 8, 16, 32, 64)


def captures(case: Case) -> Worked | None:
    """Powers of two up to what runs at once; where that is the list already, its smaller half."""
    most = case.settings.max_num_seqs
    now = sorted(int(one) for one in case.settings.capture_sizes)
    fewer = [one for one in SIZES if one <= most]
    if now and len(now) <= len(fewer):
        fewer = now[: len(now) // 2]
    if not fewer or case.settings.enforce_eager:
        return None
    words = " ".join(map(str, fewer))
    before = " ".join(map(str, now)) or f"1 … {min(512, most)}"
    return Worked({"capture_sizes": [str(one) for one in fewer]}, (Text(f"{before} → {words}", f"{before} → {words}"),))


def decode_only(case: Case) -> Worked | None:
    now = case.settings.cudagraph_mode or "FULL_AND_PIECEWISE"
    if now == "FULL_DECODE_ONLY" or case.settings.enforce_eager:
        return None
    words = f"{now} → FULL_DECODE_ONLY"
    return Worked({"cudagraph_mode": "FULL_DECODE_ONLY"}, (Text(words, words),))


def eager(case: Case) -> Worked | None:
    if case.settings.enforce_eager:
        return None
    return Worked({"enforce_eager": True, "cudagraph_mode": None, "capture_sizes": None})


def tp_divides(case: Case) -> Worked | None:
    """The largest size up to the one asked for that divides the heads."""
    heads, now = case.whole("heads") or (case.spec.heads if case.spec else 0), case.settings.tensor_parallel_size
    fitting = [one for one in GROWS if one < now and heads and heads % one == 0]
    if not fitting:
        return None
    tp = fitting[-1]
    sum_ = f"{heads} / {tp} = {heads // tp}"
    return Worked({"tensor_parallel_size": tp}, (Text(f"头数：{sum_}", f"Heads: {sum_}"),))


def tp_mla(case: Case) -> Worked | None:
    """By which each NPU has 128, 64 or 32 heads: the one nearest to what was asked for."""
    now, each = case.settings.tensor_parallel_size, case.whole("each")
    heads = each * now if each else (case.spec.heads if case.spec else 0)
    fitting = [heads // one for one in MLA_HEADS if heads and heads % one == 0 and heads // one != now]
    if not fitting:
        return None
    tp = min(fitting, key=lambda one: (abs(one - now), one))
    sum_ = f"{heads} / {tp} = {heads // tp}"
    return Worked({"tensor_parallel_size": tp}, (Text(f"每个 NPU 的头数：{sum_}", f"Heads of each NPU: {sum_}"),))


def tp_one(case: Case) -> Worked | None:
    """As many parts as there are devices; on a CPU it is one."""
    s = case.settings
    there = 1 if case.on_cpu else case.npus
    parts = s.tensor_parallel_size * s.pipeline_parallel_size * s.data_parallel_size
    if there < 1 or parts <= there:
        return None
    tp = max(one for one in GROWS if one <= there)
    words = Text(f"{parts} 份 → {tp} 份（设备 {there} 个）", f"{parts} parts → {tp} (devices: {there})")
    return Worked({"tensor_parallel_size": tp, "pipeline_parallel_size": None, "data_parallel_size": None}, (words,))


def tp_for_pp(case: Case) -> Worked | None:
    pp, tp = case.settings.pipeline_parallel_size, case.settings.tensor_parallel_size
    if pp < 2 or (case.spec is not None and case.spec.heads % (tp * pp)):
        return None
    words = f"TP {tp} · PP {pp} → TP {tp * pp}"
    return Worked({"tensor_parallel_size": tp * pp, "pipeline_parallel_size": None}, (Text(words, words),))


def no_fusion(case: Case) -> Worked | None:
    inner = case.settings.additional.get("ascend_compilation_config")
    both = {**(inner if isinstance(inner, dict) else {}), "fuse_norm_quant": False}
    return Worked({"additional": {**case.settings.additional, "ascend_compilation_config": both}})


GRAPH_WAYS: dict[str, Callable[[Case], Worked | None]] = {
    "captures": captures,
    "decode_only": decode_only,
    "eager": eager,
    "tp_divides": tp_divides,
    "tp_mla": tp_mla,
    "tp_one": tp_one,
    "tp_for_pp": tp_for_pp,
    "no_fusion": no_fusion,
}
