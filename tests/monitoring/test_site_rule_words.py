import pytest
from django.utils import translation

from console.errors import Invalid
from monitoring.services import site_rule_words, site_rules

RULE = '[[rule]]\nid = "ours"\nsays = [{}]\nweight = 80\ncause = {{ zh = "甲", en = "a" }}\nremedies = []\n'
TOLD = {
    RULE.format('"{*}a{*}"'): "ours: “{*}a{*}” has no piece of 4 letters without a hole",
    RULE.format('"disk {w:x} of {w:x} broke"'): "ours: “x” stands twice in “disk {w:x} of {w:x} broke”",
    RULE.format('"the pump stands"') * 2: "ours stands twice",
    RULE.format("4"): "ours: says is a list of texts",
    RULE.format('"the pump stands"').replace("ours", "Our Own"): "“Our Own” is no id",
    'off = ["no-such-rule"]\n': "off: there is no rule no-such-rule",
    'a = "b"\n[[rule]\n': "line 2, column 7: ",
    "rule = 4\n": "begin each rule with a line [[rule]]",
}


@pytest.mark.parametrize("text", TOLD)
def test_what_is_wrong_is_told_without_a_stage_that_nobody_wrote(text):
    with translation.override("en"), pytest.raises(Invalid) as refused:
        site_rules.check(text)
    assert refused.value.what.startswith(f"The rules cannot be used: {TOLD[text]}")


@pytest.mark.parametrize("text", TOLD)
def test_each_of_them_is_said_in_words_that_can_be_translated(text, monkeypatch):
    monkeypatch.setattr(site_rule_words, "_", lambda words: f"译{words}")
    with pytest.raises(Invalid) as refused:
        site_rules.check(text)
    assert "译" in refused.value.what


def test_what_has_no_translation_stays_as_it_is():
    assert site_rule_words.told("runtime/ours: something else", "runtime") == "ours: something else"
