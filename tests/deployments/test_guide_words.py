"""What older guides write: mapped to fields, or left out with the true sentence."""

import pytest

from deployments.serving.guide_words import understand


@pytest.mark.parametrize(
    ("line", "settings"),
    [
        ("max_batch_size=32", {"max_num_seqs": 32}),
        ("gpu_util=0.85", {"gpu_memory_utilization": 0.85}),
        ("gpu_util: 85%", {"gpu_memory_utilization": 0.85}),
        ("npu_ids=[0,1]", {"tensor_parallel_size": 2}),
        ("ASCEND_RT_VISIBLE_DEVICES=0,1,2,3", {"tensor_parallel_size": 4}),
        ("tensor_parallel_size=2, npu_ids=[0,1]", {"tensor_parallel_size": 2}),
        ("max_dynamic_batch_size=24", {"max_num_seqs": 24}),
        ("--max-model-len 16K --enforce-eager", {"max_model_len": 16_384, "enforce_eager": True}),
        ("--no-enable-prefix-caching --max-num-seqs=8", {"prefix_caching": "off", "max_num_seqs": 8}),
        ("-tp 4 -pp 2", {"tensor_parallel_size": 4, "pipeline_parallel_size": 2}),
        ("export HCCL_BUFFSIZE=400", {"env": {"HCCL_BUFFSIZE": "400"}}),
        ("VLLM_ASCEND_ENABLE_FLASHCOMM1=1\nVLLM_ASCEND_ENABLE_NZ=2",
         {"additional": {"enable_flashcomm1": True, "weight_nz_mode": 2}}),
        ("dtype='float16'", {"dtype": "float16"}),
        ("block_size=128", {"block_size": 128}),
    ],
)  # fmt: skip
def test_what_is_mapped(line, settings):
    assert understand(line).settings == settings


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('model="deepseek.om"', "never an .om file"),
        ("swap_space=64GB", "--kv-offloading-size"),
        ("block_size=16", "the block is 128"),
        ("dynamic_batching=True", "always continuous"),
        ("sudo swapon /swapfile", "swap file of the host"),
        ("npu-smi topo", "npu-smi info -t topo"),
        ("max_tokens=100", "Each request"),
        ("ASCEND_BUFFER_POOL=4:8", "gone from vLLM-Ascend"),
        ("LD_PRELOAD=/tmp/x.so", "runs other code"),
        ("frobnicate=7", "No setting is called frobnicate"),
        ("max_num_seqs=lots", "is no max_num_seqs"),
        ("additional=5", "No setting is called additional"),
    ],
)
def test_what_is_left_out_and_why(line, said):
    found = understand(line)
    assert found.settings == {}
    assert [said in one.why.en for one in found.heard] == [True] and found.heard[0].why.zh


def test_a_whole_program_of_a_guide():
    found = understand(
        'from vllm import LLM, AscendOptions\noptions = AscendOptions(model="deepseek.om", npu_ids=[0, 1],\n'
        "    tensor_parallel_size=2, max_batch_size=32, block_size=16, swap_space=64)\nllm = LLM(options)\n"
    )
    assert found.settings == {"tensor_parallel_size": 2, "max_num_seqs": 32}
    assert any("no class AscendOptions" in one.why.en for one in found.heard)
    assert [one.word for one in found.heard if not one.field and "class" not in one.why.en] == [
        'model="deepseek.om"', "block_size=16", "swap_space=64",
    ]  # fmt: skip


def test_what_is_hostile_is_bounded():
    found = understand("a=1 " * 50_000)
    assert len(found.heard) == 100
    assert understand("=" * 20_000).heard == ()
