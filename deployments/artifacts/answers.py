"""`python -m deployments.artifacts.answers look|parent|child …`: have one model of an evaluation answer its prompts.

`look` says beforehand what will be asked and whether it can be. The answers go into a file of the attempt's folder,
from which `verdict` takes them.
"""

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deployments.artifacts import asked, config, reference_engine, task_scores, vllm_engine
from deployments.artifacts.asked import Ask, CannotAnswer
from deployments.artifacts.judge import Answer
from deployments.artifacts.processes import Stopped, stop_by_signals
from deployments.artifacts.prompts import BadPrompts, Prompt
from deployments.stacks.said import FINE, ended
from deployments.steps import Text

STOPPED = 130


def look(ask: Ask) -> Text:
    """Say what will be asked. What is in the way, FINE when nothing is."""
    problem = asked.problems(ask)
    if problem is not None:
        return problem
    prompts = ask.every_prompt()
    chinese = sum(one.lang == "zh" for one in prompts)
    scored = sum(bool(one.reference) for one in prompts)
    print(f"engine: {ask.chosen()}")
    print(f"prompts: {len(prompts)} ({chinese} zh, {len(prompts) - chinese} en; {scored} with a good answer)")
    for role in asked.ROLES:
        print(f"{role}: {ask.model(role)}" + (" (quantized)" if asked.is_quantized(ask.model(role)) else ""))
    for words in unlike(ask):
        print(f"{words.zh} {words.en}", flush=True)
    return FINE


def unlike(ask: Ask) -> list[Text]:
    """In what the two do not look like parent and child."""
    parent, child = (config.as_far_as_read(ask.model(role)) for role in asked.ROLES)
    different = [
        name for name in ("architectures", "hidden_size", "num_hidden_layers", "vocab_size")
        if parent.get(name) != child.get(name)
    ]  # fmt: skip
    if not different:
        return []
    names = ", ".join(different)
    return [
        Text(
            f"注意：两个模型的 {names} 不同，看起来不是父子关系；结果仍会给出。",
            f"Note: the two differ in {names}, so one does not look like the other's parent; they are compared all the "
            "same.",
        )
    ]


def ask_one(ask: Ask, role: str, folder: Path) -> Text:
    """Have the model answer every prompt. What went wrong, FINE when nothing did."""
    problem = asked.problems(ask, (role,))
    if problem is not None:
        return problem
    folder.mkdir(exist_ok=True)
    out = folder / f"{role}.jsonl"
    prompts = ask.every_prompt()
    if ask.chosen() == "reference":
        reference_engine.answer_all(ask, role, prompts, out)
        task_scores.not_by_reference(ask)
        return FINE
    model = ask.model(role)
    with vllm_engine.serving(ask, model, quantized=asked.is_quantized(model)) as server:
        write(out, "vllm", [])
        _ask_all(server, prompts, ask.max_tokens, out)
        task_scores.run(ask, role, server.port, server.key, folder)
    return FINE


def _ask_all(server: vllm_engine.Server, prompts: Sequence[Prompt], max_tokens: int, out: Path) -> None:
    began = time.monotonic()
    with out.open("a", encoding="utf-8", buffering=1) as file:
        for n, prompt in enumerate(prompts, 1):
            answer = vllm_engine.answer(server, prompt.prompt, prompt.reference, max_tokens)
            file.write(json.dumps({"id": prompt.id, **dataclasses.asdict(answer)}) + "\n")
            print(f"prompt {n} of {len(prompts)}, {time.monotonic() - began:.0f} s", flush=True)


def write(out: Path, engine: str, notes: Sequence[Text]) -> None:
    """The first line of a file of answers."""
    out.write_text(json.dumps({"engine": engine, "notes": notes}) + "\n", encoding="utf-8")


def read(path: Path) -> tuple[dict[str, Any], dict[str, Answer]]:
    """(what it was answered with, id -> answer). Raises OSError, ValueError."""
    first, *rows = path.read_text(encoding="utf-8").splitlines()
    found = {}
    for row in map(json.loads, rows):
        scored = row["scored"]
        found[row["id"]] = Answer(
            row["text"], tuple(row["tokens"]), tuple(row["logprobs"]), (scored[0], scored[1]) if scored else None
        )
    return json.loads(first), found


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="deployments.artifacts.answers")
    parser.add_argument("what", choices=("look", *asked.ROLES))
    asked.add_arguments(parser)
    parsed = parser.parse_args(arguments)
    ask = asked.from_arguments(parsed)
    stop_by_signals()
    try:
        return ended(look(ask) if parsed.what == "look" else ask_one(ask, parsed.what, asked.folder()))
    except (BadPrompts, CannotAnswer) as error:
        return ended(error.text)
    except Stopped:
        return STOPPED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
