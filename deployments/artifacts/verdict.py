"""`python -m deployments.artifacts.verdict --budget PCT --agreement PCT …`: hold the child's answers against its
parent's, and tell each pair and the verdict."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deployments.artifacts import answers, asked, judge, task_scores
from deployments.artifacts.asked import Ask
from deployments.artifacts.judge import Budget, Measured, Pair
from deployments.artifacts.prompts import BadPrompts
from deployments.artifacts.tell import tell
from deployments.stacks.said import FINE, ended
from deployments.steps import Text

NOT_PROVEN: dict[str, Text] = {
    "reference": Text(
        "由 transformers 在 CPU 上以 float32 回答：它证明量化后的权重没有坏，但不证明 NPU 上的算子、速度和 vLLM-Ascend "
        "能否加载。",
        "Transformers answered on the CPU in float32: that shows that the quantized weights are sound, and not that "
        "vLLM-Ascend loads them, what the NPU's operators make of them, or how fast they are.",
    ),
    "vllm": Text(
        "由 vLLM 一次一条地回答：它不证明并发、长上下文或图模式下的表现。",
        "vLLM answered one prompt at a time: that does not show how it does with many at once, long contexts or in "
        "graph mode.",
    ),
}
BOTH_GARBLED = Text(
    "有些提示词，父子模型的回答以同样的方式是乱码（例如随机权重的示例模型），它们不算子模型的错。",
    "To some prompts both models gave answers that are garbled in the same way, as a sample model with random weights "
    "does; they do not count against the child.",
)
MUTE_PARENT = Text(
    "父模型的多数回答本身就是乱码（例如随机权重的示例模型），因此这里不以乱码判定，只看困惑度与词元。",
    "Most of the parent's own answers are garbled, as those of a sample model with random weights: garble is not "
    "judged here, perplexity and tokens are.",
)
NO_LOGPROBS = Text(
    "引擎没有给出对数概率，因此没有困惑度。", "The engine gave no log probabilities, so there is no perplexity."
)


def pairs(ask: Ask, folder: Path) -> tuple[str, list[Text], list[Pair]]:
    """(engine, notes, pairs in the prompts' order). Raises OSError, ValueError, BadPrompts."""
    (head, parent), (child_head, child) = (answers.read(folder / f"{role}.jsonl") for role in asked.ROLES)
    notes = [Text(*one) for one in [*head["notes"], *child_head["notes"]]]
    found = [
        judge.compare(one, parent[one.id], child[one.id])
        for one in ask.every_prompt()
        if one.id in parent and one.id in child
    ]
    return str(child_head["engine"]), notes, found


def _of_garble(measured: Measured) -> list[Text]:
    if not measured.parent_speaks:
        return [MUTE_PARENT]
    return [BOTH_GARBLED] if measured.both_garbled else []


def told(
    ask: Ask, engine: str, notes: Sequence[Text], measured: Measured, budget: Budget, took_s: float
) -> dict[str, Any]:
    """What the console hears of the whole."""
    faults = judge.faults(measured, budget)
    more = [NOT_PROVEN[engine], *_of_garble(measured)]
    more += [NO_LOGPROBS] if measured.perplexity_change_pct is None else []
    return {
        "parent": str(ask.parent), "child": str(ask.child), "engine": engine, "passed": not faults,
        "budget": budget.as_json(), "measured": measured.as_json(), "sentence": judge.sentence(measured, faults),
        "faults": faults, "notes": [*notes, *answers.unlike(ask), *more], "took_s": took_s,
    }  # fmt: skip


def judge_all(ask: Ask, budget: Budget, folder: Path) -> Text:
    """Tell all of it. What went wrong, FINE when nothing did: a child that is not good enough is no failure."""
    try:
        engine, notes, found = pairs(ask, folder)
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        found = []
    if not found:
        return Text(
            "没有可以比较的回答。请看前两步的输出，再重试。",
            "There are no answers to compare. See what the steps before printed, then try again.",
        )
    for n, pair in enumerate(found, 1):
        tell("answer", {"n": n, **pair.as_json()})
    measured = judge.measure(found, task_scores.read(folder))
    whole = told(ask, engine, notes, measured, budget, took_s(folder))
    tell("evaluation", whole)
    print(f"{whole['sentence'].zh} {whole['sentence'].en}", flush=True)
    return FINE


def took_s(folder: Path) -> float:
    """From the first answer to the last."""
    times = [path.stat() for path in folder.glob("*.jsonl")]
    return round(max(0.0, max(one.st_mtime for one in times) - min(one.st_ctime for one in times)), 1) if times else 0.0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="deployments.artifacts.verdict")
    parser.add_argument("--budget", type=float, default=judge.BUDGET_PCT)
    parser.add_argument("--agreement", type=float, default=judge.LEAST_AGREEMENT_PCT)
    asked.add_arguments(parser)
    parsed = parser.parse_args(arguments)
    try:
        return ended(judge_all(asked.from_arguments(parsed), Budget(parsed.budget, parsed.agreement), asked.folder()))
    except BadPrompts as error:
        return ended(error.text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
