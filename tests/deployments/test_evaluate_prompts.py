"""Sets of prompts: the bundled one, and what people write themselves."""

import json

import pytest

from deployments.artifacts import prompts
from deployments.artifacts.prompts import BadPrompts, bundled, parse, read


def test_the_bundled_set_is_chinese_and_english_in_equal_parts():
    every = bundled()
    assert 40 <= len(every) <= 60 and len({one.id for one in every}) == len(every)
    assert [sum(one.lang == lang for one in every) for lang in ("zh", "en")] == [24, 24]
    assert {"reasoning", "fact", "code", "translation", "format"} <= {one.kind for one in every}
    assert all(one.reference.strip() and prompts.language(one.prompt) in (one.lang, "zh") for one in every)
    assert parse(prompts.BUNDLED.read_text(encoding="utf-8").replace("[\n", "").replace("\n]", "").replace("},", "}"))


def test_lines_are_texts_or_objects_and_empty_ones_are_left_out():
    first, second, third = parse(
        '  你好，请介绍一下自己  \n\n"How are you?"\n{"prompt": "1+1=", "id": "sum", "lang": "en"}\n'
    )
    assert (first.id, first.lang, first.prompt) == ("line-1", "zh", "你好，请介绍一下自己")
    assert (second.id, second.lang, second.prompt) == ("line-3", "en", "How are you?")
    assert (third.id, third.lang, third.reference) == ("sum", "en", "")


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "There are no prompts"),
        ("fine\n{broken", "Line 2 of the prompts is no valid JSON"),
        ('{"prompt": 3}', "Line 1 of the prompts must be a text"),
        ('["a"]', "Line 1 of the prompts must be a text"),
        ('fine\n\n{"question": "a"}', "Line 3 of the prompts has “question”"),
        ('{"prompt": " "}', "Line 1 of the prompts has no prompt"),
        ('{"prompt": "a", "lang": "fr"}', "Line 1 of the prompts must have zh or en"),
        (
            '{"prompt": "a", "id": "x"}\n{"prompt": "b", "id": "x"}',
            "Line 2 of the prompts has the id “x” a second time",
        ),
        ("a" * 8001, "Line 1 of the prompts has a prompt above 8000"),
        ('{"prompt": "\\ud800"}', "holds characters that cannot be sent"),
        ("a\n" * 501, "more than 500 prompts"),
        ("长" * 1_400_000, "larger than 4 MiB"),
        ("[" * 100_000, "is no valid JSON"),
    ],
)
def test_a_bad_set_is_answered_with_the_line(text, words):
    with pytest.raises(BadPrompts) as caught:
        parse(text)
    assert words in caught.value.text.en and caught.value.text.zh


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    for path, words in ((tmp_path / "none", "cannot be read"), (tmp_path, "cannot be read")):
        with pytest.raises(BadPrompts, match=words):
            read(path)
    bad = tmp_path / "bad.jsonl"
    bad.write_bytes(b'"fine"\n\xff\xfe\n')
    with pytest.raises(BadPrompts, match="Line 2 of the prompts is no UTF-8 text"):
        read(bad)
    good = tmp_path / "提示 词.jsonl"
    good.write_text("\ufeff" + json.dumps("hello"), encoding="utf-8")
    assert [one.prompt for one in read(good)] == ["hello"]
