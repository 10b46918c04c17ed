"""Measure a deployment: `vllm bench serve` of the stack asks one engine at rising degrees of concurrency.

The console fills in which engine it is and how it is reached. Each degree is a step, so that one that fails leaves the
others measured; a target that is missed makes no failed job, a request that failed does.
"""

from dataclasses import dataclass

from deployments.artifacts import paths
from deployments.serving import bench
from deployments.steps import BadParams, Step, Text, param, python_module

TITLE = Text("基准测试", "Benchmark a deployment")
OWN_PAGE = True
ACTED = True  # on simulated servers
FILLED = ("deployment", "base_url", "model", "tokenizer", "sealed", "stacks", "device", "context")
BY_CONSOLE = Text("由控制台填写。", "The console fills it in.")
INTERRUPTS = Text(
    "测试的请求与用户的请求一起排队：测试期间，这个副本的回答会变慢。",
    "Its requests stand in one queue with those of users: while it runs, the replica answers more slowly.",
)
PROGRAM = "deployments.agent.bench"
LOOK_S, JUDGE_S = 120.0, 60.0
DEGREES = r"\s*\d{1,6}(\s*[\s,，、;]\s*\d{1,6})*\s*"


@dataclass(frozen=True)
class Params:
    replica: int = param("integer", zh="副本", en="Replica", least=1, help=Text("副本的编号（id）。", "Its id."))
    degrees: str = param(
        "text", zh="并发", en="Concurrency", default="1, 4, 16, 64", pattern=DEGREES, example="1, 4, 16, 64",
        help=Text("同时处理的请求数，每个值测一次。", "Requests at once; each value is measured."),
    )  # fmt: skip
    prompts: int = param(
        "integer", zh="每个并发的请求数", en="Requests of each", default=64, least=1, most=bench.MOST_PROMPTS,
        help=Text("至少为并发的两倍。", "At least twice the concurrency is taken."),
    )  # fmt: skip
    input_len: int = param("integer", zh="输入长度（词元）", en="Input (tokens)", default=1024, least=1, most=1_000_000)
    output_len: int = param("integer", zh="输出长度（词元）", en="Output (tokens)", default=128, least=1, most=100_000)
    way: str = param("choice", zh="接口", en="Endpoint", default="completions", choices=bench.WAYS)
    ignore_eos: bool = param(
        "flag", zh="忽略结束符", en="Ignore the end token", default=True,
        help=Text("每个回答都取满长度，结果才可比。", "Each answer has its whole length, so that runs compare."),
    )  # fmt: skip
    seed: int = param("integer", zh="随机种子", en="Seed", default=1, least=0, most=2**31)
    timeout_min: int = param(
        "integer", zh="每个并发的时限（分钟）", en="Minutes for each", default=30, least=1, most=1440
    )
    target_concurrency: int = param(
        "integer", zh="目标并发", en="Target: concurrency", default=0, least=0, most=bench.MOST_DEGREE,
        help=Text("0：没有目标。", "0: no target."),
    )  # fmt: skip
    target_tpot_ms: float = param(
        "number", zh="目标 TPOT（ms）", en="Target: TPOT (ms)", default=0, least=0, most=100_000
    )
    target_ttft_ms: float = param(
        "number", zh="目标 TTFT（ms）", en="Target: TTFT (ms)", default=0, least=0, most=1_000_000
    )
    target_tokens_s: float = param(
        "number", zh="目标输出（token/s）", en="Target: output (tokens/s)", default=0, least=0, most=10_000_000
    )
    percentile: str = param(
        "choice", zh="按哪个分位判定", en="Judged by", default="p90", choices=bench.PERCENTILES
    )  # fmt: skip
    through: str = param("choice", zh="经由", en="Through", default="replica", choices=("replica", "gateway"))
    sealed_key: str = param(
        "text", zh="网关的密封密钥", en="Sealed key of the gateway", default="", pattern=r"[A-Za-z0-9+/=]*",
        help=Text("由页面填写。", "The page fills it in."),
    )  # fmt: skip
    deployment: int = param("integer", zh="部署", en="Deployment", default=0, least=0, help=BY_CONSOLE)
    base_url: str = param("text", zh="地址", en="Address", default="", help=BY_CONSOLE)
    model: str = param("text", zh="模型名", en="Served name", default="", help=BY_CONSOLE)
    tokenizer: str = param("text", zh="模型目录", en="Model's folder", default="", help=BY_CONSOLE)
    sealed: str = param("text", zh="密封的密钥", en="Sealed key", default="", help=BY_CONSOLE)
    stacks: str = param("text", zh="软件栈目录", en="Folder of the stacks", default="", help=BY_CONSOLE)
    device: str = param("choice", zh="设备", en="Device", default="npu", choices=("npu", "cpu"), help=BY_CONSOLE)
    context: int = param("integer", zh="上下文", en="Context", default=0, least=0, help=BY_CONSOLE)


