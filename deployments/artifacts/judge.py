"""Parent and child side by side: how far they agree, what it costs in perplexity and score, and whether that is within
the budget. Pure: from two lists of answers to numbers and a verdict.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from deployments.artifacts import garble
from deployments.artifacts.prompts import Prompt
from deployments.steps import Text

BUDGET_PCT = 2.0  # what perplexity and score may be worse by, relative
# Of the tokens before the first that differs. A sound int8 model has one in fifty otherwise: of 64 tokens 57 % come
# before it; with damaged weights hardly any do.
LEAST_AGREEMENT_PCT = 30.0
MOST_ANSWER, MOST_PROMPT = 9000, 5000  # bytes that travel and are shown, of each answer and the prompt
MOST_PERPLEXITY = 1e12


@dataclass(frozen=True)
class Answer:
    """What one model said. `tokens` are texts, `logprobs` those of the answer, `scored` (sum of log probabilities,
    tokens) of prompt and reference; each is empty or None where the engine gave none."""

    text: str
    tokens: tuple[str, ...] = ()
    logprobs: tuple[float | None, ...] = ()
    scored: tuple[float, int] | None = None

    @property
    def every_logprob(self) -> tuple[float | None, ...]:
        return (*self.logprobs, self.scored[0]) if self.scored else self.logprobs

    @property
    def perplexity(self) -> float | None:
        return perplexity([self.scored]) if self.scored else None


def fitted(text: str, most: int) -> str:
    """As much of the text as takes so many bytes in JSON without other signs than ASCII; `…` where it was cut."""
    taken = 0
    for n, sign in enumerate(text):
        taken += len(json.dumps(sign)) - 2
        if taken > most:
            return f"{text[:n]}…"
    return text


@dataclass(frozen=True)
class Pair:
    """One prompt and both answers. `same_tokens` of `tokens` are equal up to the first that differs, at
    `differs_at`, None where none does; `garbled` are signs of the child that the parent's answer does not show."""

    prompt: Prompt
    parent: Answer
    child: Answer
    equal: bool
    differs_at: int | None
    same_tokens: int
    tokens: int
    garbled: tuple[str, ...]
    both_garbled: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            **{name: getattr(self.prompt, name) for name in ("id", "lang", "kind")},
            "prompt": fitted(self.prompt.prompt, MOST_PROMPT), "parent": fitted(self.parent.text, MOST_ANSWER),
            "child": fitted(self.child.text, MOST_ANSWER), "equal": self.equal, "differs_at": self.differs_at,
            "same_tokens": self.same_tokens, "tokens": self.tokens, "garbled": list(self.garbled),
            "both_garbled": list(self.both_garbled), "parent_perplexity": self.parent.perplexity,
            "child_perplexity": self.child.perplexity,
        }  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """Shares in percent. Perplexities are None where the engine gave no log probabilities; `score` is that of a task
    where one was run: name -> (parent, child)."""

    prompts: int
    equal_pct: float
    token_agreement_pct: float
    first_difference: float | None  # the middle place of the first token that differs, among answers that do
    parent_perplexity: float | None
    child_perplexity: float | None
    perplexity_change_pct: float | None
    garbled: int
    both_garbled: int
    scores: dict[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def parent_speaks(self) -> bool:
        """False where most of the parent's own answers are garbled, as those of a sample model with random weights:
        which of the others are is chance then, and tells nothing of the child."""
        return 2 * self.both_garbled <= self.prompts

    @property
    def score_loss_pct(self) -> float | None:
        """How much worse the child does in the task that suffers most, relative; None where none was run."""
        losses = [100 * (parent - child) / parent for parent, child in self.scores.values() if parent > 0]
        return max(losses, default=None)

    def as_json(self) -> dict[str, Any]:
        loss = self.score_loss_pct
        return {**asdict(self), "score_loss_pct": None if loss is None else round(loss, 4)}


@dataclass(frozen=True)
class Budget:
    """`worse_pct` for perplexity and score, `agreement_pct` for tokens."""

    worse_pct: float = BUDGET_PCT
    agreement_pct: float = LEAST_AGREEMENT_PCT

    def as_json(self) -> dict[str, float]:
        return asdict(self)


def compare(prompt: Prompt, parent: Answer, child: Answer) -> Pair:
    ours, theirs = _tokens(parent), _tokens(child)
    same = _same(ours, theirs)
    longest = max(len(ours), len(theirs))
    lang = garble.expected(prompt)
    parent_signs, child_signs = (garble.signs(one.text, lang, one.tokens, one.every_logprob) for one in (parent, child))
    equal = parent.text == child.text
    return Pair(
        prompt, parent, child, equal, None if equal or same == longest else same, longest if equal else same, longest,
        tuple(garble.of_the_child(parent_signs, child_signs)),
        tuple(name for name in child_signs if name in parent_signs),
    )  # fmt: skip


def _tokens(answer: Answer) -> tuple[str, ...]:
    """Tokens where the engine told them, else characters."""
    return answer.tokens or tuple(answer.text)


def _same(one: Sequence[str], other: Sequence[str]) -> int:
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def perplexity(scored: Sequence[tuple[float, int]]) -> float | None:
    """Over all tokens together; None where there are none, infinite where the model holds one for impossible."""
    total, count = sum(one for one, _n in scored), sum(n for _one, n in scored)
    if not count or math.isnan(total):
        return None
    return min(MOST_PERPLEXITY, math.exp(min(100.0, -total / count)))


def measure(pairs: Sequence[Pair], scores: dict[str, tuple[float, float]] | None = None) -> Measured:
    """The numbers of a whole set, which is not empty. Perplexity is taken over prompts that both have scored."""
    both = [one for one in pairs if one.parent.scored and one.child.scored]
    parent = perplexity([one.parent.scored for one in both if one.parent.scored])
    child = perplexity([one.child.scored for one in both if one.child.scored])
    places = sorted(one.differs_at for one in pairs if one.differs_at is not None)
    tokens = sum(one.tokens for one in pairs)
    return Measured(
        prompts=len(pairs),
        equal_pct=_pct(sum(one.equal for one in pairs), len(pairs)),
        token_agreement_pct=_pct(sum(one.same_tokens for one in pairs), tokens) if tokens else 100.0,
        first_difference=_middle(places),
        parent_perplexity=parent,
        child_perplexity=child,
        perplexity_change_pct=100 * (child - parent) / parent if parent and child else None,
        garbled=sum(bool(one.garbled) for one in pairs),
        both_garbled=sum(bool(one.both_garbled) and not one.garbled for one in pairs),
        scores=dict(scores or {}),
    )


def _pct(part: int, whole: int) -> float:
    return round(100 * part / whole, 4) if whole else 0.0


def _middle(places: Sequence[int]) -> float | None:
    if not places:
        return None
    half = len(places) // 2
    return float(places[half]) if len(places) % 2 else (places[half - 1] + places[half]) / 2


def faults(measured: Measured, budget: Budget) -> list[Text]:
    """Why the child is not within the budget; [] where it is. What was not measured neither helps nor harms, but one
    of perplexity and score must have been measured, or every answer be equal."""
    found: list[Text] = []
    if measured.garbled and (measured.parent_speaks or measured.perplexity_change_pct is None):
        count = measured.garbled
        found.append(
            Text(f"{count} 条回答是乱码，而父模型的不是", f"answers garbled where the parent's are not: {count}")
        )
    change, loss = measured.perplexity_change_pct, measured.score_loss_pct
    if change is not None and change > budget.worse_pct:
        found.append(
            Text(
                f"困惑度上升 {change:.2f} %，预算为 {budget.worse_pct:g} %",
                f"perplexity rose by {change:.2f} %, and the budget is {budget.worse_pct:g} %",
            )
        )
    if loss is not None and loss > budget.worse_pct:
        found.append(
            Text(
                f"任务得分下降 {loss:.2f} %，预算为 {budget.worse_pct:g} %",
                f"the task's score fell by {loss:.2f} %, and the budget is {budget.worse_pct:g} %",
            )
        )
    agreement = measured.token_agreement_pct
    if agreement < budget.agreement_pct:
        found.append(
            Text(
                f"词元一致率为 {agreement:.1f} %，至少须为 {budget.agreement_pct:g} %",
                f"{agreement:.1f} % of the tokens agree, and {budget.agreement_pct:g} % have to",
            )
        )
    if change is None and loss is None and measured.equal_pct < 100:
        found.append(Text("没有测得困惑度或任务得分", "neither perplexity nor the score of a task could be measured"))
    return found


def sentence(measured: Measured, faults: Sequence[Text]) -> Text:
    """The verdict in one sentence."""
    change = measured.perplexity_change_pct
    share = f"{measured.token_agreement_pct:.1f} %"
    zh, en = f"词元一致率 {share}", f"{share} of the tokens agree"
    if change is not None:
        zh, en = f"{zh}，困惑度变化 {change:+.2f} %", f"{en} and perplexity changed by {change:+.2f} %"
    if not faults:
        return Text(f"通过：{zh}，在预算之内。", f"Passed: {en}, within the budget.")
    return Text(f"未通过：{'；'.join(one.zh for one in faults)}。", f"Not passed: {'; '.join(f.en for f in faults)}.")
