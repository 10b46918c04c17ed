"""What an engine's lines and metrics tell."""

import pytest

from deployments.agent.engines import scrape, words
from deployments.agent.engines.progress import Progress

NPU = b"""INFO 03-02 10:11:12 [__init__.py:36] Platform plugin ascend is activated
(Worker_TP0 pid=311) INFO 03-02 10:12:40 [model_runner_v1.py:2211] Loading model weights took 15.2271 GB
(Worker_TP0 pid=311) INFO 03-02 10:12:58 [worker_v1.py:251] Available KV cache memory: 38.71 GiB
(EngineCore_DP0 pid=245) INFO 03-02 10:12:58 [kv_cache_utils.py:864] GPU KV cache size: 281,856 tokens
(EngineCore_DP0 pid=245) INFO 03-02 10:12:58 [k.py:1] Maximum concurrency for 32,768 tokens per request: 8.60x
"""
CPU = b"""(APIServer pid=5) INFO 11-30 03:39:18 [api_utils.py:347]  xx  version 0.32.0
(Worker pid=7) INFO 03-02 10:11:12 [cpu_worker.py:260] Explicitly set (4.0/30.5) GiB for KV cache on node 0.
(EngineCore) CPU KV cache size: 65,536 tokens, Maximum concurrency for 512 tokens per request: 128.00x
"""


@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
def test_facts_are_found_however_the_bytes_come(size):
    progress = Progress()
    for start in range(0, len(NPU), size):
        progress.feed(NPU[start : start + size])
    assert progress.facts == {"version": None, "kv_tokens": 281856, "max_concurrency": 8.6, "weights_gb": 15.2271,
                              "available_kv_gib": 38.71, "max_model_len": 32768}  # fmt: skip


def test_facts_of_an_engine_on_cpus():
    progress = Progress()
    assert progress.feed(CPU)
    assert progress.facts == {"version": "0.32.0", "kv_tokens": 65536, "max_concurrency": 128.0, "weights_gb": None,
                              "available_kv_gib": 4.0, "max_model_len": 512}  # fmt: skip


def test_too_little_memory_is_a_fact_as_well():
    progress = Progress()
    progress.feed(b"Available KV cache memory: -1.25 GiB\n")
    assert progress.facts["available_kv_gib"] == -1.25


@pytest.mark.parametrize(
    ("said", "what", "done", "of"),
    [
        (b"\rLoading safetensors checkpoint shards:  50% Completed | 1/2 [00:00<00:00, 3.1it/s]", "weights", 1, 2),
        (b"\rLoading safetensors checkpoint shards: 100% Completed | 17/17 [01:00<00:00]\n", "weights", 17, 17),
        (b"\rCapturing CUDA graphs (mixed prefill-decode, PIECEWISE):  45%|####5     | 30/67 [0", "graphs", 30, 67),
        (b"\rCapturing ACL graphs (decode, FULL):   0%|          | 0/35 [00:00<?, ?it/s]", "graphs", 0, 35),
        ("\rCapturing CUDA graphs:  50%|█████     | 2/4 [00:01]".encode(), "graphs", 2, 4),
    ],
)
def test_bars_that_are_redrawn_are_progress(said, what, done, of):
    progress = Progress()
    progress.feed(said + b"\r")
    assert what in progress.counted["what"][1] and (progress.counted["done"], progress.counted["of"]) == (done, of)
    progress.feed(b"INFO:     Application startup complete.\n")
    assert progress.counted is None and progress.is_started


@pytest.mark.parametrize(
    "said", [b"Capturing: 999%| 7/0 [\n", b"checkpoint shards: 1% | 99999999999/1 [\n", b"\xff" * 99_999]
)
def test_nonsense_is_no_progress(said):
    progress = Progress()
    progress.feed(said)
    assert progress.counted is None


