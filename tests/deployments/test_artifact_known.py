"""The models that are known beforehand, and the arithmetic of what they need."""

import json

import pytest
from django.core.management import call_command

from deployments.artifacts import known, sizes

ROWS = known.built_in().rows


def test_every_row_says_where_it_comes_from_and_has_sensible_numbers():
    assert len(ROWS) > 50 and known.built_in().sources
    for row in ROWS.values():
        assert row.source and row.support.text and not row.site, row.id
        assert row.layers and row.vocab and row.hidden and row.notes.zh.__class__ is row.notes.en.__class__ is str
        assert (row.params_b is None) == (row.weights["bf16"] is None)
        if row.params_b:
            assert row.weights["bf16"] > row.weights["int8"] > row.weights["int4"] > 0, row.id
            assert row.least("int8", 64) is None or row.least("int8", 64) <= (row.least("bf16", 64) or 999)


@pytest.mark.parametrize("row", ROWS.values(), ids=lambda row: row.name)
def test_kv_numbers_are_those_of_the_formula(row):
    found = sizes.kv_bytes_per_token(**{name: getattr(row, name) for name in sizes.KV_FIELDS})
    # None where the source says that no formula fits.
    assert row.kv_bytes_per_token in (None, found), found


@pytest.mark.parametrize(
    ("name", "kind", "card", "count"),
    [
        ("deepseek-ai/DeepSeek-R1", "int8", 64, 16),  # one Atlas 800 A3, or two A2, as the vendor says
        ("deepseek-ai/DeepSeek-R1", "int8", 32, 32), ("Qwen/Qwen3-8B", "bf16", 32, 1),
        ("Qwen/Qwen3-32B", "bf16", 64, 2),
        ("Qwen/Qwen3-32B", "int8", 64, 1), ("Qwen/Qwen2.5-72B-Instruct", "bf16", 64, 4),
        ("moonshotai/Kimi-K2-Instruct", "bf16", 32, None), ("deepseek-ai/DeepSeek-V4-Pro", "bf16", 64, None),
    ],
)  # fmt: skip
def test_least_counts_of_npus(name, kind, card, count):
    assert ROWS[name].least(kind, card) == count


def test_kv_of_gqa_mla_and_hybrids():
    assert sizes.kv_bytes_per_token(36, 8, 128, None, None) == 147_456
    assert sizes.kv_bytes_per_token(61, 128, None, 512, 64) == 70_272
    assert sizes.kv_bytes_per_token(48, 2, 256, None, None, 12) == 24_576
    assert sizes.kv_bytes_per_token(None, 8, 128, None, None) is None
    assert sizes.kv_bytes_per_token(36, None, 128, None, None) is None


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ([], "no object"), ({"id": "a b"}, "id is like"), ({"id": "x/y", "layers": -1}, "layers"),
        ({"id": "x/y", "layers": True}, "layers"), ({"id": "x", "params_b": 0}, "params_b"), ({"id": "x", "p": 1}, "p"),
        ({"id": "x", "quant": [{"type": "W8"}]}, "quant"), ({"id": "x", "quant": [3]}, "quant"),
        ({"id": "x", "support": {"level": "best"}}, "support"), ({"id": "x", "support": 3}, "support"),
        ({"id": "x", "notes": ["a"]}, "notes"), ({"id": "x", "source": 3}, "source"),
        ({"id": "x", "support": {"level": "core", "chips": [1]}}, "support"),
    ],
)  # fmt: skip
def test_a_row_with_a_mistake_names_its_field(row, words):
    with pytest.raises(known.BadRow) as caught:
        known.make(row, site=True)
    assert words in caught.value.text.en and caught.value.text.zh


@pytest.mark.django_db
def test_the_command_prints_the_catalogue(capsys):
    call_command("models", "qwen3-8b")
    text = capsys.readouterr().out
    assert text.splitlines()[1].split()[:4] == ["Qwen/Qwen3-8B", "8.19", "16.38", "9.435"] and "w8a8s" in text
    call_command("models", "--json", "DeepSeek-R1-0528")
    (row,) = json.loads(capsys.readouterr().out)["models"]
    assert row["needs"]["int8"]["npus"] == {"32": 32, "64": 16} and row["kv_bytes_per_token"] == 70272
