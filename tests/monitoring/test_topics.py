"""What a socket that is too slow for the fleet's changes gets instead of them."""

import json
import re
from itertools import pairwise

import pytest

from console import streams
from console.message import made
from console.redis import client
from monitoring import topics
from monitoring.services.fleet_steps import data_of, delta, read_steps, write_steps


def steps_message(generation, before, after, seq):
    return made("fleet:temp_c", "steps", data_of(generation, delta(before, after)), seq)


def test_pairs_are_read_as_they_are_written():
    before, after = [0] * 300, [n % 17 for n in range(300)]
    changed = delta(before, after)
    assert changed == {place: step for place, step in enumerate(after) if step}
    assert read_steps(write_steps(changed)) == changed


def test_changes_of_steps_add_up():
    states = [[0, 0, 0, 0], [5, 0, 0, 1], [5, 0, 16, 2], [6, 0, 16, 2]]
    messages = [steps_message(9, *pair, seq=n) for n, pair in enumerate(pairwise(states))]
    (merged,) = topics.merge_steps(messages)
    assert (merged.topic, merged.seq, merged.data["gen"]) == ("fleet:temp_c", 2, 9)
    assert merged.data == data_of(9, {0: 6, 2: 16, 3: 2})


def test_changes_of_an_older_layout_are_forgotten():
    messages = [steps_message(8, [0] * 900, [3] * 900, 1), steps_message(9, [0, 0], [0, 4], 2)]
    (merged,) = topics.merge_steps(messages)
    assert merged.data == data_of(9, {1: 4})


def test_rows_add_up():
    rows = [{"1": [10, 5, 40, 90], "2": [0, 0, 30, 70]}, {"1": [None] * 4}]
    (merged,) = topics.merge_rows([made("fleet:rows", "rows", data, seq) for seq, data in enumerate(rows)])
    assert merged.data == {"1": [None] * 4, "2": [0, 0, 30, 70]}


@pytest.mark.usefixtures("valkey")
def test_who_joins_gets_every_cell_and_the_layout():
    client().hset(streams.FLEET_STEPS, "aicore_pct", json.dumps({"gen": 77, "steps": "0fg"}))
    (told,) = topics.steps_present(re.match(r"fleet:(?P<metric>.*)", "fleet:aicore_pct")).messages
    assert told == ("steps", data_of(77, {0: 0, 1: 15, 2: 16}), None)
    assert topics.layout_present(None).messages == [("layout", {"gen": 77}, None)]


@pytest.mark.usefixtures("valkey")
def test_before_the_first_sample_there_is_nothing_to_tell():
    assert not topics.steps_present(re.match(r"fleet:(?P<metric>.*)", "fleet:temp_c")).messages
    assert not topics.layout_present(None).messages
