"""Words for ways of quantizing and converting, those of the guide included."""

import pytest

from deployments.artifacts import convert_words, quant_words


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("w8a8", "w8a8"), (" W4A8 ", "w4a8"), ("WEIGHT_QUANT", "w8a8"), ("weight_bits 8, act_bits 8", "w8a8"),
        ("quant_type: WEIGHT_QUANT, weight_bits: 8, act_bits: 16", "w8a16"), ("weight_bits=4 act_bits=8", "w4a8"),
        ("weight_bits 4, act_bits 4", "w4a4"), ("w8a8s", "w8a8s"),
    ],
)  # fmt: skip
def test_what_people_write_is_made_the_tools_own_word(words, kind):
    found = quant_words.read(words)
    assert found.type == kind
    assert (found.note is None) == (words.strip().lower() == kind)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("w8a8_dynamic", "decided by the recipe"), ("W8A8-Dynamic", "decided by the recipe"), ("w4a16", "old scripts"),
        ("w9a9", "The tool has: w8a8"), ("weight_bits 3, act_bits 3", "The tool has"), ("", "The tool has"),
    ],
)  # fmt: skip
def test_what_the_tool_has_not_is_answered_with_the_truth(words, says):
    with pytest.raises(quant_words.NoType) as refused:
        quant_words.read(words)
    assert says in refused.value.text.en and refused.value.text.zh


def test_every_type_can_be_read_back():
    assert all(quant_words.PATTERN.fullmatch(kind) for kind in quant_words.TYPES)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ('export(ms_model, file_name="deepseek.om", file_format="MINDIR")', "merely called deepseek.om"),
        ("from mindspore import export\nexport(net, file_name='a', file_format='OM')", "makes no OM"),
        ('torch.load("deepseek_67b.pt")', "pickle"), ("mindspore.nn.QuantAwareTrainCell(net)", "has no Quant"),
        ("pytorch to om", "There are: fp8_bf16"),
    ],
)  # fmt: skip
def test_lines_of_the_guide_get_the_right_choice(words, says):
    with pytest.raises(convert_words.NoWay) as refused:
        convert_words.read(words)
    assert says in refused.value.text.en
    if "export" in words:
        assert "onnx_om" in refused.value.text.en and "vLLM" in refused.value.text.zh


def test_ways_that_vllm_does_not_read_are_known():
    assert [name for name, way in convert_words.WAYS.items() if way.serves] == ["fp8_bf16", "mxfp8"]
    assert all(convert_words.read(name) == name for name in convert_words.WAYS)
