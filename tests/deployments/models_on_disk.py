"""Models on a disk, as small as they can be and as broken as a test wants them."""

import json
import struct

CONFIG = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "torch_dtype": "bfloat16", "num_hidden_layers": 3,
    "hidden_size": 48, "num_attention_heads": 6, "num_key_value_heads": 2, "vocab_size": 301,
    "max_position_embeddings": 4096, "tie_word_embeddings": True,
}  # fmt: skip
SIZES = {"BF16": 2, "F32": 4, "I8": 1}


def safetensors(path, tensors, dtype="BF16", **more):
    """Write a file of these tensors {name: shape}; `more` goes into the header's own rows by name."""
    header, at = {}, 0
    for name, shape in tensors.items():
        count = SIZES[dtype]
        for length in shape:
            count *= length
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + count]}
        at += count
    text = json.dumps({"__metadata__": {"format": "pt"}, **header, **more}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes((n * 7) % 251 for n in range(at)))
    return path


def model(folder, *, shards=2, config=None, tokenizer=True):
    """A whole model of `shards` files with an index; 48 × 301 + 3 × 48 × 48 numbers."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, **(config or {})}))
    if tokenizer:
        (folder / "tokenizer.json").write_text("{}")
    names = {"model.embed_tokens.weight": (301, 48)}
    names |= {f"model.layers.{n}.mlp.up_proj.weight": (48, 48) for n in range(3)}
    placed = {name: f"model-{1 + n % shards:05}-of-{shards:05}.safetensors" for n, name in enumerate(names)}
    for shard in set(placed.values()):
        safetensors(folder / shard, {name: names[name] for name, at in placed.items() if at == shard})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": placed}))
    return folder
