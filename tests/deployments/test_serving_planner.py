"""Plans for serving: the arithmetic against what real engines printed, and refusals that say what would help."""

import dataclasses
import time

import pytest

from deployments.artifacts import known
from deployments.serving import limits, planner, sizing
from deployments.serving.sizing import Engine
from deployments.serving.spec import Spec, Unknown, from_known, from_summary, kv_bytes_per_token, quantized

GIB = 1024
DENSE_32B = Spec(
    name="dense-32b", layers=64, hidden=5120, heads=64, kv_heads=8, head_dim=128, vocab=151_936, max_position=40_960,
    weight_mb=62_500, kv_layers=64, intermediate=25_600,
)  # fmt: skip
MOE_MLA = Spec(
    name="moe-mla", layers=61, hidden=7168, heads=128, kv_heads=128, head_dim=56, vocab=129_280, max_position=163_840,
    weight_mb=671e9 * 1.06 / 2**20, quant="w8a8", kv_lora_rank=512, rope_dim=64, kv_layers=61, intermediate=18_432,
    experts=256, expert_share=0.97,
)  # fmt: skip
A2 = planner.Wish(family="A2", hbm_mb=65_536, npus=8)


def goals(answer):
    return {goal: plan for plan in answer.plans for goal in plan.goals}


def said(answer, code):
    return next(one for one in answer.refusals if one.code == code)


@pytest.mark.parametrize(
    ("spec", "tp", "wanted"),
    [
        (DENSE_32B, 1, 2 * 64 * 8 * 128 * 2),
        (DENSE_32B, 4, 2 * 64 * 2 * 128 * 2),
        (DENSE_32B, 16, 2 * 64 * 1 * 128 * 2),  # fewer heads than ranks: each keeps one whole
        (MOE_MLA, 1, 70_272),
        (MOE_MLA, 16, 70_272),  # the latent lies on each rank
        (dataclasses.replace(DENSE_32B, quant="w8a8c8"), 1, 64 * 8 * 128 * 2),
    ],
)
def test_bytes_of_one_token(spec, tp, wanted):
    assert kv_bytes_per_token(spec, tp) == wanted


def test_pipeline_stages_keep_the_cache_of_their_layers():
    assert kv_bytes_per_token(DENSE_32B, 1, 3) == 2 * 22 * 8 * 128 * 2


def test_a_cpu_engine_printed_the_tokens_that_its_cache_holds():
    # vLLM on a CPU with 1 GiB for the cache: 2 layers of 2 heads of 32 in 32 bits; it printed 1,048,576 tokens.
    tiny = Spec("tiny", 2, 64, 2, 2, 32, 257, 2048, 0.5, dtype="F32", kv_layers=2)
    assert GIB * 2**20 / kv_bytes_per_token(tiny) == pytest.approx(1_048_576, rel=0.1)


def test_a_model_that_leaves_nothing_is_refused_as_the_engine_did():
    # A model of 27.5 GiB on 32 GB: the engine found less than nothing for its cache.
    wish = dataclasses.replace(A2, hbm_mb=32_768, npus=1, max_model_len=4096)
    spec = dataclasses.replace(DENSE_32B, weight_mb=27.54 * GIB, layers=40, kv_layers=40, heads=40)
    found = said(planner.make(spec, wish), "weights")
    assert "27.5 GiB" in found.why.en and "Quantized to w8a8 it takes 1 NPU." in found.do.en and "2 such" in found.do.en


def test_the_parts_of_the_memory_are_all_of_it():
    found = sizing.memory(DENSE_32B, 65_536, Engine(tp=4))
    assert sum(mb for _name, mb in found.parts()) == pytest.approx(65_536)
    assert found.weights == pytest.approx(62_500 / 4) and found.tokens % 128 == 0
    eager = sizing.memory(DENSE_32B, 65_536, Engine(tp=4, eager=True))
    assert eager.kv - found.kv == sizing.GRAPHS_MB


def test_three_goals_and_the_flags_of_each():
    answer = planner.make(DENSE_32B, A2)
    found = goals(answer)
    assert set(found) == set(planner.GOALS) and found["fewest"].engine.npus == 2 and found["fewest"].replicas == 4
    most = DENSE_32B.max_position
    fewest = min(plan.engine.npus for plan in answer.plans if plan.longest >= most)
    assert found["context"].longest >= most and found["context"].engine.npus == fewest, "no more cache than it can use"
    assert found["fewest"].flags[:4] == ("--tensor-parallel-size", "2", "--max-model-len", "16384")
    assert said(answer, "weights").way == "TP 1" and said(answer, "weights").do.en == "Take 2 NPUs."


def test_sixteen_npus_of_64_gb_hold_what_eight_do_not():
    assert not planner.make(MOE_MLA, A2).plans
    assert "It takes 16 such NPUs" in said(planner.make(MOE_MLA, A2), "weights").do.en
    found = planner.make(MOE_MLA, dataclasses.replace(A2, family="A3", npus=16))
    assert {plan.engine.npus for plan in found.plans} == {16}
    assert any("--enable-expert-parallel" in plan.flags for plan in found.plans)


