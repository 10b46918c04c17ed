"""Which recipe msModelSlim takes for a model and a type, by the same rules as the tool itself, so that it never asks.

The tool looks among the recipes of the model's family for one that is verified for this model, then for one that is
verified for it on another engine or chip, then among its default recipes; the last two it takes only after a question
that nobody would answer. So the choice is made here, and such a recipe is named to the tool (`--config_path`).
"""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from deployments.artifacts import BadModel, quant_words
from deployments.steps import Text

TABLE = Path(__file__).with_name("msmodelslim_recipes.json")
INSIDE = Path(__file__).with_name("recipes_inside.py")
ANSWERS_S = 120.0
ENGINE = "vLLM-Ascend"
DEFAULT = "default"
# Words of the tool's recipes for what a server has; a server without NPUs is CPU.
HARDWARE: dict[str, tuple[str, ...]] = {
    "A2": ("Atlas_A2_Inference", "Atlas_A2_Training"),
    "A3": ("Atlas_A3_Inference", "Atlas_A3_Training", "Atlas_A3_Interface"),
    "310P": ("Atlas_300I_Duo",),
    "A5": ("Ascend_950", "Atlas_350"),
    "": ("CPU",),
}
WHOLE, LAYERS = "whole", "layers"
# Families whose adapters read FP8 weights themselves (msmodelslim/model/*/convert_fp8_to_bf16.py, model_adapter.py).
READ_FP8 = ("deepseek_v3", "deepseek_v3_2", "deepseek_v4", "glm_5", "kimi_k2", "minimax_m2")


@dataclass(frozen=True)
class Recipe:
    """As recipes_inside.py tells it. `fa` are bits of the attention's quantization."""

    path: str
    family: str
    api: str
    id: str
    score: float = 0.0
    w_bit: int | None = None
    a_bit: int | None = None
    sparse: bool = False
    kv: bool = False
    fa: int | None = None
    models: tuple[str, ...] = ()
    tags: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=dict)
    runner: str = ""
    dataset: str = ""
    saver: str = ""

    @property
    def type(self) -> str:
        ending = "c8" if self.kv else f"f{self.fa}" if self.fa else ""
        return f"w{self.w_bit}a{self.a_bit}{ending}{'s' if self.sparse else ''}"

    @property
    def memory(self) -> str:
        """Whether the whole model lies in the device's memory, or a layer at a time."""
        return WHOLE if self.api == "modelslim_v0" or self.runner == "model_wise" else LAYERS


class Catalogue(NamedTuple):
    """What one installed msModelSlim has. `adapters`: {model type: family}."""

    version: str
    adapters: Mapping[str, str]
    recipes: tuple[Recipe, ...]
    calib: tuple[str, ...] = ()
    calib_dir: str = ""


class Choice(NamedTuple):
    """`level`: verified | other_hardware (verified, but not for this engine and chip) | default (promises nothing) |
    own (the operator's file) | none. `recipe` is None with `none` alone; `known`: whether the tool knows the model."""

    level: str
    recipe: Recipe | None
    known: bool
    tags: tuple[str, ...] = (ENGINE,)

    @property
    def is_exact(self) -> bool:
        """Whether the tool takes it by itself, without a question."""
        return self.level == "verified"


def choose(catalogue: Catalogue, model_type: str, quant_type: str, hardware: str) -> Choice:
    """`hardware` is a key of HARDWARE."""
    known = model_type in catalogue.adapters
    family = catalogue.adapters.get(model_type, DEFAULT)
    own = _of(catalogue, family, quant_type)
    other: Recipe | None = None
    for recipe in own if family != DEFAULT else ():
        if model_type in recipe.models:
            return Choice("verified", recipe, known)
        if recipe.models or model_type not in recipe.tags:
            continue
        if tags := _tags(recipe.tags[model_type], hardware):
            return Choice("verified", recipe, known, tags)
        other = other or recipe
    if other:
        return Choice("other_hardware", other, known)
    # The tool refuses a family without any recipe before it looks further.
    if any(recipe.family == family for recipe in catalogue.recipes):
        for recipe in _of(catalogue, DEFAULT, quant_type):
            return Choice("default", recipe, known)
    return Choice("none", None, known)


def _of(catalogue: Catalogue, family: str, quant_type: str) -> list[Recipe]:
    """Recipes of one family and type, in the tool's own order."""
    found = [one for one in catalogue.recipes if one.family == family and one.type == quant_type]
    return sorted(found, key=lambda one: (-one.score, one.id))


