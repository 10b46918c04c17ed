"""A benchmark on a simulated server: acted out, told, and marked."""

import json

import pytest

from deployments.demo import acts
from deployments.kinds import benchmark
from deployments.steps import read_params


@pytest.fixture
def steps():
    given = {"replica": 3, "degrees": "1, 16, 64, 200", "base_url": "http://10.0.0.9:18000", "model": "qwen",
             "tokenizer": "/data/models/q", "target_concurrency": 64, "target_tpot_ms": 15}  # fmt: skip
    return benchmark.steps(read_params(benchmark.Params, given))


def acted(step):
    lines, told = [], []
    act = acts.of(step, None)
    while True:
        try:
            said = next(act)
        except StopIteration as end:
            return end.value, lines, told
        if isinstance(said, dict):
            told.append(json.loads(json.dumps(said)))
        elif isinstance(said, str):
            lines.append(said)


def test_each_degree_is_told_and_marked(steps):
    every = [acted(step) for step in steps]
    assert all(ended.code == 0 for ended, _lines, _told in every)
    points = [one["data"] for _ended, _lines, told in every for one in told if one["told"] == "benchmark_point"]
    assert [one["concurrency"] for one in points] == [1, 16, 64, 200]
    rates = [one["output_tokens_s"] for one in points]
    assert rates[0] < rates[1] < rates[2] and rates[3] == pytest.approx(rates[2], rel=0.01)  # it is full
    assert points[3]["ttft_ms"]["p90"] > 3 * points[1]["ttft_ms"]["p90"]
    assert all("simulated" in lines[0] for _ended, lines, _told in every[:-1])
    assert every[-1][2][0]["data"]["degrees"] == [1, 16, 64, 200]
