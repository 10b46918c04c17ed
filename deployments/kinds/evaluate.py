"""Hold a model against the one it was made from: both answer the same prompts, and what differs is measured.

What the console needs no server for it fills in: where the stacks lie. The verdict is told to the console, which keeps
it as the gate of the artifact; a child that is not good enough makes no failed job.
"""

from dataclasses import dataclass
from pathlib import Path

from deployments.artifacts import asked, judge, paths, task_scores
from deployments.artifacts.engine_failures import MEANS
from deployments.steps import BadParams, Step, Text, param, python_module

TITLE = Text("评测模型", "Evaluate a model")
OWN_PAGE = True
ACTED = True  # on simulated servers
FILLED = ("stacks",)
BY_CONSOLE = Text("由控制台填写。", "The console fills it in.")
INTERRUPTS = Text(
    "两个模型先后加载到选定的 NPU（或内存）上，用后即释放；模型文件只读，不会改动。",
    "The two models are loaded onto the chosen NPUs (or into memory) one after the other and leave them afterwards; "
    "their files are read and never changed.",
)
MOST_PASTED = 10_000  # characters: a job's parameters travel whole
LOOK_S = 120.0
JUDGE_S = 600.0


@dataclass(frozen=True)
class Params:
    child: str = param("artifact", zh="要评测的模型", en="Model to evaluate", pattern=paths.PATH, example=paths.EXAMPLE)
    parent: str = param("artifact", zh="父模型", en="Its parent", pattern=paths.PATH, example=paths.EXAMPLE)
    engine: str = param(
        "choice", zh="引擎", en="Engine", default="auto", choices=asked.ENGINES,
        help=Text("auto：有 NPU 用 vLLM；没有 NPU 而子模型已量化时用“参考”引擎。",
                  "auto: vLLM, or “reference” where the child is quantized and no NPU is chosen."),
    )  # fmt: skip
    npus: list[str] = param("npus", zh="NPU", en="NPUs", default=[])
    prompts: str = param(
        "text", zh="提示词文件", en="File of prompts", default="",
        help=Text("服务器上的 jsonl 文件；留空用自带的提示词。", "A jsonl file on the server; empty: the bundled set."),
    )  # fmt: skip
    pasted: str = param("text", zh="粘贴的提示词", en="Pasted prompts", default="", most_characters=MOST_PASTED)
    max_tokens: int = param(
        "integer", zh="每条回答的词元数", en="Tokens of each answer", default=64, least=1, most=1024
    )
    max_length: int = param("integer", zh="最大长度", en="Greatest length", default=2048, least=128, most=131072)
    dtype: str = param("choice", zh="数据类型", en="Data type", default="auto", choices=asked.DTYPES)
    remote_code: bool = param("flag", zh="执行模型自带的代码", en="Run the model's own code", default=False)
    budget_pct: float = param(
        "number", zh="预算（%）", en="Budget (%)", default=judge.BUDGET_PCT, least=0, most=1000,
        help=Text("困惑度与任务得分最多变差多少（相对）。", "How much worse perplexity and score may be, relative."),
    )  # fmt: skip
    agreement_pct: float = param(
        "number", zh="词元一致率下限（%）", en="Least agreement of tokens (%)", default=judge.LEAST_AGREEMENT_PCT,
        least=0, most=100,
    )  # fmt: skip
    tool: str = param("choice", zh="任务评测工具", en="Tool for a task", default="", choices=task_scores.TOOLS)
    tasks: str = param("text", zh="任务", en="Tasks", default="", pattern=f"({task_scores.TASKS})?")
    limit: int = param("integer", zh="每个任务的题数", en="Questions of each task", default=100, least=0, most=100_000)
    timeout_min: int = param(
        "integer", zh="每个模型的时限（分钟）", en="Minutes for each model", default=120, least=1, most=1440
    )
    stacks: str = param("text", zh="软件栈目录", en="Folder of the stacks", default="", help=BY_CONSOLE)


def locks(p: Params) -> list[str]:
    """The NPUs; models are only read."""
    return [f"npu:{bus_id}" for bus_id in p.npus]


def ask_of(p: Params) -> asked.Ask:
    """Raises BadParams for what does not go together."""
    problems = [(name, words) for name in ("child", "parent") if (words := paths.problem(getattr(p, name)))]
    if p.prompts and (words := paths.problem(p.prompts)):
        problems.append(("prompts", words))
    if p.child == p.parent:
        problems.append(("parent", Text("与要评测的模型相同", "is the model that is evaluated")))
    if p.prompts and p.pasted:
        problems.append(("pasted", Text("与提示词文件只能选一个", "cannot go with a file of prompts")))
    if p.engine == "reference" and p.npus:
        problems.append(("npus", Text("“参考”引擎不用 NPU", "are not used by the engine “reference”")))
    if bool(p.tool) != bool(p.tasks):
        problems.append(("tasks", Text("须与评测工具一起给出", "go with a tool, and a tool with tasks")))
    if problems:
        raise BadParams(problems)
    return asked.Ask(
        Path(p.parent), Path(p.child), Path(p.stacks or "/"), p.engine, p.prompts, p.max_tokens, p.max_length, p.dtype,
        p.remote_code, bool(p.npus), p.timeout_min * 60.0, p.tool, p.tasks, p.limit,
    )  # fmt: skip


def steps(p: Params) -> list[Step]:
    words = asked.argv(ask_of(p))
    env = {asked.PASTED: p.pasted} if p.pasted else {}

    def answers(what: str, title: Text, timeout_s: float, npus: list[str]) -> Step:
        argv = python_module("deployments.artifacts.answers", what, *words)
        return Step(title, argv, npus=npus, env=env, timeout_s=timeout_s, means=MEANS)

    limits = ["--budget", f"{p.budget_pct:g}", "--agreement", f"{p.agreement_pct:g}"]
    judged = python_module("deployments.artifacts.verdict", *limits, *words)
    return [
        answers("look", Text("查看要问什么", "Look what will be asked"), LOOK_S, []),
        answers("parent", Text("父模型回答", "The parent answers"), p.timeout_min * 60.0, p.npus),
        answers("child", Text("子模型回答", "The child answers"), p.timeout_min * 60.0, p.npus),
        Step(Text("比较并判定", "Compare and judge"), judged, env=env, timeout_s=JUDGE_S),
    ]


def undo(p: Params) -> list[Step]:
    """Nothing: an evaluation changes nothing on the server."""
    return []
