"""/metrics of vLLM: only known names, old spellings, what two readings say of the time between them."""

import json
from pathlib import Path

import pytest

from monitoring.parsers import ParseError
from monitoring.parsers.vllm_metrics import Histogram, Metrics, between, parse

TEXT = (Path(__file__).parents[1] / "fixtures/host/vllm_metrics_0.23.txt").read_text()
INF = float("inf")


def test_engines_of_one_server_are_added_and_their_caches_averaged():
    found = parse(TEXT)
    assert (found.running, found.waiting, found.kv_pct) == (20, 1, 37.5)
    assert (found.prompt_tokens, found.requests, found.preemptions) == (1_250_250, 43, 2)
    assert found.ttft == Histogram(((0.1, 10), (0.5, 40), (INF, 50)), 50, 15)


def test_what_is_not_printed_or_no_number_is_not_known():
    found = parse(TEXT)
    assert found.prefix_queries == 1000 and found.prefix_hits is None
    assert found.itl is found.e2e is found.queue is None


def test_spellings_of_older_releases_are_read_and_never_added_to_the_newer_ones():
    old = 'vllm:gpu_cache_usage_perc{model_name="m"} 0.2\nvllm:gpu_prefix_cache_hits_total 5\n'
    old += 'vllm:time_per_output_token_seconds_bucket{le="+Inf"} 4\nvllm:time_per_output_token_seconds_sum 2\n'
    found = parse(old)
    assert (found.kv_pct, found.prefix_hits) == (20, 5)
    assert found.itl.mean_ms() == 500
    both = old + 'vllm:inter_token_latency_seconds_bucket{le="+Inf"} 9\nvllm:kv_cache_usage_perc 0.7\n'
    assert (parse(both).itl.count, parse(both).kv_pct) == (9, pytest.approx(70))


@pytest.mark.parametrize(
    "text", ["python_info 1\n", "vllm:made_up 3\n", "vllm:num_requests_running{} many\n", "<html>404</html>"]
)
def test_a_text_without_a_known_name_is_refused(text):
    with pytest.raises(ParseError):
        parse(text)


def test_a_histogram_whose_buckets_do_not_belong_together_is_not_known():
    falls = (
        'vllm:time_to_first_token_seconds_bucket{le="0.1"} 5\nvllm:time_to_first_token_seconds_bucket{le="+Inf"} 4\n'
    )
    open_end = 'vllm:num_requests_running 1\nvllm:time_to_first_token_seconds_bucket{le="0.1"} 5\n'
    assert parse("vllm:num_requests_running 1\n" + falls).ttft is None
    assert parse(open_end).ttft is None


def test_quantiles_lie_on_a_line_within_their_bucket():
    seen = Histogram(((0.1, 10), (0.5, 40), (INF, 50)), 50, 15)
    assert seen.quantile_ms(0.1) == pytest.approx(50)
    assert seen.quantile_ms(0.5) == pytest.approx(1000 * (0.1 + 0.4 * 15 / 30))
    assert seen.quantile_ms(0.99) == 500  # beyond the last edge nothing more is known
    assert Histogram(((0.1, 0), (INF, 0)), 0, 0).quantile_ms(0.5) is None


def test_rates_are_of_the_time_between_two_readings():
    before = parse(TEXT)
    after = parse(
        TEXT.replace("4096.0", "4596.0").replace('le="+Inf",model_name="m"} 40.0', 'le="+Inf",model_name="m"} 50.0')
        .replace('le="0.5",model_name="m"} 30.0', 'le="0.5",model_name="m"} 40.0')
        .replace('_count{engine="0",model_name="m"} 40.0', '_count{engine="0",model_name="m"} 50.0')
    )  # fmt: skip
    rates = between(before, after, 5)
    assert (rates.generation_tokens_s, rates.prompt_tokens_s) == (100, 0)
    assert rates.ttft_ms == pytest.approx(300)  # all ten between 0.1 and 0.5 s
    assert rates.itl_ms is None and rates.prefix_hit_pct is None
    json.dumps(rates.as_json(), allow_nan=False)


def test_an_engine_that_was_started_anew_has_no_rate():
    rates = between(Metrics(generation_tokens=900, ttft=Histogram(((INF, 9),), 9, 1)),
                    Metrics(generation_tokens=3, ttft=Histogram(((INF, 1),), 1, 1)), 5)  # fmt: skip
    assert rates.generation_tokens_s is None and rates.ttft_ms is None


def test_how_many_prompts_were_found_in_the_cache():
    rates = between(Metrics(prefix_queries=100, prefix_hits=10), Metrics(prefix_queries=300, prefix_hits=60), 2)
    assert rates.prefix_hit_pct == 25
