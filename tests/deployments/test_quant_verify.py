"""What the tool writes in its many formats is verified; what lacks something is not. Layouts as its saver has them."""

import json

import pytest

from deployments.artifacts import BadModel, verify
from tests.deployments.models_on_disk import CONFIG, safetensors

LAYER = "model.layers.{}.mlp.up_proj"
STATIC = {
    "input_scale": ("F32", (1,)),
    "input_offset": ("F32", (1,)),
    "quant_bias": ("I32", (48,)),
    "deq_scale": ("I64", (48,)),
}
CHANNEL = {"weight_scale": ("F32", (48, 1)), "weight_offset": ("F32", (48, 1))}
# type -> what lies beside the weight, the weight's own numbers and shape
FORMATS = {
    "W8A8": (STATIC, "I8", (48, 48)),
    "W8A8_MIX": ({**STATIC, **CHANNEL}, "I8", (48, 48)),
    "W8A8_DYNAMIC": (CHANNEL, "I8", (48, 48)),
    "W8A16": (CHANNEL, "I8", (48, 48)),
    "W4A8_DYNAMIC": ({**CHANNEL, "scale_bias": ("F32", (48, 1))}, "I8", (24, 48)),
    "W4A4_FLATQUANT_DYNAMIC": ({**CHANNEL, "clip_ratio": ("F32", (1,)), "left_trans": ("F32", (6, 6))}, "I8", (48, 48)),
    "W8A8_MXFP8": ({"weight_scale": ("U8", (48, 2))}, "F8_E4M3", (48, 48)),
    "W4A4_MXFP4": ({"weight_scale": ("U8", (48, 2))}, "U8", (48, 24)),
    "W16A16S": ({}, "BF16", (48, 48)),
}  # fmt: skip
SIZES = {"BF16": 2, "F32": 4, "I8": 1, "I32": 4, "I64": 8, "U8": 1, "F8_E4M3": 1}
ONE = {"F32": b"\0\0\x80\x3f", "BF16": b"\x80\x3f"}


def write(path, rows):
    """{name: (dtype, shape)}, each number one."""
    header, data = {}, b""
    for name, (dtype, shape) in rows.items():
        count = 1
        for length in shape:
            count *= length
        numbers = ONE.get(dtype, bytes([1]) * SIZES[dtype]) * count
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(data), len(data) + len(numbers)]}
        data += numbers
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


class Pair:
    """A parent, and a child whose `rows` {name: (dtype, shape)} and types a test may change before `check`."""

    def __init__(self, folder, kind):
        self.kind, self.parent, self.made = kind, folder / "parent", folder / "made"
        for one in (self.parent, self.made):
            one.mkdir()
            (one / "config.json").write_text(json.dumps({**CONFIG, "tie_word_embeddings": False}))
            (one / "tokenizer.json").write_text("{}")
        self.wanted = {"model.embed_tokens.weight": (301, 48), "model.layers.0.mlp.up_proj.bias": (48,)}
        self.wanted |= {f"{LAYER.format(n)}.weight": (48, 48) for n in range(3)}
        beside, dtype, shape = FORMATS[kind]
        self.rows = {
            "model.embed_tokens.weight": ("BF16", (301, 48)),
            "model.layers.0.mlp.up_proj.bias": ("F32", (48,)),
        }
        self.types = dict.fromkeys(self.rows, "FLOAT")
        for n in range(3):
            mine = {f"{LAYER.format(n)}.weight": (dtype, shape)}
            mine |= {f"{LAYER.format(n)}.{name}": row for name, row in beside.items()}
            self.rows |= mine
            self.types |= dict.fromkeys(mine, kind)

    def check(self):
        safetensors(self.parent / "model.safetensors", self.wanted)
        write(self.made / "quant_model_weights.safetensors", self.rows)
        described = {"version": "1.0.0", "model_quant_type": self.kind, "optional": {"quarot": {}}, **self.types}
        (self.made / "quant_model_description.json").write_text(json.dumps(described))
        return verify.check(self.made, self.parent, self.kind.lower().split("_")[0])


@pytest.fixture(params=FORMATS)
def pair(request, tmp_path):
    return Pair(tmp_path, request.param)


@pytest.fixture
def dynamic(tmp_path):
    return Pair(tmp_path, "W8A8_DYNAMIC")


def test_each_format_of_the_tool_is_verified(pair):
    assert pair.check().kinds == {"FLOAT": 1, pair.kind: 3}


