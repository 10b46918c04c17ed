"""From answers to numbers and a verdict."""

import dataclasses
import json
import math

import pytest

from deployments.artifacts import judge
from deployments.artifacts.judge import Answer, Budget, compare, measure
from deployments.artifacts.prompts import Prompt

PROMPT = Prompt("p", "en", "", "The sky is")


def said(words, *, scored=None):
    tokens = tuple(f" {word}" for word in words.split())
    return Answer("".join(tokens), tokens, (-0.5,) * len(tokens), scored)


def test_agreement_is_counted_up_to_the_first_token_that_differs():
    same = compare(PROMPT, said("blue and wide"), said("blue and wide"))
    assert (same.equal, same.differs_at, same.same_tokens, same.tokens) == (True, None, 3, 3)
    other = compare(PROMPT, said("blue and wide"), said("blue or wide"))
    assert (other.equal, other.differs_at, other.same_tokens, other.tokens) == (False, 1, 1, 3)
    shorter = compare(PROMPT, said("blue and wide"), said("blue"))
    assert (shorter.differs_at, shorter.same_tokens, shorter.tokens) == (1, 1, 3)
    measured = measure([same, other, shorter])
    assert measured.equal_pct == pytest.approx(33.3333) and measured.token_agreement_pct == pytest.approx(55.5556)
    assert measured.first_difference == 1.0 and measured.perplexity_change_pct is None


def test_without_tokens_characters_are_compared():
    pair = compare(PROMPT, Answer("blue"), Answer("blot"))
    assert (pair.differs_at, pair.same_tokens, pair.tokens) == (2, 2, 4)


def test_perplexity_is_that_of_all_tokens_together():
    pairs = [
        compare(PROMPT, said("a", scored=(-10.0, 10)), said("a", scored=(-11.0, 10))),
        compare(PROMPT, said("a", scored=(-90.0, 30)), said("a", scored=(-90.0, 30))),
        compare(PROMPT, said("a", scored=(-1.0, 1)), said("a")),  # only one of both was scored
    ]
    measured = measure(pairs)
    assert measured.parent_perplexity == pytest.approx(math.exp(2.5))
    assert measured.child_perplexity == pytest.approx(math.exp(101 / 40))
    assert measured.perplexity_change_pct == pytest.approx(100 * (math.exp(0.025) - 1))
    assert judge.perplexity([(-math.inf, 4)]) == judge.MOST_PERPLEXITY and judge.perplexity([]) is None


@pytest.mark.parametrize("worse, passes", [(1.9, True), (2.0, True), (2.1, False), (-30.0, True)])
def test_the_budget_is_relative_and_editable(worse, passes):
    child = -10 * math.log(math.e * (1 + worse / 100))
    measured = measure([compare(PROMPT, said("a b", scored=(-10.0, 10)), said("a b", scored=(child, 10)))])
    assert measured.perplexity_change_pct == pytest.approx(worse)
    limit = Budget(2.0 + 1e-9)
    assert (judge.faults(measured, limit) == []) is passes and judge.faults(measured, Budget(2.2)) == []


def test_the_score_of_a_task_counts_like_perplexity():
    pair = compare(PROMPT, said("a"), said("a"))
    good, bad = (measure([pair], {"gsm8k": (0.5, score)}) for score in (0.495, 0.40))
    assert judge.faults(good, Budget()) == [] and good.score_loss_pct == pytest.approx(1.0)
    (fault,) = judge.faults(bad, Budget())
    assert "the task's score fell by 20.00 %" in fault.en and bad.as_json()["score_loss_pct"] == 20.0


def test_garble_fails_only_where_the_parent_is_fine():
    healthy, marks = said("blue and wide"), Answer("!!!!!!!!!!!!!!!!")
    broken = measure([compare(PROMPT, healthy, marks)])
    assert (
        broken.garbled == 1
        and "answers garbled where the parent's are not: 1" in judge.faults(broken, Budget(agreement_pct=0))[0].en
    )
    both = measure([compare(PROMPT, marks, marks)])
    assert (both.garbled, both.both_garbled) == (0, 1) and judge.faults(both, Budget()) == []
    lost = measure([compare(PROMPT, said("a", scored=(-2.0, 2)), said("a", scored=(math.nan, 2)))])
    assert lost.garbled == 1 and lost.perplexity_change_pct is None


def test_nothing_measured_is_no_pass_unless_every_answer_is_equal():
    other = measure([compare(PROMPT, said("a b c"), said("a b d"))])
    assert any("neither perplexity nor the score" in one.en for one in judge.faults(other, Budget()))
    assert judge.faults(measure([compare(PROMPT, said("a"), said("a"))]), Budget()) == []


def test_the_verdict_is_one_sentence():
    good = measure([compare(PROMPT, said("a b", scored=(-2.0, 2)), said("a b", scored=(-2.0, 2)))])
    en = judge.sentence(good, []).en
    assert en.startswith("Passed: 100.0 % of the tokens agree and perplexity changed by +0.00 %")
    bad = measure([compare(PROMPT, said("a b"), said("c d"))])
    text = judge.sentence(bad, judge.faults(bad, Budget()))
    assert text.en.startswith("Not passed: 0.0 % of the tokens agree, and 30 % have to;") and text.zh.startswith(
        "未通过"
    )


def test_a_pair_always_fits_into_what_can_travel():
    monster = Answer("😀长\x00" * 20_000)
    row = compare(Prompt("p" * 60, "zh", "k" * 40, "问" * 8000), monster, Answer("乱" * 60_000)).as_json()
    assert len(json.dumps({"told": "answer", "data": {"n": 500, **row}})) < 30_000
    assert row["parent"].endswith("…") and row["child"].startswith("乱乱") and judge.fitted("短", 50) == "短"


def test_garble_tells_nothing_where_the_parent_itself_does_not_speak():
    mute = judge.Measured(48, 45.0, 60.0, 8.0, 1269.0, 1270.0, 0.07, garbled=4, both_garbled=41)
    assert judge.faults(mute, Budget()) == [] and not mute.parent_speaks
    speaks = dataclasses.replace(mute, both_garbled=24)
    assert "4" in judge.faults(speaks, Budget())[0].en
    damaged = dataclasses.replace(mute, perplexity_change_pct=71.0, token_agreement_pct=3.0)
    assert len(judge.faults(damaged, Budget())) == 2
    assert judge.faults(dataclasses.replace(mute, perplexity_change_pct=None), Budget())  # NaN is no chance
