"""`python -m deployments.agent.bench look|run|judge …`: the steps of a benchmark of one engine.

The engine's API key comes sealed with this server's own key, and goes to the benchmark by its environment alone: it
stands in no command and no log.
"""

import argparse
import base64
import json
import os
import sys
import threading
import urllib.error
import urllib.request
from dataclasses import fields
from pathlib import Path
from typing import Any

from deployments.agent import config, indexed
from deployments.artifacts.engine_failures import meaning
from deployments.artifacts.processes import Program, Stopped, environment, running, stop_by_signals
from deployments.artifacts.tell import tell
from deployments.serving import bench
from deployments.serving.bench import Ask, Point
from deployments.stacks.cann_layer import with_env
from deployments.stacks.said import FINE, ended
from deployments.steps import Text

STOPPED = 130
FOLDER = "points"  # of the attempt: one file for each degree
TELL_S = 3.0
MOST_ANSWER = 8 << 20
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # engines are reached past every proxy
FINISHED, RUNNING, WAITING = "vllm:request_success_total", "vllm:num_requests_running", "vllm:num_requests_waiting"


class CannotMeasure(Exception):
    """`text` says why and what to do."""

    def __init__(self, text: Text) -> None:
        super().__init__(text.en)
        self.text = text


def key_of(sealed: str) -> str:
    """The API key; '' where none was sent. Raises CannotMeasure."""
    if not sealed:
        return ""
    try:
        found = config.load(Path(os.environ["ASCEND_CONFIG"]))
        return str(json.loads(indexed.opened(found, base64.b64decode(sealed)))["api_key"])
    except (OSError, ValueError, KeyError, TypeError, config.ConfigError) as error:
        raise CannotMeasure(
            Text(
                "密封的 API key 打不开：服务器的密钥换过了。请重新提交基准测试。",
                "The sealed API key cannot be opened: the server's key was changed. Queue the benchmark anew.",
            )
        ) from error


