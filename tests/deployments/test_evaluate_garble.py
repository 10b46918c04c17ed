"""The detector of garbled answers: it finds what damaged weights give, and leaves healthy answers alone."""

import math

import pytest

from deployments.artifacts import garble
from deployments.artifacts.garble import signs
from deployments.artifacts.prompts import Prompt, bundled

GARBLED = [
    ("", "zh", "empty"),
    ("  \n\t", "en", "empty"),
    ("!!!!!!!!!!!!!!!!!!!!!!!!", "zh", "marks"),
    ("！！！！！！！！！！！！", "zh", "marks"),
    ("! ! ! ! ! ! ! ! ! ! !", "en", "marks"),
    (",,,,,,,,,,,,,,,,,,,,,,,,,,", "en", "marks"),
    ("aaaaaaaaaaaaaaaaaaaaaaaaaa", "en", "repeated"),
    ("答案是的的的的的的的的的的的的的的的的的的的的", "zh", "repeated"),
    ("the the the the the the the the the the the the the the the the the the", "en", "repeated"),
    ("So I think we go on. I do not know. I do not know. I do not know. I do not know. I do not know.", "en", "looped"),
    ("请重新启动服务，请重新启动服务，请重新启动服务，请重新启动服务，请重新启动服务，", "zh", "looped"),
    ("\ufffd\ufffd\ufffdab\ufffd", "zh", "broken"),
    ("\x01\x02\x03\x04 fine", "en", "broken"),
    ("Конечно я могу ответить на этот вопрос", "zh", "script"),
    ("ありがとうございますとてもうれしいです", "en", "script"),
    ("สวัสดีครับยินดีต้อนรับเข้าสู่ระบบ", "en", "script"),
    ("首先检查电源是否连接，然后重新启动服务器", "en", "script"),
    ("quorum lattice vendor stapler pivot mango", "zh", "script"),
]


@pytest.mark.parametrize("text, lang, sign", GARBLED)
def test_garbled_answers_show_their_sign(text, lang, sign):
    assert sign in signs(text, lang)


HEALTHY = [
    "def add(a, b):\n    return a + b\n\n\nprint(add(1, 2))",
    "| name | size |\n|------|------|\n| a    | 1    |\n| b    | 2    |\n--------------------",
    "1. Boil water.\n2. Pour it over the leaves.\n3. Wait three minutes.\n4. Enjoy it.",
    "[1, 1, 1, 1, 1, 1, 1, 1]",
    "Row, row, row your boat, gently down the stream.",
    "Wait...",
    "3.14159265358979323846264338327950288",
    "The angle α is larger than β, and naïve café owners agree.",
    "0\n0\n1\n0\n1\n1\n0\n1",
    "Yes!",
    "for i in range(10):\n        for j in range(10):\n                print(i, j)",
]


@pytest.mark.parametrize("text", HEALTHY)
def test_healthy_answers_show_none(text):
    assert signs(text, "en") == [] and signs(text, "") == []


@pytest.mark.parametrize("prompt", bundled(), ids=lambda one: one.id)
def test_every_good_answer_of_the_bundled_set_is_healthy(prompt):
    assert signs(prompt.reference, garble.expected(prompt)) == []


def test_tokens_and_log_probabilities_are_looked_at_too():
    assert signs("looks fine", "en", (), (-0.1, math.nan)) == ["nan"]
    assert signs("", "en", (), (math.nan,)) == ["empty", "nan"]
    assert signs("x" * 15, "en", ["x"] * 15) == [] and signs("x " * 16, "en", ["x"] * 16) == ["repeated"]
    assert signs("a" + "\n" * 40 + "b", "en", ["a", *["\n"] * 40, "b"]) == []


def test_only_what_the_parent_does_not_show_counts():
    assert garble.of_the_child(["repeated"], ["repeated", "script"]) == ["script"]
    assert garble.expected(Prompt("a", "zh", "code", "写代码")) == "" and garble.expected(bundled()[0]) == "zh"
