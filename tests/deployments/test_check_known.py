"""What could have been known beforehand is looked at."""

import json
import os
from pathlib import Path

import pytest

from deployments.kinds.check_probes import __main__ as program
from tests.deployments.known_beforehand import ITEMS, LATER

CORPUS = Path(os.environ.get("CORPUS_DIR", Path(__file__).parents[3] / "shared" / "corpus")) / "failures.jsonl"


def keys():
    return [probe.key for group in program.GROUPS for probe in program.probes(group)]


def test_every_item_that_is_named_is_one_of_the_check():
    assert set(ITEMS.values()) <= set(keys())
    assert not LATER & ITEMS.keys()


def test_no_two_items_share_a_key():
    assert len(keys()) == len(set(keys()))


@pytest.mark.skipif(not CORPUS.is_file(), reason=f"no corpus of failures at {CORPUS}; set CORPUS_DIR")
def test_each_record_has_an_item_or_cannot_be_known_beforehand():
    ids = {json.loads(line)["id"] for line in CORPUS.read_text(encoding="utf-8").splitlines()}
    assert ids - ITEMS.keys() - LATER == set()
    assert (ITEMS.keys() | LATER) - ids == set()
