"""Quantizing and converting acted out: the recipe by the tool's own rules, the numbers of the model that lies there."""

import hashlib
from typing import Any

from deployments.artifacts import estimate, quantize, recipes
from deployments.artifacts.convert_words import NOT_FOR_VLLM, WAYS
from deployments.artifacts.progress import amount
from deployments.artifacts.quant_checks import LEVELS, Asked, no_recipe
from deployments.demo import models
from deployments.demo.scene import DONE, Act, Ended, Item, Scene, Told

LAYER_S, LAYERS = 0.4, 28
KINDS = {"w8a8": "W8A8", "w8a16": "W8A16", "w4a8": "W4A8_DYNAMIC", "w4a4": "W4A4_DYNAMIC"}


def model_at(scene: Scene, path: str) -> dict[str, Any]:
    """What reading that folder would tell, {} where no model lies there."""
    told = models.there(scene).get(path)
    found: dict[str, Any] = told["model"] if told else {}
    return found


def of(scene: Scene, words: list[str]) -> Act:
    """`deployments.artifacts.quantize`."""
    do, asked = quantize.read_arguments(words)
    if do == "run":
        return _run(scene, asked)
    if do == "finish":
        return _finish(scene, asked)
    if do == "tidy":
        return _tidy()
    return _take(scene, asked)


def _take(scene: Scene, asked: Asked) -> Act:
    yield 0.5
    known, model = recipes.built_in(), model_at(scene, str(asked.model))
    choice = recipes.choose(known, asked.model_type, asked.type, asked.family if asked.device != "cpu" else "")
    if choice.recipe is None:
        return Ended(1, no_recipe(known, asked))
    words = LEVELS[choice.level]
    said = f"{choice.recipe.id}: {words.zh} {words.en}"
    verdict = "ok" if choice.is_exact else "warning"
    yield _item("recipe", "将使用的配方", "The recipe that is taken", said, verdict)
    if size := _bytes(model):
        found = estimate.output(size, 0, str(model.get("dtype") or ""), asked.type)
        sizes = f"{amount(found.low)} – {amount(found.high)}"
        yield _item("disk", "结果大小估计", "Size of the result, estimated", sizes)
    yield f"simulated: {choice.recipe.id}"
    return DONE


def _item(key: str, zh: str, en: str, found: str, verdict: str = "ok") -> Item:
    return Item(
        key=f"quantize.{key}", title=[zh, en], verdict=verdict, found=found, wanted=None, remedy=None, job=None
    )  # fmt: skip


def _bytes(model: dict[str, Any]) -> int:
    size = model.get("weight_bytes")
    return size if isinstance(size, int) else 0


def _run(scene: Scene, asked: Asked) -> Act:
    layers = model_at(scene, str(asked.model)).get("layers") or LAYERS
    yield f"$ {asked.tools}/bin/msmodelslim quant --model_type {asked.model_type} --quant_type {asked.type}"
    for n in range(1, layers + 1):
        yield f'msmodelslim - INFO - Run processor LinearQuantProcessor for "model.layers.{n - 1}"'
        yield f"▸ layer {n} of {layers} 第 {n} 层，共 {layers} 层"
        yield LAYER_S
    yield "msmodelslim - INFO - ===========SUCCESS==========="
    return DONE


def _finish(scene: Scene, asked: Asked) -> Act:
    yield 1.0
    parent = model_at(scene, str(asked.model))
    size = _bytes(parent)
    made = estimate.output(size, 0, str(parent.get("dtype") or ""), asked.type).high
    kind = KINDS.get(asked.type, asked.type.upper())
    more = {"format": "quantized", "quant_type": kind, "dtype": "I8", "weight_bytes": made, "bytes": made}
    yield _put(scene, str(asked.target), parent, more, via="quantized")
    yield _item("size", "权重大小", "Size of weights", f"{amount(size)} → {amount(made)}")
    yield f"{asked.target}: {kind}"
    return DONE


def _put(scene: Scene, path: str, parent: dict[str, Any], more: dict[str, Any], *, via: str) -> Told:
    """The model lies there from now on; what is told of it."""
    before = str(parent.get("fingerprint") or "")
    name = path.rsplit("/", 1)[-1]
    made = hashlib.sha256(f"simulated {via} {before} {name}".encode()).hexdigest()
    empty = {"problems": [], "pickles": [], "files": 8, "tokenizer": True}
    model = {**empty, **parent, **more, "path": path, "name": name, "fingerprint": made}
    data = models.put(scene, path, model, via=via, parent=before)
    return Told(told="artifact", data=data)


def _tidy() -> Act:
    yield 0.1
    return Ended(quantize.NOTHING)


def convert(scene: Scene, words: list[str]) -> Act:
    """`deployments.artifacts.convert`; atc and converter_lite are acted by `graph`."""
    asked = dict(word.split("=", 1) for word in words[1:] if "=" in word)
    how, model, target = (asked.get(f"--{name}", "") for name in ("how", "model", "target"))
    yield 0.5
    if words[0] == "take" and how in WAYS and not WAYS[how].serves:
        yield f"{NOT_FOR_VLLM.zh} {NOT_FOR_VLLM.en}"
    if words[0] == "run":
        for n in range(1, 6):
            yield f"simulated: {20 * n} %"
            yield 1.0
    if words[0] == "finish":
        more = {"fp8_bf16": {"format": "hf", "dtype": "BF16", "quant_type": ""},
                "mxfp8": {"format": "quantized", "dtype": "F8_E4M3", "quant_type": "W8A8_MXFP8"}}.get(
            how, {"format": "om" if how.endswith("_om") else "mindir"}
        )  # fmt: skip
        yield _put(scene, target, model_at(scene, model), more, via="converted")
        yield f"{target}: {more['format']}"
    return DONE


def graph(words: list[str]) -> Act:
    """atc and converter_lite say on success what their steps wait for."""
    yield f"{words[0]} start working now, please wait for a moment."
    yield 3.0
    yield "ATC run success" if words[0] == "atc" else "CONVERT RESULT SUCCESS:0"
    return DONE