def test_in_each_format_a_weight_must_be_there(pair):
    name = f"{LAYER.format(2)}.weight"
    del pair.rows[name], pair.types[name]
    with pytest.raises(BadModel, match=r"weights that are missing \(1\): model\.layers\.2"):
        pair.check()


@pytest.mark.parametrize("kind", [name for name, (beside, _dtype, _shape) in FORMATS.items() if beside])
def test_in_each_format_its_scale_must_be_there(tmp_path, kind):
    pair = Pair(tmp_path, kind)
    name = f"{LAYER.format(1)}.{'deq_scale' if kind == 'W8A8' else 'weight_scale'}"
    del pair.rows[name], pair.types[name]
    with pytest.raises(BadModel, match="scales or offsets that are missing"):
        pair.check()


def test_what_recipes_add_or_name_otherwise_is_no_fault(dynamic):
    dynamic.rows["model.layers.0.self_attn.o_proj.heads_rotation"] = ("F32", (6, 6))  # a rotation has no type
    dynamic.types["model.layers.0.self_attn.fa_quant_type"] = "INT8"  # a setting is no tensor
    dynamic.types["model.layers.0.mlp.div.mul_scale"] = "FLOAT"
    dynamic.rows["model.layers.0.mlp.div.mul_scale"] = ("F32", (48,))
    for last in ("weight", "weight_scale", "weight_offset"):  # within a wrapper
        dynamic.rows[f"{LAYER.format(1)}.linear.{last}"] = dynamic.rows.pop(f"{LAYER.format(1)}.{last}")
        dynamic.types[f"{LAYER.format(1)}.linear.{last}"] = dynamic.types.pop(f"{LAYER.format(1)}.{last}")
        outer = f"language_model.{LAYER.format(2)}.{last}"  # its outer parts have other names
        dynamic.rows[outer] = dynamic.rows.pop(f"{LAYER.format(2)}.{last}")
        dynamic.types[outer] = dynamic.types.pop(f"{LAYER.format(2)}.{last}")
    dynamic.wanted["model.layers.3.eh_proj.weight"] = (48, 48)  # behind the last layer: it guesses tokens ahead
    dynamic.wanted["model.layers.0.self_attn.rotary_emb.inv_freq"] = (3,)
    dynamic.wanted[f"{LAYER.format(0)}.weight_scale_inv"] = (1, 1)  # of an FP8 parent
    assert dynamic.check().kinds["W8A8_DYNAMIC"] == 3


def test_a_bias_may_lie_in_the_quantized_one(tmp_path):
    pair = Pair(tmp_path, "W8A8")
    del pair.rows["model.layers.0.mlp.up_proj.bias"], pair.types["model.layers.0.mlp.up_proj.bias"]
    assert pair.check().kinds["W8A8"] == 3


def test_another_shape_or_kind_of_numbers_is_a_fault(dynamic):
    dynamic.rows[f"{LAYER.format(0)}.weight"] = ("I8", (48, 47))
    with pytest.raises(BadModel, match="weights of another shape"):
        dynamic.check()
    dynamic.rows[f"{LAYER.format(0)}.weight"] = ("BF16", (48, 48))
    with pytest.raises(BadModel, match="numbers that do not fit their type"):
        dynamic.check()
    dynamic.rows[f"{LAYER.format(0)}.weight"] = ("I8", (48, 48))
    dynamic.rows[f"{LAYER.format(0)}.weight_scale"] = ("F32", (47, 1))
    with pytest.raises(BadModel, match="other rows than their weight"):
        dynamic.check()


def test_a_weight_without_a_type_is_a_fault(dynamic):
    del dynamic.types[f"{LAYER.format(0)}.weight"]
    with pytest.raises(BadModel, match="weights without a type"):
        dynamic.check()


def test_what_was_asked_for_must_be_among_the_types(dynamic):
    dynamic.check()
    with pytest.raises(BadModel, match="no weight is W4A8, there is only FLOAT, W8A8_DYNAMIC"):
        verify.check(dynamic.made, dynamic.parent, "w4a8")


@pytest.mark.parametrize(
    ("dtype", "data", "numbers"),
    [
        ("F32", b"\0\0\x80\x3f\0\0\0\x40", [1.0, 2.0]), ("BF16", b"\x80\x3f\0\x40", [1.0, 2.0]),
        ("F16", b"\0\x3c\0\x40", [1.0, 2.0]), ("F64", b"\0\0\0\0\0\0\xf0\x3f", [1.0]), ("F32", b"\0\0", []),
    ],
)  # fmt: skip
def test_numbers_are_read_in_every_width(dtype, data, numbers):
    assert verify.numbers(data, dtype) == numbers
