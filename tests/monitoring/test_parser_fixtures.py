"""Own fixtures: the layouts of real captures with values of their own, the true values beside each."""

import json
from pathlib import Path

import pytest

from monitoring import parsers

FIXTURES = Path(__file__).parents[1] / "fixtures"
TRUTHS = sorted(path for folder in ("npu_smi", "hccn", "host") for path in (FIXTURES / folder).glob("*.json"))
FOLDERS = {"npu_smi": "npu-smi-", "hccn": "hccn-", "host": ""}


def parser_of(truth: Path) -> str:
    """Of the names of all parsers, the longest that the file's own name begins with."""
    prefix = FOLDERS[truth.parent.name]
    name = prefix + truth.stem.replace("_", "-")
    return max((known for known in parsers.names() if name.startswith(known)), key=len)


@pytest.mark.parametrize("truth", TRUTHS, ids=lambda path: path.stem)
def test_a_fixture_reads_as_the_values_beside_it(truth):
    text = truth.with_suffix(".txt").read_bytes().decode()
    assert parsers.load(parser_of(truth)).parse(text).as_json() == json.loads(truth.read_text(encoding="utf-8"))


def test_every_text_has_its_truth():
    texts = [path for folder in FOLDERS for path in (FIXTURES / folder).glob("*.txt")]
    assert len(texts) > 30
    assert all(path.with_suffix(".json").exists() for path in texts)
