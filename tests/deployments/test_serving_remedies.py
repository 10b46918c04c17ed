"""What is to be tried next, worked out from the settings that failed, with its numbers."""

import pytest

from deployments.serving import findings, remedies, settings, sizing
from deployments.serving.remedy_case import Case
from deployments.serving.spec import Spec

SPEC = Spec("m", layers=36, hidden=4096, heads=32, kv_heads=8, head_dim=128, vocab=150_000, max_position=40_960,
            weight_mb=28_000.0, kv_layers=36, intermediate=12_288)  # fmt: skip


def case(data=None, spec=SPEC, hbm_mb=32_768.0, npus=8, **more):
    data = data or {}
    return Case(data, settings.read(data), spec, hbm_mb, npus, **more)


def offers(line, of):
    return remedies.offers(findings.look([line])[0], of)


def changes(line, of):
    return [dict(one.change) for one in offers(line, of) if one.change]


def test_the_context_goes_down_to_what_the_engine_says():
    found = offers("the estimated maximum model length is 20000. Try", case({"max_model_len": 32768}))
    assert found[0].change == {"max_model_len": 19968}  # whole blocks
    assert "32,768 → 19,968" in found[0].numbers[-1].en
    data = {"max_model_len": 32768, "seed": 4}
    assert found[0].applied(data) == {"max_model_len": 19968, "seed": 4}


def test_the_context_is_worked_out_of_gib():
    line = "12.0 GiB KV cache is needed, which is larger than the available KV cache memory (3.0 GiB)"
    assert changes(line, case({"max_model_len": 40960}))[0] == {"max_model_len": 10240}


def test_the_context_of_a_model_is_its_limit():
    line = "max_model_len (8192) is greater than the derived max_model_len (max_position_embeddings=2048.0 or"
    assert changes(line, case({"max_model_len": 8192})) == [{"max_model_len": 2048}]


def test_weights_that_fill_the_npu_are_divided_first():
    found = offers("Available KV cache memory: -2.1 GiB", case())
    tp = found[0].change["tensor_parallel_size"]
    assert tp == 2 and sizing.memory(SPEC, 32_768, sizing.Engine(tp=2)).kv > 0
    assert "27.3 GiB → 13.7 GiB" in found[0].numbers[0].en
    assert {"gpu_memory_utilization": 0.95} in [dict(one.change) for one in found]


def test_no_more_npus_are_offered_than_there_are():
    every = changes("Available KV cache memory: -2.1 GiB", case(npus=1))
    assert not any("tensor_parallel_size" in one for one in every)


def test_out_of_memory_lowers_the_share_by_steps_and_then_says_no_more():
    line = "NPU out of memory. Tried to allocate 2.00 GiB (NPU 0; 60.96 GiB total capacity; 55.0 GiB already allocated"
    first = changes(line, case())
    assert first[0] == {"gpu_memory_utilization": 0.85}
    assert {"max_num_batched_tokens": 1024} in first and {"max_num_seqs": 128} in first
    assert changes(line, case({"gpu_memory_utilization": 0.85}))[0] == {"gpu_memory_utilization": 0.8}
    assert "gpu_memory_utilization" not in changes(line, case({"gpu_memory_utilization": 0.8}))[0]


def test_the_share_is_what_others_leave():
    line = "ValueError: Free memory on device npu:0 (20.0/60.0 GiB) on startup is less than desired"
    assert {"gpu_memory_utilization": 0.31} in changes(line, case())


def test_streams_are_spared():
    line = "ACLgraph has insufficient available streams to capture"
    found = changes(line, case({"max_num_seqs": 16}))
    assert found[0] == {"capture_sizes": ["1", "2", "4", "8", "16"]}
    assert found[1] == {"cudagraph_mode": "FULL_DECODE_ONLY"}
    again = changes(line, case({"capture_sizes": ["1", "2", "4"], "cudagraph_mode": "FULL_DECODE_ONLY"}))
    assert again[0] == {"capture_sizes": ["1"]} and {"cudagraph_mode": "FULL_DECODE_ONLY"} not in again


def test_heads_are_divided():
    line = "Total number of attention heads (40) must be divisible by tensor parallel size (3)."
    assert changes(line, case({"tensor_parallel_size": 3})) == [{"tensor_parallel_size": 2}]
    line = "numHeads / numKvHeads = 8, MLA only support {32, 64, 128}."
    assert changes(line, case({"tensor_parallel_size": 16}))[0] == {"tensor_parallel_size": 4}


def test_an_unknown_flag_goes_with_its_values_and_nothing_else():
    data = {"extra": ["--swap-space", "8", "--foo=1", "--max-log-len", "9"], "block_size": 16}
    found = offers("vllm: error: unrecognized arguments: --swap-space 8 --block-size 16", case(data))
    assert found[0].applied(data) == {"extra": ["--foo=1", "--max-log-len", "9"]}


def test_a_flag_that_nobody_gave_is_no_remedy():
    assert offers("vllm: error: unrecognized arguments: --swap-space 8", case({"seed": 1})) == []


def test_float16_where_there_is_no_bfloat16():
    assert changes("not implemented for DT_BFLOAT16", case({"dtype": "bfloat16"})) == [{"dtype": "float16"}]


def test_variables_of_others_are_left():
    data = {"env": {"HCCL_BUFFSIZE": "200", "A": "b"}}
    line = "HCCL_BUFFSIZE is too SMALL, NEEDED_HCCL_BUFFSIZE(x) = 609MB, HCCL_BUFFSIZE=200MB."
    assert changes(line, case(data))[0] == {"env": {"A": "b", "HCCL_BUFFSIZE": "640"}}


def test_a_cpu_has_a_cache_of_its_own_size_and_no_share():
    data = {"device": "cpu", "max_model_len": 2048}
    every = changes("the estimated maximum model length is 600.", case(data, hbm_mb=None, npus=0))
    assert every == [{"max_model_len": 512}, {"kv_cache_gib": 8}]


def test_links_to_jobs_stand_as_they_are():
    found = offers("RuntimeError: Failed to infer device type", case())
    assert [one.job["kind"] for one in found] == ["install", "check"]


@pytest.mark.parametrize("known", findings.TABLES, ids=lambda one: one.id)
@pytest.mark.parametrize("data", [{}, {"device": "cpu"}, {"extra": ["--port", "9"], "tensor_parallel_size": 4}])
def test_whatever_is_offered_can_be_read_and_changes_something(known, data):
    """Without a model, and with one."""
    for spec in (None, SPEC):
        of = case(data, spec, 65_536.0 if spec else None)
        for offer in remedies.offers(findings.Finding(known.id, 1, "", known.cause, known.remedies), of):
            applied = offer.applied(data)
            settings.read(applied)
            assert not offer.change or applied != data
            assert all(line.zh and line.en for line in offer.numbers)


def test_a_finding_that_was_kept_is_read_again():
    kept = findings.look(["the estimated maximum model length is 20000."])[0].as_json()
    again = remedies.from_json(kept)
    assert again and again.numbers == {"longest": "20000"} and again.remedies
    assert remedies.from_json({"id": "x"}) is None
    assert remedies.from_json({**kept, "numbers": [1]}) is None
