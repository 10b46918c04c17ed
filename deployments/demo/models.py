"""Models of simulated servers: those that the fleet was made with, and those that acted jobs have made since.

One is a file `<folder>/simulated-model.json` of the server: what reading a real folder would tell. What was deleted is
in the contents' `gone`, as every other file of the fleet's.
"""

import hashlib
import json
from typing import Any

from deployments.artifacts import known, paths
from deployments.artifacts.read import Model, Problem
from deployments.demo.scene import Scene
from deployments.steps import Text

FOLDER = "/opt/ascend-console/models"  # where consoles look unless told otherwise
FILE = "simulated-model.json"
# (folder's name, row of the catalogue, what it is, which third of the servers has it; None: each).
FLEET = (
    ("Qwen3-8B", "Qwen/Qwen3-8B", "hf", None),
    ("Qwen3-30B-A3B", "Qwen/Qwen3-30B-A3B", "hf", 0),
    ("Qwen3-30B-A3B-w8a8", "Qwen/Qwen3-30B-A3B", "w8a8", 0),
    ("DeepSeek-R1-Distill-Qwen-32B", "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "hf", 1),
    ("Qwen2.5-72B-Instruct", "Qwen/Qwen2.5-72B-Instruct", "half", 2),
)
ARCHITECTURES = {"qwen3": "Qwen3ForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM", "qwen2": "Qwen2ForCausalLM"}
SHARD = 4e9


def there(scene: Scene) -> dict[str, dict[str, Any]]:
    """{path: what a look at that folder tells (path, via, model, parent)}, in order."""
    found = {one["path"]: one for one in of_fleet(scene.made.index) if not _is_gone(scene, one["path"])}
    for name in scene.has.files:
        if name.endswith(f"/{FILE}"):
            told = _read(scene.has.files[name])
            if told:
                found[told["path"]] = told
    return dict(sorted(found.items()))


def put(scene: Scene, path: str, model: dict[str, Any], *, via: str, parent: str = "") -> dict[str, Any]:
    """A model that an acted job has made; what is to be told of it."""
    told = {"path": path, "via": via, "model": {**model, "path": path}, "parent": parent, "digest": ""}
    scene.change(put={f"{path}/{FILE}": json.dumps(told)})
    return told


def take_away(scene: Scene, path: str) -> None:
    scene.change(drop=[path])


def _is_gone(scene: Scene, path: str) -> bool:
    return path.strip("/") in scene.has.gone


def _read(text: str) -> dict[str, Any] | None:
    try:
        told = json.loads(text)
    except ValueError:
        return None
    is_one = isinstance(told, dict) and isinstance(told.get("path"), str) and isinstance(told.get("model"), dict)
    return told if is_one else None


def of_fleet(index: int) -> list[dict[str, Any]]:
    """Some of the fleet's models on each server, so that copies lie on many and no server has all."""
    return [_told(name, row, kind) for name, row, kind, third in FLEET if third in (None, index % 3)]


def of_catalogue(name: str, row: known.Known) -> dict[str, Any]:
    """A model that a simulated server fetches, as reading it would tell."""
    model = _model(name, row, "hf")
    return {"model": {**model.as_json(), "fingerprint": fingerprint(row.id.rpartition("/")[2])}}


def _told(name: str, row: str, kind: str) -> dict[str, Any]:
    model = _model(name, known.built_in().rows[row], kind).as_json()
    parent = fingerprint(name.removesuffix("-w8a8")) if kind == "w8a8" else ""
    return {"path": f"{FOLDER}/{name}", "via": "found", "model": model, "parent": parent, "digest": ""}


def fingerprint(name: str) -> str:
    """The same on every simulated server, and that of no real model."""
    return hashlib.sha256(f"simulated {name}".encode()).hexdigest()


def _model(name: str, row: known.Known, kind: str) -> Model:
    model_type = "qwen3_moe" if row.experts else "qwen3" if name.startswith("Qwen3") else "qwen2"
    size = int(1e9 * (row.weights["int8" if kind == "w8a8" else "bf16"] or 0))
    shards = max(1, -(-size // int(SHARD)))
    return Model(
        path=f"{FOLDER}/{name}", name=name, format="quantized" if kind == "w8a8" else "hf",
        bytes=size * (shards - 3) // shards + 12_000_000 if kind == "half" else size + 12_000_000,
        files=shards + 8, fingerprint=fingerprint(name), architecture=ARCHITECTURES[model_type],
        model_type=model_type, dtype="I8" if kind == "w8a8" else "BF16", parameters=int(1e9 * (row.params_b or 0)),
        layers=row.layers, hidden=row.hidden, heads=row.heads, kv_heads=row.kv_heads, head_dim=row.head_dim,
        vocab=row.vocab, max_position=row.max_position, experts=row.experts, tied=row.tied,
        quant_type="W8A8" if kind == "w8a8" else "", shards=shards, weight_bytes=size,
        dtypes={"I8": size * 9 // 10, "BF16": size // 10} if kind == "w8a8" else {"BF16": size}, tokenizer=True,
        problems=tuple(_missing(shards)) if kind == "half" else (),
    )  # fmt: skip


def _missing(shards: int) -> list[Problem]:
    """Three shards that a broken download has not brought."""
    names = [f"model-{n:05}-of-{shards:05}.safetensors" for n in (7, 8, 9)]
    return [
        Problem("missing_shard", Text(f"缺少分片 {name}。", f"The shard {name} is missing."), missing=True)
        for name in names
    ]


def inside(scene: Scene, folder: str) -> list[dict[str, Any]]:
    """Those in a folder or below it."""
    return [told for path, told in there(scene).items() if paths.inside(path, folder)]
