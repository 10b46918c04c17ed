"""The steps of a benchmark, what is made of result files, and the verdict."""

import pytest

from deployments.agent import bench as program
from deployments.kinds import benchmark
from deployments.serving import bench
from deployments.serving.bench import Ask, Point, Targets
from deployments.steps import BadParams, Text

ASK = Ask("http://10.0.0.9:18003", "qwen", "/data/models/q", prompts=10, input_len=200, output_len=50, seed=3)
RESULT = {
    "num_prompts": 24, "completed": 24, "failed": 0, "duration": 4.25, "request_throughput": 5.647,
    "output_throughput": 282.35, "total_token_throughput": 1411.8, "mean_ttft_ms": 41.5, "median_ttft_ms": 39.25,
    "p90_ttft_ms": 61.0, "p99_ttft_ms": 75.125, "mean_tpot_ms": 11.5, "p50_tpot_ms": 11.0, "p90_tpot_ms": 14.0,
    "p99_tpot_ms": float("nan"), "mean_itl_ms": "x", "mean_e2el_ms": 612.5,
}  # fmt: skip


def params(**more):
    given = {"replica": 7, "degrees": "8, 1，4 4", "base_url": ASK.base_url, "model": "qwen", "tokenizer": "/data/m",
             "sealed": "c2VhbGVk", "stacks": "/opt/s", "target_concurrency": 120, "target_tpot_ms": 15}  # fmt: skip
    return benchmark.Params(**{**given, **more})


def test_each_degree_is_a_step_that_leaves_the_others_be():
    look, *ramp, judge = benchmark.steps(params())
    assert [one.title.en for one in ramp] == ["Concurrency 1", "Concurrency 4", "Concurrency 8"]
    assert all(one.may_fail for one in ramp) and not look.may_fail and not judge.may_fail
    assert judge.argv[-2:] == ["--degrees", "1,4,8"]
    assert benchmark.locks(params()) == ["benchmark:7"]


def test_the_key_stands_in_no_command():
    for step in benchmark.steps(params()):
        assert "c2VhbGVk" not in " ".join(step.argv)
        assert step.env == {"BENCHMARK_SEALED": "c2VhbGVk"}


def test_programs_read_what_the_kind_writes():
    step = benchmark.steps(params(way="chat", input_len=77))[1]
    parsed = program.arguments().parse_args(step.argv[3:])
    ask = program.ask_of(parsed)
    assert (parsed.what, parsed.degree, ask.way, ask.input_len, ask.ignore_eos) == ("run", 1, "chat", 77, True)
    last = program.arguments().parse_args(benchmark.steps(params())[-1].argv[3:])
    assert program.targets_of(last.targets) == Targets(120, 0, 15, 0, "p90")


@pytest.mark.parametrize("text", ["", "a", "0", "1,99999", ",".join(map(str, range(1, 20)))])
def test_degrees_that_do_not_go(text):
    with pytest.raises(ValueError):
        bench.degrees(text)


def test_a_request_that_is_longer_than_the_context_is_refused():
    with pytest.raises(BadParams) as refused:
        benchmark.steps(params(input_len=1000, output_len=100, context=1024))
    assert "1100 tokens" in refused.value.problems[0][1].en


def test_every_degree_has_a_seed_of_its_own():
    first, second = (bench.argv(ASK, degree, "/f", "r.json") for degree in (4, 16))
    assert first[first.index("--seed") + 1] != second[second.index("--seed") + 1]
    assert second[second.index("--num-prompts") + 1] == "32"  # at least twice the degree
    assert "--ignore-eos" in first and first[first.index("--endpoint") + 1] == "/v1/completions"


def test_a_result_becomes_a_point():
    point = bench.point(RESULT, 4, others=2)
    assert (point.output_tokens_s, point.requests_s, point.others, point.sound) == (282.35, 5.647, 2, True)
    assert point.ttft_ms == {"mean": 41.5, "p50": 39.25, "p90": 61.0, "p99": 75.125}
    assert point.tpot_ms["p99"] is None and point.itl_ms["mean"] is None


def test_a_request_that_failed_fails_the_point():
    point = bench.point({**RESULT, "completed": 23, "failed": 1}, 4)
    assert not point.sound and point.reason and "1 of 24" in point.reason[1]
    older = bench.point({"num_prompts": 24, "completed": 20}, 4)
    assert older.failed == 4
    assert bench.judge([point], Targets()).passed is False
    with pytest.raises(ValueError):
        bench.point({"hello": 1}, 4)


def made(degree, tpot=10.0, rate=500.0):
    return Point(degree, 10, 10, 0, output_tokens_s=rate, tpot_ms={"p90": tpot}, ttft_ms={"p90": 100.0})


def test_targets_are_held_against_the_least_degree_that_is_high_enough():
    targets = Targets(concurrency=120, tpot_ms=15)
    assert bench.judge([made(64, 30.0), made(128, 14.0), made(256, 40.0)], targets).passed is True
    missed = bench.judge([made(64, 9.0), made(128, 16.25)], targets)
    assert missed.passed is False and "16.2 ms" in missed.faults[0].en
    assert bench.judge([made(64)], targets).passed is False
    assert bench.judge([made(64)], Targets()).passed is None
    assert bench.judge([made(8, rate=90.0)], Targets(output_tokens_s=100)).passed is False
    assert bench.judge([Point(8, 9, 9, 0)], Targets(tpot_ms=5)).passed is False  # what is not known is not met


def test_a_degree_without_a_result_says_why():
    point = bench.lost(8, 16, Text("坏", "broken"))
    assert (point.failed, point.completed, point.sound) == (16, 0, False)