def locks(p: Params) -> list[str]:
    """One at a time for each engine. The engine itself stays free, so that it can be stopped meanwhile."""
    return [f"benchmark:{p.replica}"]


def targets_of(p: Params) -> bench.Targets:
    return bench.Targets(p.target_concurrency, p.target_ttft_ms, p.target_tpot_ms, p.target_tokens_s, p.percentile)


def degrees_of(p: Params) -> list[int]:
    """Raises BadParams for what does not go together."""
    problems: list[tuple[str, Text]] = []
    found: list[int] = []
    try:
        found = bench.degrees(p.degrees)
    except ValueError:
        most, count = bench.MOST_DEGREE, bench.MOST_DEGREES
        zh = f"须为 1 到 {most} 的整数，最多 {count} 个"
        problems.append(("degrees", Text(zh, f"must be whole numbers from 1 to {most}, at most {count} of them")))
    whole = p.input_len + p.output_len
    if p.context and whole > p.context:
        zh = f"与输出一起是 {whole} 个词元，超过上下文 {p.context}"
        en = f"makes {whole} tokens with the output, more than the context of {p.context}"
        problems.append(("input_len", Text(zh, en)))
    if p.tokenizer and (words := paths.problem(p.tokenizer)):
        problems.append(("tokenizer", words))
    if problems:
        raise BadParams(problems)
    return found


def steps(p: Params) -> list[Step]:
    found = degrees_of(p)
    env = {"BENCHMARK_SEALED": p.sealed}
    words = _words(p)

    def step(title: Text, what: str, timeout_s: float, *more: str, may_fail: bool = False) -> Step:
        argv = python_module(PROGRAM, what, *words, *more)
        return Step(title, argv, env=env, timeout_s=timeout_s, may_fail=may_fail)

    each_s = p.timeout_min * 60.0
    limits = ["--targets", ",".join(map(str, targets_of(p).as_json().values()))]
    ramp = [
        step(Text(f"并发 {one}", f"Concurrency {one}"), "run", each_s, "--degree", str(one), may_fail=True)
        for one in found
    ]
    every = ["--degrees", ",".join(map(str, found))]
    return [
        step(Text("查看引擎", "Look at the engine"), "look", LOOK_S),
        *ramp,
        step(Text("汇总并判定", "Sum up and judge"), "judge", JUDGE_S, *limits, *every),
    ]


def _words(p: Params) -> list[str]:
    values = {"--base-url": p.base_url, "--model": p.model, "--tokenizer": p.tokenizer, "--way": p.way,
              "--prompts": p.prompts, "--input-len": p.input_len, "--output-len": p.output_len, "--seed": p.seed,
              "--stacks": p.stacks or "/", "--device": p.device}  # fmt: skip
    words = [word for name, value in values.items() for word in (name, str(value))]
    return [*words, *(["--ignore-eos"] if p.ignore_eos else [])]


def undo(p: Params) -> list[Step]:
    """Nothing: a benchmark changes nothing on the server."""
    return []