def metrics(prompt=0.0, generation=0.0, done=0, ttft=0.0, tpot=0.0, **more):
    two = [(0, 0.5), (1, 0.5)]
    values = [("prompt_tokens_total", prompt), ("generation_tokens_total", generation), ("num_requests_running", 4),
              ("time_to_first_token_seconds_sum", ttft), ("time_to_first_token_seconds_count", done),
              ("request_time_per_output_token_seconds_sum", tpot), ("request_success_total", done),
              ("request_time_per_output_token_seconds_count", done), *more.items()]  # fmt: skip
    lines = [
        f'vllm:{name}{{engine="{n}",model_name="m}} {{x"}} {value * share}'
        for name, value in values
        for n, share in two
    ]
    return "\n".join(["# HELP vllm:x y", "python_gc_total 3", 'vllm:kv_cache_usage_perc{engine="0"} 0.125', *lines, ""])


def test_answers_that_were_errors_are_counted():
    lines = ['http_requests_total{handler="/v1/completions",method="POST",status="2xx"} 40.0',
             'http_requests_total{handler="/v1/completions",method="POST",status="5xx"} 3.0',
             'http_requests_total{handler="none",method="POST",status="4xx"} 9.0',
             'http_requests_total{handler="/v1/chat/completions",method="POST",status="5xx"} 2.0']  # fmt: skip
    assert scrape.Meter().take("\n".join(lines))["errors_total"] == 5
    assert scrape.Meter().take(lines[0])["errors_total"] == 0
    assert scrape.Meter().take("vllm:num_requests_running 1")["errors_total"] is None


def test_rates_and_means_are_those_of_the_window():
    meter = scrape.Meter()
    first = meter.take(metrics(prompt=100, generation=50, done=10, ttft=99.0, tpot=99.0), now=100.0)
    assert first == {**scrape.NOTHING, "running": 4, "kv_pct": 12.5, "requests_total": 10}
    told = meter.take(
        metrics(prompt=400, generation=80, done=14, ttft=99.8, tpot=99.08, num_requests_waiting=2), now=103.0
    )
    assert (told["prompt_tokens_s"], told["generation_tokens_s"], told["waiting"]) == (100.0, 10.0, 2)
    assert (told["ttft_ms"], told["tpot_ms"]) == (200.0, 20.0)
    quiet = [meter.take(metrics(prompt=400, generation=80, done=14), now=103.0 + n) for n in range(1, 40, 3)][-1]
    assert (quiet["prompt_tokens_s"], quiet["ttft_ms"]) == (0.0, None)


def test_an_engine_that_began_anew_has_no_rate_yet():
    meter = scrape.Meter()
    meter.take(metrics(prompt=1000), now=1.0)
    assert meter.take(metrics(prompt=10), now=4.0)["prompt_tokens_s"] is None
    assert meter.take(metrics(prompt=40), now=7.0)["prompt_tokens_s"] == 10.0


@pytest.mark.parametrize(
    "text", ["", "vllm:", "vllm:num_requests_running", 'vllm:kv_cache_usage_perc{a="b"} NaN', "\0" * 99]
)
def test_what_is_no_metric_is_not_known(text):
    assert scrape.Meter().take(text) == scrape.NOTHING


@pytest.mark.parametrize(
    ("code", "output", "said"),
    [
        (1, "RuntimeError: NPU out of memory. Tried to allocate", "not enough memory"),
        (1, "OSError: [Errno 98] Address already in use", "holds the port"),
        (0, "vllm.v1.engine.exceptions.EngineDeadError: x", "core process"),
        (-9, "nothing", "SIGKILL"),
        (3, "nothing", "exit code 3"),
        (None, "nothing", "nobody kept it"),
    ],
)
def test_why_it_ended_is_said_by_its_words_before_its_code(code, output, said):
    assert said in words.ended(code, output).en


def test_the_command_is_shown_without_keys():
    spec = {"argv": ["vllm", "serve", "--api-key", "abc", "--x=secret-key-1"], "api_key": "secret-key-1"}
    assert words.masked(spec) == ["vllm", "serve", "--api-key", "***", "--x=***"]
