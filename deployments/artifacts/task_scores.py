"""The score of a task by lm_eval or evalscope, where the operator has put one into the stack's environment.

Neither comes with a stack; where it is missing, the evaluation goes on and says so. The tool asks the server that runs.
"""

import json
import sys
from pathlib import Path
from typing import Any

from deployments.artifacts.asked import Ask
from deployments.artifacts.processes import environment, running
from deployments.stacks.cann_layer import with_env
from deployments.steps import Text

TOOLS = ("", "lm_eval", "evalscope")
NAME = "evaluated"  # what the server calls the model
TASKS = r"[A-Za-z0-9_][A-Za-z0-9_,.-]{0,199}"
MOST_FILE = 8 * 1024 * 1024
FIRST = ("exact_match,flexible-extract", "exact_match,strict-match", "acc_norm,none", "acc,none", "exact_match,none")


def arguments(ask: Ask, role: str, port: int, key: str, folder: Path) -> list[str]:
    """How the tool is called, by its own documentation. lm_eval reads the key from a variable; evalscope takes it on
    the command line only. It is good for this server, for as long as that lives."""
    base = f"http://127.0.0.1:{port}/v1"
    if ask.tool == "lm_eval":
        model = f"model={NAME},base_url={base}/completions,tokenizer={ask.model(role)},tokenized_requests=False"
        argv = ["python", "-m", "lm_eval", "--model", "local-completions", "--tasks", ask.tasks, "--model_args", model,
                "--output_path", str(folder)]  # fmt: skip
    else:
        argv = ["evalscope", "eval", "--model", NAME, "--api-url", base, "--eval-type", "openai_api", "--api-key", key,
                "--datasets", *ask.tasks.split(","), "--work-dir", str(folder)]  # fmt: skip
    return argv + (["--limit", str(ask.limit)] if ask.limit else [])


def run(ask: Ask, role: str, port: int, key: str, folder: Path) -> None:
    """Leave the scores in `<role>.scores.json`, task -> score; nothing where no tool is there or it failed."""
    if not ask.tool:
        return
    if not is_there(ask):
        _say(missing(ask.tool))
        return
    if "," in str(ask.model(role)):
        _say(comma(ask.model(role)))
        return
    own = folder / f"{role}-task"
    argv = arguments(ask, role, port, key, own)
    print(" ".join("…" if word == key else word for word in argv), flush=True)
    env = {**environment(), "OPENAI_API_KEY": key, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    del env["HF_HUB_OFFLINE"], env["TRANSFORMERS_OFFLINE"]  # a task's questions may come from the operator's mirror
    with running(with_env([str(ask.activate)], argv), env) as program:
        code = program.process.wait()
    found = scores(own)
    if code or not found:
        _say(failed(ask.tool, code))
        return
    (folder / f"{role}.scores.json").write_text(json.dumps(found), encoding="utf-8")


def is_there(ask: Ask) -> bool:
    name = "lm_eval" if ask.tool == "lm_eval" else "evalscope"
    return any((ask.current / "venv").glob(f"lib/python3*/site-packages/{name}"))


def not_by_reference(ask: Ask) -> None:
    if ask.tool:
        _say(
            Text(
                "任务得分需要 vLLM 服务；“参考”引擎没有服务，因此没有测。",
                "The score of a task needs a server of vLLM; the engine “reference” has none, so it was not measured.",
            )
        )


def scores(folder: Path) -> dict[str, float]:
    """Task -> score out of the tool's result files; {} where there are none that can be read."""
    found: dict[str, float] = {}
    for path in sorted(folder.rglob("*.json")) if folder.is_dir() else []:
        try:
            data = json.loads(path.read_bytes()[:MOST_FILE])
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(data, dict):
            found |= _of_lm_eval(data) | _of_evalscope(data)
    return found


def _of_lm_eval(data: dict[str, Any]) -> dict[str, float]:
    """`{"results": {task: {"exact_match,strict-match": 0.5, …}}}`."""
    results = data.get("results")
    rows = results.items() if isinstance(results, dict) else ()
    picked = ((task, next((row[n] for n in FIRST if _is_score(row.get(n))), None)) for task, row in rows
              if isinstance(row, dict))  # fmt: skip
    return {str(task)[:60]: float(score) for task, score in picked if score is not None}


def _of_evalscope(data: dict[str, Any]) -> dict[str, float]:
    """`{"dataset_name": task, "score": 0.5, …}` of a report."""
    name, score = data.get("dataset_name"), data.get("score")
    return {name[:60]: float(score)} if isinstance(name, str) and _is_score(score) and score is not None else {}


def _is_score(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1000


def read(folder: Path) -> dict[str, tuple[float, float]]:
    """Task -> (parent, child) of those that both have."""
    both: list[dict[str, float]] = []
    for role in ("parent", "child"):
        try:
            both.append(json.loads((folder / f"{role}.scores.json").read_text(encoding="utf-8")))
        except (OSError, ValueError):
            both.append({})
    return {name: (both[0][name], both[1][name]) for name in both[0] if name in both[1]}


def missing(tool: str) -> Text:
    return Text(
        f"在用的软件栈里没有 {tool}，因此没有任务得分。需要时请在该环境里安装它，再评测一次。",
        f"The stack in use has no {tool}, so there is no score of a task. Install it into that environment if you want "
        "one, then evaluate again.",
    )


def comma(path: Path) -> Text:
    return Text(
        f"{path} 含有逗号，评测工具的参数无法表示它，因此没有任务得分。",
        f"{path} holds a comma, which the tool's arguments cannot carry, so there is no score of a task.",
    )


def failed(tool: str, code: int) -> Text:
    return Text(
        f"{tool} 没有给出得分（退出码 {code}）；其余测量继续。请看它的输出。",
        f"{tool} gave no score (exit code {code}); the other measures go on. See what it printed.",
    )


def _say(words: Text) -> None:
    print(f"{words.zh} {words.en}", file=sys.stderr, flush=True)