@pytest.mark.parametrize(
    ("spec", "wish", "code", "why"),
    [
        ({"heads": 40, "kv_heads": 8}, {"npus": 16}, "heads", "40 attention heads cannot be divided by 16"),
        ({"kv_heads": 6, "heads": 48}, {}, "kv_heads", "6 KV heads and 4"),
        ({}, {"group": 4}, "group", "One HCCS group has 4"),
        ({}, {"max_model_len": 50_000}, "context", "beyond the model's 40,960"),
        ({}, {"family": "310P", "dtype": "bfloat16"}, "bf16", "310P has no bf16"),
        ({}, {"family": "A1"}, "chip", "does not support this chip"),
        ({"foreign_quant": "AWQ"}, {}, "foreign_quant", "AWQ weights are made for GPUs"),
        ({"foreign_quant": "FP8"}, {}, "foreign_quant", "FP8"),
        ({"quant": "w4a8"}, {"family": "310P"}, "quant", "310P does not load w4a8"),
        ({}, {"npus": 0}, "npus", "no free NPU"),
        ({}, {"npus": 2, "concurrency": 64}, "cache", "1,048,576 are wanted"),
    ],
)
def test_refusals_say_why(spec, wish, code, why):
    answer = planner.make(dataclasses.replace(DENSE_32B, **spec), dataclasses.replace(A2, **wish))
    assert why in said(answer, code).why.en and said(answer, code).do.en and said(answer, code).why.zh


