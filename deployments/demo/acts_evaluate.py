"""An evaluation acted out: both models answer the prompts of the set, the child nearly like its parent.

The answers come from the good ones of the set, and which of them differ from the models' paths, so that the same two
always end alike. A child whose path says `broken` has gone wrong: its answers are garbled.
"""

import argparse
import hashlib
import os
from collections.abc import Mapping, Sequence

from deployments.artifacts import asked, judge, prompts, verdict
from deployments.artifacts.judge import Answer, Budget, Pair
from deployments.artifacts.prompts import BadPrompts, Prompt
from deployments.demo.scene import DONE, Act, Ended, Told
from deployments.steps import Text

NAMES = ("deployments.artifacts.answers", "deployments.artifacts.verdict")
STARTS_S, PROMPT_S = 25.0, 0.8
BROKEN = "broken"
SIMULATED = Text(
    "模拟服务器：回答和数字是演示出来的，没有任何模型被加载。",
    "A simulated server: answers and numbers are acted out, and no model was loaded.",
)


def of(name: str, words: Sequence[str], env: Mapping[str, str]) -> Act:
    """A step of the kind `evaluate`."""
    if name == NAMES[1]:
        return _verdict(words, env)
    return _look(words, env) if words[0] == "look" else _answers(words, env)


def _ask(words: Sequence[str]) -> tuple[asked.Ask, Budget]:
    parser = argparse.ArgumentParser()
    parser.add_argument("--budget", type=float, default=judge.BUDGET_PCT)
    parser.add_argument("--agreement", type=float, default=judge.LEAST_AGREEMENT_PCT)
    asked.add_arguments(parser)
    parsed = parser.parse_args([word for word in words if word not in ("look", *asked.ROLES)])
    return asked.from_arguments(parsed), Budget(parsed.budget, parsed.agreement)


def _prompts(env: Mapping[str, str]) -> list[Prompt]:
    """Those pasted, else the bundled ones: a simulated server has no file of prompts."""
    return prompts.parse(env[asked.PASTED]) if env.get(asked.PASTED) else prompts.bundled()


def _look(words: Sequence[str], env: Mapping[str, str]) -> Act:
    ask, _budget = _ask(words)
    try:
        every = _prompts(env)
    except BadPrompts as error:
        return Ended(1, error.text)
    yield f"engine: {_engine(ask)}"
    yield f"prompts: {len(every)}"
    for role in asked.ROLES:
        yield f"{role}: {ask.model(role)}"
    return DONE


def _engine(ask: asked.Ask) -> str:
    return ask.engine if ask.engine != "auto" else "vllm"


def _answers(words: Sequence[str], env: Mapping[str, str]) -> Act:
    ask, _budget = _ask(words)
    every = _prompts(env)
    yield f"simulated: {_engine(ask)} loads {ask.model(words[0])}"
    yield STARTS_S
    for n, _prompt in enumerate(every, 1):
        yield PROMPT_S
        yield f"prompt {n} of {len(every)}, {STARTS_S + n * PROMPT_S:.0f} s"
    return DONE


def _verdict(words: Sequence[str], env: Mapping[str, str]) -> Act:
    ask, budget = _ask(words)
    found = [_pair(ask, one) for one in _prompts(env)]
    for n, pair in enumerate(found, 1):
        yield Told(told="answer", data={"n": n, **pair.as_json()})
    took_s = 2 * (STARTS_S + PROMPT_S * len(found))
    whole = verdict.told(ask, _engine(ask), [SIMULATED], judge.measure(found), budget, took_s)
    yield Told(told="evaluation", data={**whole, "notes": [list(one) for one in whole["notes"]]})
    yield " ".join(whole["sentence"])
    return DONE


def _chance(*words: object) -> float:
    """From 0 to 1, always the same for the same words."""
    digest = hashlib.sha256(os.fsencode(" ".join(map(str, words)))).digest()
    return int.from_bytes(digest[:4], "big") / 2**32


def _pair(ask: asked.Ask, prompt: Prompt) -> Pair:
    """The parent gives the good answer; one child in eight leaves it at some place."""
    good = prompt.reference or f" {prompt.prompt}"
    tokens = [good[n : n + 2] for n in range(0, len(good), 2)]
    loss = -1.2 - 0.8 * _chance(ask.parent, prompt.id)
    parent = Answer(good, tuple(tokens), scored=(loss * len(tokens), len(tokens)))
    count = len(tokens)
    if BROKEN in str(ask.child):
        return judge.compare(prompt, parent, Answer("!" * 32, ("!",) * 32, scored=(-9.0 * count, count)))
    worse = loss * (1 + 0.008 * _chance(ask.child, prompt.id))
    if _chance(ask.child, prompt.id, "differs") < 0.125:
        at = 1 + int(_chance(ask.child, prompt.id, "where") * (len(tokens) - 1))
        tokens = [*tokens[:at], "…"]
    return judge.compare(prompt, parent, Answer("".join(tokens), tuple(tokens), scored=(worse * count, count)))
