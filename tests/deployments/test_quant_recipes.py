"""Which recipe is taken: by the rules of the tool, from the table of the released package."""

import json

import pytest

from deployments.artifacts import quant_words, recipes
from deployments.artifacts.recipes import Catalogue, Recipe, choose

KNOWN = recipes.built_in()


@pytest.mark.parametrize(
    ("model", "kind", "hardware", "level", "recipe"),
    [
        ("Qwen2.5-7B-Instruct", "w8a8", "A2", "verified", "qwen2.5-7b-w8a8"),
        ("Qwen2.5-7B-Instruct", "w8a8", "", "verified", "qwen2.5-7b-w8a8"),
        ("Qwen2.5-7B-Instruct", "w8a16", "A2", "default", "default-w8a16"),
        ("Qwen2.5-7B-Instruct", "w4a4", "A2", "none", None),
        ("Qwen3-32B", "w8a8", "A2", "other_hardware", "qwen3-32b-dense-w8a8"),  # verified for another engine
        ("Qwen3-32B", "w8a8c8", "A2", "verified", "qwen3-32b-dense-w8a8c8"),
        ("GLM-5", "w8a8", "A3", "verified", "glm_5_w8a8"),
        ("GLM-5", "w8a8", "310P", "other_hardware", "glm_5_w8a8"),
        ("Somebody-7B", "w8a8", "A2", "default", "default-w8a8"),
        ("Qwen2.5-VL-7B-Instruct", "w8a8", "A2", "none", None),  # its family's folder is not there
    ],
)  # fmt: skip
def test_the_recipe_that_is_taken(model, kind, hardware, level, recipe):
    found = choose(KNOWN, model, kind, hardware)
    assert found.level == level and (found.recipe.id if found.recipe else None) == recipe
    assert found.known == (model != "Somebody-7B")


def test_tags_are_spelled_as_the_recipe_spells_them():
    # The tool compares them letter by letter: `vLLM-Ascend` would not find what says `vLLM_Ascend`, and it would ask.
    assert choose(KNOWN, "GLM-5", "w8a8", "A3").tags == ("vLLM_Ascend", "Atlas_A3_Inference")
    assert choose(KNOWN, "MiniMax-M2.7", "w8a8", "A3").tags == ("vllm-ascend", "Atlas_A3_Interface")


def test_the_higher_score_wins_then_the_name():
    rows = [Recipe(f"{n}.yaml", "f", "modelslim_v1", n, score, 8, 8, models=("M",)) for n, score in
            (("b", 90.0), ("a", 80.0), ("c", 90.0))]  # fmt: skip
    assert choose(Catalogue("1", {"M": "f"}, tuple(rows)), "M", "w8a8", "A2").recipe.id == "b"


def test_types_are_offered_best_first():
    assert {kind: one.level for kind, one in recipes.types_for(KNOWN, "Qwen3-32B", "A2").items()} == {
        "w4a4": "verified", "w8a8c8": "verified", "w8a8s": "verified", "w16a16s": "verified",
        "w8a8": "other_hardware", "w8a16": "default",
    }  # fmt: skip


def test_memory_depends_on_how_the_recipe_goes():
    assert choose(KNOWN, "Qwen2.5-7B-Instruct", "w8a8", "A2").recipe.memory == recipes.WHOLE
    assert choose(KNOWN, "Qwen2.5-7B-Instruct", "w8a16", "A2").recipe.memory == recipes.WHOLE
    assert choose(KNOWN, "GLM-5", "w8a8", "A3").recipe.memory == recipes.LAYERS


def test_the_tables_fit_each_other():
    kinds = {recipe.type for recipe in KNOWN.recipes}
    assert kinds <= set(quant_words.TYPES), kinds
    loads = recipes.support()["loads"]
    assert set(loads) <= set(recipes.HARDWARE) and all(
        kind in quant_words.TYPES for one in loads.values() for kind in one
    )
    assert set(recipes.support()["calibration"]) <= set(KNOWN.calib)
    assert json.loads(recipes.TABLE.read_text())["_about"]["source"]