def get(url: str, key: str = "", timeout_s: float = 10.0) -> bytes:
    """Raises OSError."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with DIRECT.open(urllib.request.Request(url, headers=headers), timeout=timeout_s) as response:
        return bytes(response.read(MOST_ANSWER))


def look(ask: Ask, key: str, stacks: Path) -> Text:
    """Whether it can be measured: FINE, else what is in the way."""
    if not (stacks / "current" / "activate").is_file():
        return Text(
            f"{stacks}/current 里没有在用的软件栈。请先在这台服务器上安装一个软件栈。",
            f"There is no stack in use in {stacks}/current. Install one on this server first.",
        )
    if not any((Path(ask.tokenizer) / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json")):
        return Text(
            f"{ask.tokenizer} 里没有分词器，无法生成提示词。",
            f"There is no tokenizer in {ask.tokenizer}, of which prompts are made.",
        )
    try:
        get(f"{ask.base_url}/health")
        served = _served(json.loads(get(f"{ask.base_url}/v1/models", key)))
    except urllib.error.HTTPError as error:
        return Text(
            f"引擎拒绝了请求（HTTP {error.code}）。请检查密钥和部署，再重试。",
            f"The engine refuses requests (HTTP {error.code}). Look at its key and its deployment, then try again.",
        )
    except (OSError, ValueError) as error:
        return Text(
            f"{ask.base_url} 没有回答（{_brief(error)}）。请等副本就绪，再重试。",
            f"{ask.base_url} does not answer ({_brief(error)}). Wait until the replica is ready, then try again.",
        )
    if ask.model not in served:
        return Text(
            f"引擎提供的是 {', '.join(served)[:200]}，不是 {ask.model}。",
            f"The engine serves {', '.join(served)[:200]}, not {ask.model}.",
        )
    print(f"{ask.base_url}: {ask.model}, {ask.way}, {ask.input_len} + {ask.output_len} tokens", flush=True)
    return FINE


def _served(told: Any) -> list[str]:
    rows = told.get("data") if isinstance(told, dict) else None
    return [str(row.get("id")) for row in rows or [] if isinstance(row, dict)]


def _brief(error: Exception) -> str:
    return " ".join(str(getattr(error, "reason", error)).split())[:120]


def metrics(base_url: str) -> dict[str, float] | None:
    """Sums of the three that matter; None where the engine shows none (a gateway does not)."""
    found = dict.fromkeys((FINISHED, RUNNING, WAITING), 0.0)
    try:
        lines = get(f"{base_url}/metrics", timeout_s=3.0).decode(errors="replace").splitlines()
        seen = False
        for line in lines:
            name = line.partition("{")[0].partition(" ")[0]
            if name in found:
                found[name] += float(line.rpartition(" ")[2])
                seen = True
    except (OSError, ValueError):
        return None
    return found if seen else None


class Progress(threading.Thread):
    """Says every few seconds how many requests have been answered, until `over` is set."""

    def __init__(self, ask: Ask, degree: int) -> None:
        super().__init__(daemon=True)
        self.ask, self.degree, self.over = ask, degree, threading.Event()
        self.before = metrics(ask.base_url)

    def run(self) -> None:
        total, told = self.ask.count(self.degree), 0
        while not self.over.wait(TELL_S):
            done = self.answered()
            if done is not None and done != told:
                told = done
                print(f"concurrency {self.degree}: {min(done, total)} of {total} requests", flush=True)

    def answered(self) -> int | None:
        now = metrics(self.ask.base_url) if self.before else None
        return round(now[FINISHED] - self.before[FINISHED]) if now and self.before else None

    @property
    def busy(self) -> int:
        """Requests of others that ran or waited before the first of ours."""
        return round(self.before[RUNNING] + self.before[WAITING]) if self.before else 0


def run(ask: Ask, degree: int, key: str, stacks: Path, device: str) -> Text:
    """Measure one degree, and tell it. FINE, else why its point does not count."""
    folder = Path.cwd() / FOLDER
    folder.mkdir(exist_ok=True)
    result = folder / f"result-{degree}.json"
    result.unlink(missing_ok=True)  # of an attempt that was interrupted
    env = {**environment(), "OPENAI_API_KEY": key or "EMPTY", "ASCEND_RT_VISIBLE_DEVICES": ""}
    env.pop("BENCHMARK_SEALED", None)
    if device == "cpu":
        env["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # torch_npu without CANN breaks the import of torch
    argv = bench.argv(ask, degree, str(folder), result.name)
    shown = [word for word in argv[1:] if word not in ("-c", bench.PROGRAM)]
    print("vllm bench serve " + " ".join(shown), flush=True)
    progress = Progress(ask, degree)
    if progress.busy:
        print(f"note: {progress.busy} requests of others are under way / 引擎同时在处理别人的请求", flush=True)
    progress.start()
    try:
        with running(with_env([str(stacks / "current" / "activate")], argv), env) as program:
            code = program.process.wait()
            measured = _point(ask, degree, result, progress, program, code)
    finally:
        progress.over.set()
    (folder / f"{degree}.json").write_text(json.dumps(measured.as_json()), encoding="utf-8")
    tell("benchmark_point", measured.as_json())
    return FINE if measured.sound else Text(*(measured.reason or ("", "")))


def _point(ask: Ask, degree: int, result: Path, progress: Progress, program: Program, code: int) -> Point:
    try:
        told = json.loads(result.read_text(encoding="utf-8"))
        answered = progress.answered()
        point = bench.point(told, degree)
        ours = point.completed + point.failed + min(degree, 4) + 1  # warm-up, and one request that tries the engine
        others = None if answered is None else max(0, answered - ours, progress.busy)
        return bench.point(told, degree, others)
    except (OSError, ValueError, AttributeError):
        return bench.lost(degree, ask.count(degree), _why(program, code))


def _why(program: Program, code: int) -> Text:
    known = meaning(program.output)
    last = next((line for line in reversed(program.output.splitlines()) if "Error" in line), "").strip()[-300:]
    return known or Text(
        f"测试程序没有写出结果（退出码 {code}）。{last}",
        f"The benchmark wrote no result (exit code {code}). {last}".strip(),
    )


def judge(degrees: list[int], targets: bench.Targets) -> Text:
    """Tell the whole. FINE where every degree was measured and no request failed."""
    points = [point for degree in degrees if (point := _read(degree))]
    verdict = bench.judge(points, targets)
    tell("benchmark", {"degrees": degrees, "passed": verdict.passed})
    for words in (verdict.sentence, *verdict.faults):
        print(f"{words.zh} {words.en}", flush=True)
    missing = [one for one in degrees if one not in {point.concurrency for point in points}]
    broken = [*missing, *(point.concurrency for point in points if not point.sound)]
    if not broken:
        return FINE
    where = ", ".join(map(str, sorted(broken)))
    reason = next((point.reason for point in points if point.reason), None) or ("", "")
    return Text(
        f"并发 {where} 没有测成：有请求失败，或没有结果。{reason[0]}",
        f"A concurrency of {where} was not measured: requests failed, or there is no result. {reason[1]}".strip(),
    )


def _read(degree: int) -> Point | None:
    try:
        row = json.loads((Path.cwd() / FOLDER / f"{degree}.json").read_text(encoding="utf-8"))
        return Point(**{one.name: row[one.name] for one in fields(Point)})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="deployments.agent.bench")
    parser.add_argument("what", choices=("look", "run", "judge"))
    for name in ("--base-url", "--model", "--tokenizer"):
        parser.add_argument(name, default="")
    parser.add_argument("--way", choices=bench.WAYS, default="completions")
    for name in ("--prompts", "--input-len", "--output-len", "--seed", "--degree"):
        parser.add_argument(name, type=int, default=0)
    parser.add_argument("--ignore-eos", action="store_true")
    parser.add_argument("--stacks", type=Path, default=Path("/"))
    parser.add_argument("--device", default="npu")
    parser.add_argument("--targets", default="")
    parser.add_argument("--degrees", default="")
    return parser


def ask_of(parsed: argparse.Namespace) -> Ask:
    names = [one.name for one in fields(Ask) if hasattr(parsed, one.name)]
    return Ask(**{name: getattr(parsed, name) for name in names})


def targets_of(text: str) -> bench.Targets:
    """As the kind writes them: `concurrency,ttft,tpot,tokens,percentile`."""
    if not text:
        return bench.Targets()
    concurrency, ttft, tpot, tokens, percentile = text.split(",")
    return bench.Targets(int(concurrency), float(ttft), float(tpot), float(tokens), percentile)


def work(parsed: argparse.Namespace) -> Text:
    ask = ask_of(parsed)
    if parsed.what == "judge":
        return judge(bench.degrees(parsed.degrees), targets_of(parsed.targets))
    key = key_of(os.environ.get("BENCHMARK_SEALED", ""))
    if parsed.what == "look":
        return look(ask, key, parsed.stacks)
    return run(ask, parsed.degree, key, parsed.stacks, parsed.device)


def main(words: list[str]) -> int:
    parsed = arguments().parse_args(words)
    stop_by_signals()
    try:
        return ended(work(parsed))
    except CannotMeasure as error:
        return ended(error.text)
    except Stopped:
        return STOPPED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
