"""Models for the real msModelSlim: 28 layers, as its recipe for Qwen2.5-7B-Instruct names them, a head of its own; and
one with FP8 weights in blocks, as DeepSeek has them."""

import array
import json
import random
import struct
from pathlib import Path

from tests.engines import tiny_model

LAYERS = 28
BLOCK = 128


def shapes(layers: int) -> dict[str, list[int]]:
    """Of tiny_model's two layers as many as are wanted, and a head that is not the embedding."""
    two = tiny_model.shapes()
    first = {name: shape for name, shape in two.items() if ".layers.0." in name}
    every = {name.replace(".0.", f".{n}.", 1): shape for n in range(layers) for name, shape in first.items()}
    rest = {name: shape for name, shape in two.items() if ".layers." not in name}
    return {**rest, **every, "lm_head.weight": [257, tiny_model.HIDDEN]}


def make(folder: Path, layers: int = LAYERS) -> Path:
    """In float32, with weights by chance."""
    tiny_model.make(folder)
    chance = random.Random(7)
    rows = {name: ("F32", shape, _floats(chance, shape)) for name, shape in shapes(layers).items()}
    _write(folder, rows, num_hidden_layers=layers)
    return folder


def make_fp8(folder: Path) -> Path:
    """Two layers whose projections are FP8, with a scale for each block."""
    tiny_model.make(folder)
    chance = random.Random(8)
    rows = {}
    for name, shape in shapes(2).items():
        if "_proj.weight" not in name:
            rows[name] = (
                "BF16",
                shape,
                b"".join(struct.pack("<f", chance.gauss(0, 0.02))[2:] for _n in range(_count(shape))),
            )
            continue
        rows[name] = (
            "F8_E4M3",
            shape,
            bytes(chance.randrange(0x50) | chance.choice((0, 0x80)) for _n in range(_count(shape))),
        )
        blocks = [-(-length // BLOCK) for length in shape]
        rows[name.replace(".weight", ".weight_scale_inv")] = (
            "F32",
            blocks,
            array.array("f", [0.01] * _count(blocks)).tobytes(),
        )
    quantization = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [BLOCK, BLOCK]}
    _write(folder, rows, torch_dtype="bfloat16", quantization_config=quantization)
    return folder


def _floats(chance: random.Random, shape: list[int]) -> bytes:
    return array.array("f", (chance.gauss(0, 0.02) for _n in range(_count(shape)))).tobytes()


def _count(shape: list[int]) -> int:
    return shape[0] * (shape[1] if len(shape) == 2 else 1)


def _write(folder: Path, rows: dict[str, tuple[str, list[int], bytes]], **config: object) -> None:
    header, at = {}, 0
    for name, (dtype, shape, data) in rows.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    text += b" " * (-len(text) % 8)
    whole = struct.pack("<Q", len(text)) + text + b"".join(data for _dtype, _shape, data in rows.values())
    (folder / "model.safetensors").write_bytes(whole)
    said = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**said, "tie_word_embeddings": False, **config}))
