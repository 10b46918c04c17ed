"""A Qwen2 that is whole and knows nothing: two layers with weights by chance, and a tokenizer of single bytes. Written
without the libraries that read it, so that it can lie on a server before a stack does."""

import array
import json
import random
import struct
from pathlib import Path

HIDDEN, INNER, HEADS, LAYERS = 64, 128, 2, 2  # heads of 32: vLLM on CPUs takes no smaller ones
END = "<end>"


def byte_names():
    """The sign that stands for each byte in a byte-level tokenizer: itself where it can be printed."""
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in printed]
    return [chr(byte) for byte in printed] + [chr(256 + n) for n in range(len(rest))]


def tokenizer():
    vocabulary = {name: n for n, name in enumerate([END, *byte_names()])}
    added = {"id": 0, "content": END, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
             "special": True}  # fmt: skip
    bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
             "vocab": vocabulary, "merges": []}  # fmt: skip
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [added], "normalizer": None,
            "pre_tokenizer": bytes_, "post_processor": None, "decoder": bytes_, "model": model}  # fmt: skip


def shapes():
    """Name -> shape of each weight; the head is tied to the embedding."""
    found = {"model.embed_tokens.weight": [257, HIDDEN], "model.norm.weight": [HIDDEN]}
    for n in range(LAYERS):
        at = f"model.layers.{n}"
        found |= {f"{at}.{name}.weight": [HIDDEN] for name in ("input_layernorm", "post_attention_layernorm")}
        found |= {f"{at}.self_attn.{name}_proj.weight": [HIDDEN, HIDDEN] for name in "qkvo"}
        found |= {f"{at}.self_attn.{name}_proj.bias": [HIDDEN] for name in "qkv"}
        found |= {f"{at}.mlp.{name}_proj.weight": [INNER, HIDDEN] for name in ("gate", "up")}
        found[f"{at}.mlp.down_proj.weight"] = [HIDDEN, INNER]
    return found


def weights():
    """The bytes of a safetensors file: the length of its header, the header, the numbers."""
    chance, header, data = random.Random(0), {}, b""
    for name, shape in shapes().items():
        count = shape[0] * (shape[1] if len(shape) == 2 else 1)
        values = array.array("f", (chance.gauss(0, 0.02) for _n in range(count)))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * count]}
        data += values.tobytes()
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def make(folder: Path):
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "vocab_size": 257, "hidden_size": HIDDEN,
        "intermediate_size": INNER, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS, "max_position_embeddings": 512, "eos_token_id": 0, "bos_token_id": 0,
        "tie_word_embeddings": True, "torch_dtype": "float32",
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer()))
    of_it = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "model_max_length": 512}
    (folder / "tokenizer_config.json").write_text(json.dumps(of_it))
    (folder / "model.safetensors").write_bytes(weights())