def test_a_shorter_context_that_fits_is_named():
    answer = planner.make(DENSE_32B, dataclasses.replace(A2, npus=2, concurrency=64))
    found = next(one for one in answer.refusals if one.way == "TP 2")
    tokens = sizing.memory(DENSE_32B, 65_536, Engine(tp=2, max_num_seqs=64)).tokens
    assert found.do.en.startswith(f"A context of at most {tokens // 64 // 128 * 128:,} fits")
    shorter = dataclasses.replace(A2, npus=2, concurrency=64, max_model_len=tokens // 64 // 128 * 128)
    assert planner.make(DENSE_32B, shorter).plans


def test_a_310p_gets_its_dtype_and_a_quantized_model_its_flag():
    small = dataclasses.replace(DENSE_32B, weight_mb=15_000, quant="w8a8")
    plan = planner.make(small, planner.Wish("310P", 44_280, 2)).plans[0]
    assert plan.flags[plan.flags.index("--dtype") :][:2] == ("--dtype", "float16")
    assert plan.flags[-2:] == ("--quantization", "ascend") and any("310P" in note.en for note in plan.notes)


def test_a_spec_of_what_was_read_and_of_a_row():
    summary = {
        "layers": 28, "hidden": 3584, "heads": 28, "kv_heads": 4, "head_dim": 128, "vocab": 152_064, "dtype": "BF16",
        "max_position": 32_768, "weight_bytes": 15_231_233_024, "quant_type": "FP8", "experts": None,
    }  # fmt: skip
    found = from_summary(summary, name="seven", weight_bytes=1)
    assert kv_bytes_per_token(found) == 57_344 and found.foreign_quant == "FP8" and not found.is_moe
    assert from_summary({**summary, "quant_type": "W8A8_DYNAMIC"}, name="q", weight_bytes=1).quant == "w8a8"
    with pytest.raises(Unknown, match="layers"):
        from_summary({**summary, "layers": None}, name="x", weight_bytes=1)
    row = known.make({
        "id": "o/m", "params_b": 30.0, "active_b": 3.0, "layers": 48, "hidden": 2048, "heads": 32, "kv_heads": 4,
        "head_dim": 128, "vocab": 151_936, "experts": 128,
    })  # fmt: skip
    moe = from_known(row, "w8a8")
    assert moe.is_moe and moe.expert_share == pytest.approx(0.9) and 30e9 / 2**20 < moe.weight_mb < 31e9 / 2**20
    assert from_known(row).weight_mb == pytest.approx(60e9 / 2**20) and quantized(moe, "w4a8") is moe
    assert quantized(from_known(row), "w4a8").weight_mb == pytest.approx(0.31 * 60e9 / 2**20)
    with pytest.raises(Unknown, match="params_b"):
        from_known(known.make({"id": "o/m"}))


def test_experts_are_divided_over_the_data_parallel_ranks_and_the_rest_is_not():
    alone, spread = Engine(tp=2), Engine(tp=2, dp=4, ep=True)
    experts = MOE_MLA.weight_mb * 0.97
    assert sizing.weights_mb(MOE_MLA, alone) == pytest.approx(MOE_MLA.weight_mb / 2)
    assert sizing.weights_mb(MOE_MLA, spread) == pytest.approx(experts / 8 + (MOE_MLA.weight_mb - experts) / 2)
    assert limits.words(spread) == "TP 2 · DP 4 · EP"


# ---------- over stages and servers ----------


def test_layers_are_divided_over_servers_only_where_one_does_not_suffice():
    dense = dataclasses.replace(DENSE_32B, name="dense-400b", weight_mb=800_000)
    one = planner.make(dense, A2)
    assert one.plans == ()
    found = planner.make(dense, dataclasses.replace(A2, servers=4))
    best = found.plans[0]
    assert (best.engine.tp, best.engine.pp, best.nodes, best.replicas) == (8, 2, 2, 2)
    assert best.flags[-6:] == ("--nnodes", "2", "--node-rank", "0", "--master-addr", "NODE-0")
    assert any("2 servers" in note.en for note in best.notes)
    assert all(plan.nodes == 1 for plan in planner.make(DENSE_32B, dataclasses.replace(A2, servers=4)).plans)


def test_experts_are_spread_over_servers_as_documented():
    # DeepSeek-R1 in W8A8 takes two servers of eight 64 GB NPUs.
    assert planner.make(MOE_MLA, A2).plans == ()
    found = planner.make(MOE_MLA, dataclasses.replace(A2, servers=2, max_model_len=8192))
    moe = next(plan for plan in found.plans if plan.engine.ep)
    assert moe.nodes == 2 and moe.engine.npus == 16 and moe.engine.dp % 2 == 0
    assert "--data-parallel-size-local" in moe.flags and moe.replicas == 1


def test_groups_of_one_server_are_crossed_by_stages():
    wish = dataclasses.replace(A2, group=2, max_model_len=8192)
    found = planner.make(dataclasses.replace(DENSE_32B, weight_mb=150_000), wish)
    assert found.plans[0].engine.tp == 2 and found.plans[0].engine.pp == 2 and found.plans[0].nodes == 1
    assert any(one.code == "group" for one in found.refusals)


def test_replicas_are_counted_over_all_servers():
    found = planner.make(DENSE_32B, dataclasses.replace(A2, servers=3))
    assert goals(found)["fewest"].replicas == 3 * (8 // goals(found)["fewest"].engine.npus)


@pytest.mark.parametrize("spec", [DENSE_32B, MOE_MLA])
def test_a_plan_takes_no_time(spec):
    begun = time.perf_counter()
    planner.make(spec, dataclasses.replace(A2, npus=16, servers=64))
    assert time.perf_counter() - begun < 0.05


# ---------- what healthy engines printed ----------

# (layers, KV heads, head size, GiB of the cache, data type, tokens that a CPU engine printed)
ON_CPU = [(2, 2, 32, 1, "float32", 1_048_576), (2, 2, 32, 1, "bfloat16", 2_097_152)]


@pytest.mark.parametrize(("layers", "heads", "size", "room", "dtype", "printed"), ON_CPU)
def test_the_cache_on_a_cpu_is_predicted(layers, heads, size, room, dtype, printed):
    spec = Spec("tiny", layers, 64, 2, heads, size, 257, 2048, 0.5, kv_layers=layers)
    assert sizing.tokens_on_cpu(spec, room, dtype) == pytest.approx(printed, rel=0.1)


# (model, tensor parallel, GiB of weights that each NPU printed)
WEIGHTS = [("Qwen/Qwen2.5-3B-Instruct", 1, 5.7917), ("Qwen/Qwen3-Next-80B-A3B-Instruct", 4, 37.2362)]


@pytest.mark.parametrize(("name", "tp", "printed"), WEIGHTS)
def test_the_weights_of_an_npu_are_predicted(name, tp, printed):
    spec = from_known(known.built_in().rows[name])
    assert sizing.weights_mb(spec, Engine(tp=tp)) / 1024 == pytest.approx(printed, rel=0.1)


# (tokens of the cache, context, requests of that length at once) as engines on NPUs printed them.
AT_ONCE = [(128_000, 40_960, 3.12), (466 * 128, 32_768, 1.82)]


@pytest.mark.parametrize(("tokens", "length", "printed"), AT_ONCE)
def test_requests_at_once_are_counted_as_the_engine_does(tokens, length, printed):
    per_token = kv_bytes_per_token(DENSE_32B, 2)
    found = dataclasses.replace(sizing.memory(DENSE_32B, 65_536, Engine(tp=2)), kv=tokens * per_token / 2**20)
    assert sizing.concurrency(found, length) == pytest.approx(printed, abs=0.01)


def test_the_cache_of_32b_on_two_npus_is_predicted_at_the_share_that_leaves_it_room():
    # 128,000 tokens with a context of 40,960 over two ranks; the share of memory is not in that log, 0.8 was advised.
    found = sizing.memory(DENSE_32B, 65_536, Engine(tp=2, utilization=0.8))
    assert found.tokens == pytest.approx(128_000, rel=0.1)
