"""A benchmark acted out: figures of a kind that engines have, made from the model's name, and none of them measured.

Throughput rises with concurrency until the engine is full; from there on requests wait, and the first token with them.
"""

import hashlib
from collections.abc import Sequence

from deployments.agent import bench as program
from deployments.demo.scene import DONE, Act, Ended, Told
from deployments.serving import bench
from deployments.serving.bench import Ask, Point
from deployments.steps import Text

NAME = "deployments.agent.bench"
SPREAD = {"mean": 1.0, "p50": 0.96, "p90": 1.22, "p99": 1.61}
SIMULATED = "simulated: 数字是演示出来的，没有测量任何引擎 / the figures are acted out, and no engine was measured"
FULL = 48  # requests at once that such an engine takes
MOST_S, LINES = 20.0, 4


def of(words: Sequence[str]) -> Act:
    """A step of the kind `benchmark`."""
    parsed = program.arguments().parse_args(list(words))
    ask = program.ask_of(parsed)
    if parsed.what == "look":
        return _look(ask)
    if parsed.what == "run":
        return _run(ask, parsed.degree)
    return _judge(ask, bench.degrees(parsed.degrees), program.targets_of(parsed.targets))


def _look(ask: Ask) -> Act:
    yield SIMULATED
    yield f"{ask.base_url}: {ask.model}, {ask.way}, {ask.input_len} + {ask.output_len} tokens"
    return DONE


def _run(ask: Ask, degree: int) -> Act:
    point = measured(ask, degree)
    yield SIMULATED
    yield f"vllm bench serve --max-concurrency {degree} --num-prompts {point.prompts}"
    pause = min(MOST_S, point.duration_s or 0.0) / LINES
    for n in range(1, LINES + 1):
        yield pause
        yield f"concurrency {degree}: {point.prompts * n // LINES} of {point.prompts} requests"
    yield Told(told="benchmark_point", data=point.as_json())
    return DONE


def _judge(ask: Ask, degrees: list[int], targets: bench.Targets) -> Act:
    verdict = bench.judge([measured(ask, one) for one in degrees], targets)
    yield Told(told="benchmark", data={"degrees": degrees, "passed": verdict.passed})
    for words in (verdict.sentence, *verdict.faults):
        yield f"{words.zh} {words.en}"
    return Ended(0, None) if degrees else Ended(1, Text("没有并发。", "There is no degree."))


def measured(ask: Ask, degree: int) -> Point:
    """Always the same for the same model and question."""
    at_once = min(degree, FULL)
    tpot = (9.0 + 4.0 * _chance(ask.model)) * (1 + at_once / 160)
    prefill = ask.input_len * 0.09 * (1 + at_once / 24)
    one_s = (prefill + tpot * ask.output_len) / 1000
    waits = prefill + one_s * 1000 * max(0, degree - FULL) / FULL
    requests, rate = ask.count(degree), at_once / one_s
    return Point(
        concurrency=degree,
        prompts=requests,
        completed=requests,
        failed=0,
        duration_s=round(requests / rate, 3),
        requests_s=round(rate, 3),
        output_tokens_s=round(rate * ask.output_len, 3),
        total_tokens_s=round(rate * (ask.output_len + ask.input_len), 3),
        ttft_ms=_spread(waits),
        tpot_ms=_spread(tpot),
        itl_ms=_spread(tpot),
        e2el_ms=_spread(waits + tpot * ask.output_len),
        others=0,
    )


def _spread(mean: float) -> dict[str, float | None]:
    return {name: round(mean * factor, 3) for name, factor in SPREAD.items()}


def _chance(text: str) -> float:
    """From 0 to 1, always the same for the same text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") / 2**32
