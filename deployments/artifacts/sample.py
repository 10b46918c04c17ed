"""Models that are whole and know nothing: weights by chance, and a tokenizer of single bytes. Written without the
libraries that read them, so that one can lie on a server before any stack does.

Qwen2 and Llama, of 2 or 28 layers; 28 is how many msModelSlim's recipe of Qwen2.5-7B-Instruct names one by one.
"""

import array
import hashlib
import json
import random
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deployments.artifacts.digests import Digested, Manifest

KINDS = ("qwen2", "llama")
LAYERS = (2, 28)
HIDDEN, INNER, HEADS = 64, 128, 2  # heads of 32: vLLM on CPUs takes no smaller ones
LONGEST = 2048  # tokens: an instruction of a calibration set, byte by byte, and an answer
END, BEGIN_TURN, END_TURN = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIAL = (END, BEGIN_TURN, END_TURN)
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ARCHITECTURES = {"qwen2": "Qwen2ForCausalLM", "llama": "LlamaForCausalLM"}


def byte_names() -> dict[int, str]:
    """The sign that stands for each byte in a byte-level tokenizer: itself where it can be printed."""
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in printed]
    return {byte: chr(byte) for byte in printed} | {byte: chr(256 + n) for n, byte in enumerate(rest)}


# Words and endings that texts are full of. Each is one token, so that a calibration set has a third of the tokens that
# it has bytes, and quantizing takes seconds.
PIECES = (
    "the of and to in is that for it as was with be by on not he this are or his from at which but have an had they "
    "you were their one all we can her has there been if more when will would who so no what up said out some could "
    "them time may only other new two than into first these any such like over also after many most made between "
    "under where much through before because being well should people year years state world question answer true "
    "false passage about during each same while number part used system called known however often although without "
    "within against tion ing ed er es ly ment al ation ity ent ers ive ous able ate ist ance ions ies ight ther ould "
    "ough self land ish ver con pro com res str pre int est per ter ard ore ame ake ick ack ell ill oun ain ort ust "
    "ope "
)
COMMON = (
    "的一是了我不人在他有这上们来到时大地为子中你说生国年着就那和要出也得里后自以会家可下而过天去能对小多"
    "然于心学么之都好看起发当没成只如事把还用第样道想作种开美总从无情己面最女但现前些所同日手又行意动方期"
    "它头经长儿回位分爱老因很给名法间知世什两次使身者被高已亲其进此话常与活正感问题答"
)


def merges() -> list[list[str]]:
    """Pairs that become one token, in the order in which they do: those of each piece from its left to its right."""
    names = byte_names()
    found: dict[tuple[str, str], None] = {}
    pieces = [piece for word in PIECES.split() for piece in (word, f" {word}")]
    for piece in [*pieces, *COMMON, "，", "。", "？"]:
        left, *rest = (names[byte] for byte in piece.encode())
        for right in rest:
            found[left, right] = None
            left += right
    return [list(pair) for pair in found]


MERGES = merges()
TOKENS = list(dict.fromkeys([*SPECIAL, *byte_names().values(), *(left + right for left, right in MERGES)]))
VOCABULARY = len(TOKENS)


def tokenizer() -> dict[str, Any]:
    """What stands in tokenizer.json."""
    vocabulary = {name: n for n, name in enumerate(TOKENS)}
    added = [
        {"id": n, "content": word, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": True}
        for n, word in enumerate(SPECIAL)
    ]  # fmt: skip
    bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model: dict[str, Any] = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
             "vocab": vocabulary, "merges": MERGES}  # fmt: skip
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": bytes_, "post_processor": None, "decoder": bytes_, "model": model}  # fmt: skip


def shapes(kind: str, layers: int) -> dict[str, list[int]]:
    """Name -> shape of each weight. The head is not tied to the embedding: msModelSlim writes no tied one."""
    found: dict[str, list[int]] = {"model.embed_tokens.weight": [VOCABULARY, HIDDEN], "model.norm.weight": [HIDDEN]}
    found["lm_head.weight"] = [VOCABULARY, HIDDEN]
    for n in range(layers):
        at = f"model.layers.{n}"
        found |= {f"{at}.{name}.weight": [HIDDEN] for name in ("input_layernorm", "post_attention_layernorm")}
        found |= {f"{at}.self_attn.{name}_proj.weight": [HIDDEN, HIDDEN] for name in "qkvo"}
        if kind == "qwen2":
            found |= {f"{at}.self_attn.{name}_proj.bias": [HIDDEN] for name in "qkv"}
        found |= {f"{at}.mlp.{name}_proj.weight": [INNER, HIDDEN] for name in ("gate", "up")}
        found[f"{at}.mlp.down_proj.weight"] = [HIDDEN, INNER]
    return found


def weights(kind: str, layers: int) -> Iterator[bytes]:
    """The pieces of a safetensors file: the length of its header, the header, the numbers of each weight."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at, counts = 0, []
    for name, shape in shapes(kind, layers).items():
        counts.append((name, shape[0] * (shape[1] if len(shape) == 2 else 1)))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + 4 * counts[-1][1]]}
        at += 4 * counts[-1][1]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    yield struct.pack("<Q", len(text)) + text
    chance = random.Random(0)
    for name, count in counts:
        yield _numbers(1.0 if name.endswith("norm.weight") else 0.0, count, chance)


def _numbers(middle: float, count: int, chance: random.Random) -> bytes:
    values = array.array("f", (chance.gauss(middle, 0.02) for _n in range(count)))
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


def config(kind: str, layers: int) -> dict[str, Any]:
    return {
        "architectures": [ARCHITECTURES[kind]], "model_type": kind, "vocab_size": VOCABULARY, "hidden_size": HIDDEN,
        "intermediate_size": INNER, "num_hidden_layers": layers, "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS, "max_position_embeddings": LONGEST, "hidden_act": "silu", "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0, "eos_token_id": 0, "bos_token_id": 0, "pad_token_id": 0, "tie_word_embeddings": False,
        "torch_dtype": "float32",
    }  # fmt: skip


def contents(kind: str, layers: int) -> dict[str, Iterator[bytes]]:
    """Name -> pieces of each file."""
    of_it = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "pad_token": END,
             "model_max_length": LONGEST, "chat_template": TEMPLATE, "clean_up_tokenization_spaces": False}  # fmt: skip
    generation = {"bos_token_id": 0, "eos_token_id": [2, 0], "pad_token_id": 0, "do_sample": False}
    texts = {
        "config.json": config(kind, layers), "tokenizer.json": tokenizer(), "tokenizer_config.json": of_it,
        "generation_config.json": generation,
    }  # fmt: skip
    plain = {name: iter([json.dumps(content, indent=1).encode()]) for name, content in texts.items()}
    return {**plain, "model.safetensors": weights(kind, layers)}


def make(folder: Path, kind: str = "qwen2", layers: int = 2) -> None:
    """Write the model's files into `folder`. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, pieces in contents(kind, layers).items():
        with (folder / name).open("wb") as file:
            for piece in pieces:
                file.write(piece)


def manifest(kind: str, layers: int) -> Manifest:
    """The digests of the files as `make` writes them."""
    found = {}
    for name, pieces in contents(kind, layers).items():
        size, digest = 0, hashlib.sha256()
        for piece in pieces:
            size += len(piece)
            digest.update(piece)
        found[name] = Digested(size, digest.hexdigest())
    return Manifest(found)