def _tags(rows: Sequence[Sequence[str]], hardware: str) -> tuple[str, ...]:
    """The words by which the recipe has been verified for vLLM-Ascend on this hardware, spelled as it spells them: the
    tool's own comparison knows no other. () where it has not."""
    wanted = {plain(word) for word in HARDWARE.get(hardware, ())}
    for row in rows:
        if plain(ENGINE) in map(plain, row) and wanted & set(map(plain, row)):
            return tuple(row)
    return ()


def plain(word: str) -> str:
    return word.lower().replace("_", "-")


def types_for(catalogue: Catalogue, model_type: str, hardware: str) -> dict[str, Choice]:
    """Every type that there is a recipe for, best first."""
    found = {kind: choose(catalogue, model_type, kind, hardware) for kind in quant_words.TYPES}
    order = ("verified", "other_hardware", "default")
    kept = [(kind, choice) for kind, choice in found.items() if choice.recipe]
    return dict(sorted(kept, key=lambda pair: order.index(pair[1].level)))


@lru_cache(maxsize=1)
def built_in() -> Catalogue:
    """That of the released tool, from a table beside this file (scripts/msmodelslim_recipes.py)."""
    return catalogue_of(json.loads(TABLE.read_text(encoding="utf-8")))


@lru_cache(maxsize=1)
def support() -> dict[str, Any]:
    """What vLLM-Ascend loads by family and type, and what calibration sets hold (quant_support.json)."""
    found: dict[str, Any] = json.loads(TABLE.with_name("quant_support.json").read_text(encoding="utf-8"))
    return found


# ---------- the installed package ----------


def installed(tools: Path) -> Catalogue:
    """What the msModelSlim of this environment has. Raises BadModel."""
    return catalogue_of(_ask(tools, "list"))


def one(tools: Path, path: Path) -> Recipe:
    """A recipe of the operator's own. Raises BadModel."""
    try:
        made = recipe_of(_ask(tools, "read", str(path)))
    except BadModel as error:
        raise BadModel(
            Text(
                f"{path} 不是可用的配方：{error.text.zh} 配方是含 apiversion 与 spec 的 YAML，可从 lab_practice 复制"
                "一个来改。",
                f"{path} is no recipe that can be used: {error.text.en} A recipe is YAML with apiversion and spec; "
                "copy "
                "one of lab_practice and change that.",
            )
        ) from error
    if made.api not in ("modelslim_v0", "modelslim_v1", "multimodal_vlm_modelslim_v1"):
        raise BadModel(
            Text(
                f"{path} 的 apiversion 是“{made.api[:60]}”，量化语言模型须为 modelslim_v1 或 modelslim_v0。",
                f"{path} has the apiversion “{made.api[:60]}”; to quantize a language model it is modelslim_v1 or "
                "modelslim_v0.",
            )
        )
    return made


def rewrite(tools: Path, recipe: str, out: Path, dataset: str) -> None:
    """Write the recipe with another calibration set. Raises BadModel."""
    _ask(tools, "write", recipe, str(out), dataset)


def catalogue_of(data: Any) -> Catalogue:
    """Raises BadModel where it is none."""
    try:
        adapters = {str(name): str(family) for name, family in data["adapters"].items()}
        recipes = tuple(recipe_of(row) for row in data["recipes"])
        return Catalogue(str(data["version"]), adapters, recipes, tuple(data["calib"]), str(data["calib_dir"]))
    except (KeyError, TypeError, AttributeError) as error:
        raise BadModel(NOT_WHOLE) from error


def recipe_of(row: Mapping[str, Any]) -> Recipe:
    """Raises BadModel."""
    try:
        return Recipe(**{**row, "models": tuple(row["models"])})
    except (KeyError, TypeError) as error:
        raise BadModel(NOT_WHOLE) from error


NOT_WHOLE = Text(
    "msModelSlim 的环境不完整。请重新安装它（安装软件栈，或作业“安装 msModelSlim”）。",
    "The environment of msModelSlim is not whole. Install it again (install the stack, or the job “Install "
    "msModelSlim”).",
)


def _ask(tools: Path, *arguments: str) -> Any:
    """Raises BadModel."""
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "ASCEND_REASON")}
    argv = [str(tools / "bin" / "python"), str(INSIDE), *arguments]
    try:
        asked = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env, timeout=ANSWERS_S, errors="replace"
        )
        if asked.returncode:
            last = (asked.stderr.strip().splitlines() or ["?"])[-1][:200]
            raise BadModel(Text(f"{last}。", f"{last}."))
        return json.loads(asked.stdout) if asked.stdout.strip() else {}
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        raise BadModel(NOT_WHOLE) from error
