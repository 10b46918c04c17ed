"""The real msModelSlim on the CPU: what it makes of a small model is verified, and what was spoilt of it is not."""

import json
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from deployments.artifacts import BadModel, recipes, verify
from deployments.artifacts.read import DESCRIPTION
from deployments.artifacts.recipes_inside import row
from deployments.kinds import convert, quantize
from tests.engines import quantizable

ASKS = """
import json, sys, pathlib
from msmodelslim.app.naive_quantization import NaiveQuantizationApplication as App
from msmodelslim.core.const import QuantType
from msmodelslim.infra.yaml_practice_manager import YamlPracticeManager
import msmodelslim
home = pathlib.Path(msmodelslim.__file__).parent / "lab_practice"
app = App(YamlPracticeManager(official_config_dir=home), None, None)
for family, model, kind, tags in json.load(sys.stdin):
    try:
        config, asks = app.get_config(family, model, QuantType(kind), tags)
        found = [config.metadata.config_id, bool(asks)]
    except Exception as error:
        found = [None, True]
    print(json.dumps(found))
"""


class Bench:
    """`run(kind, params)` goes through the steps of a job; `told` is what they told."""

    def __init__(self, folder: Path, stack: Path) -> None:
        self.folder, self.stack = folder, stack
        self.told: list[dict] = []

    @property
    def filled(self) -> dict[str, str]:
        return {"tools": f"{self.stack}/msmodelslim", "activate": f"{self.stack}/activate"}

    def run(self, kind, name: str, **asked: object) -> str:
        """The output of each step; asserts that all went well."""
        attempt = self.folder / f"attempt-{name}"
        attempt.mkdir()
        output = ""
        env = {
            **os.environ,
            "PYTHONPATH": str(Path.cwd()),
            "ASCEND_ITEMS": str(attempt / "items"),
            "OMP_NUM_THREADS": "1",
        }
        for step in kind.steps(kind.Params(**self.filled, **asked)):
            argv = [sys.executable, *step.argv[1:]]
            done = subprocess.run(argv, env=env, cwd=attempt, capture_output=True, text=True, stdin=subprocess.DEVNULL)
            output += done.stdout
            assert done.returncode in (0, *step.skips), (step.title, done.stdout[-3000:], done.stderr[-3000:])
        self.told += [
            one["data"] for one in map(json.loads, (attempt / "items").read_text().splitlines()) if "told" in one
        ]
        return output


@pytest.fixture(scope="module")
def bench(tmp_path_factory, cpu_stack):
    return Bench(tmp_path_factory.mktemp("models"), cpu_stack)


@pytest.fixture(scope="module")
def parent(bench):
    return quantizable.make(bench.folder / "Qwen2.5-7B-Instruct")


@pytest.fixture(scope="module")
def w8a8(bench, parent):
    """(folder, output of the job)"""
    target = bench.folder / "w8a8"
    asked = {"model": str(parent), "target": str(target), "model_type": "Qwen2.5-7B-Instruct", "quant_type": "w8a8"}
    return target, bench.run(quantize, "w8a8", **asked)


def test_w8a8_by_the_verified_recipe(bench, parent, w8a8):
    target, output = w8a8
    assert "qwen2.5-7b-w8a8" in output and "layer 28 of 28" in output
    found = verify.check(target, parent, "w8a8")
    assert found.kinds == {"W8A8": 28 * 6, "FLOAT": 28 + 3 + 56}
    told = bench.told[0]
    assert told["via"] == "quantized" and told["model"]["quant_type"] == "W8A8"
    assert told["model"]["weight_bytes"] < 0.6 * (parent / "model.safetensors").stat().st_size


def test_w8a16_by_the_default_recipe(bench, parent):
    target = bench.folder / "w8a16"
    asked = {"model": str(parent), "target": str(target), "model_type": "Qwen2.5-7B-Instruct", "quant_type": "w8a16"}
    output = bench.run(quantize, "w8a16", accept=True, **asked)
    assert "layer 28 of 28" in output and "default-w8a16" in output
    assert verify.check(target, parent, "w8a16").kinds["W8A16"] >= 28 * 7


def test_fp8_becomes_bf16_and_mxfp8(bench):
    source = quantizable.make_fp8(bench.folder / "fp8")
    bench.run(convert, "bf16", model=str(source), target=str(bench.folder / "bf16"), how="fp8_bf16")
    bench.run(convert, "mxfp8", model=str(source), target=str(bench.folder / "mxfp8"), how="mxfp8")
    made = [(one["via"], one["model"]["dtype"], one["model"]["quant_type"]) for one in bench.told[-2:]]
    assert made == [("converted", "BF16", ""), ("converted", "F8_E4M3", "W8A8_MXFP8")]


# ---------- spoilt ----------


def weights(folder):
    return next(folder.glob("*.safetensors"))


def rewrite(folder, change):
    """Change the header {name: row} and the numbers of the weights."""
    raw = weights(folder).read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    rows, data = json.loads(raw[8 : 8 + size]), bytearray(raw[8 + size :])
    change(rows, data)
    text = json.dumps(rows).encode()
    path = weights(folder)
    path.chmod(0o644)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def cut(folder):
    path = weights(folder)
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-4096])


def no_description(folder):
    (folder / DESCRIPTION).unlink()


def bad_description(folder):
    (folder / DESCRIPTION).write_text("{")


def lost_weight(folder):
    def rename(rows, _data):
        rows["model.layers.3.mlp.up_proj.weight2"] = rows.pop("model.layers.3.mlp.up_proj.weight")

    rewrite(folder, rename)


def scale_of_nothing(folder):
    def spoil(rows, data):
        begin, end = rows["model.layers.0.self_attn.q_proj.weight_scale"]["data_offsets"]
        data[begin:end] = b"\xff\xff\xff\x7f" * ((end - begin) // 4)

    rewrite(folder, spoil)


def other_type(folder):
    path = folder / DESCRIPTION
    said = json.loads(path.read_text())
    said["model.layers.0.mlp.down_proj.weight"] = "W8A8"
    path.write_text(json.dumps(said))


def missing_shard(folder):
    index = {"weight_map": {"model.norm.weight": "quant_model_weights-00001-of-00002.safetensors"}}
    (folder / "quant_model_weights.safetensors.index.json").write_text(json.dumps(index))


@pytest.mark.parametrize(
    "spoil", [cut, no_description, bad_description, lost_weight, scale_of_nothing, other_type, missing_shard]
)
def test_what_was_spoilt_is_not_verified(parent, w8a8, tmp_path, spoil):
    folder = tmp_path / "spoilt"
    shutil.copytree(w8a8[0], folder)
    spoil(folder)
    with pytest.raises(BadModel) as refused:
        verify.check(folder, parent, "w8a8")
    assert refused.value.text.en and refused.value.text.zh


# ---------- recipes ----------


def test_the_table_is_that_of_the_installed_package(cpu_stack):
    there, known = recipes.installed(cpu_stack / "msmodelslim"), recipes.built_in()
    assert there.version == known.version and there.adapters == known.adapters and set(known.calib) == set(there.calib)
    plain = [recipe.__dict__ | {"path": recipe.path.partition("/lab_practice/")[2]} for recipe in there.recipes]
    assert plain == [recipe.__dict__ for recipe in known.recipes]
    assert row  # what reads them runs in that environment


def test_the_tool_itself_would_take_the_same_recipe_and_ask_where_we_say(cpu_stack):
    known = recipes.built_in()
    kinds = ("w8a8", "w8a16", "w4a8", "w8a8c8", "w8a8s")
    cases, ours = [], []
    for model, family in known.adapters.items():
        if not any(recipe.family == family for recipe in known.recipes) or model == recipes.DEFAULT:
            continue
        for kind in kinds:
            choice = recipes.choose(known, model, kind, "A2")
            tags = list(choice.tags) if choice.is_exact else [recipes.ENGINE, recipes.HARDWARE["A2"][0]]
            cases.append((family, model, kind, tags))
            ours.append((choice.recipe.id if choice.recipe else None, choice.is_exact))
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    argv = [f"{cpu_stack}/msmodelslim/bin/python", "-c", ASKS]
    done = subprocess.run(argv, input=json.dumps(cases), capture_output=True, text=True, env=env, check=True)
    theirs = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert len(theirs) == len(cases)
    for case, (recipe, exact), (named, asks) in zip(cases, ours, theirs, strict=True):
        if exact:
            assert (named, asks) == (recipe, False), case
        elif recipe is not None:  # it would ask: we name that recipe to it
            assert asks and named == recipe, case
        else:
            assert asks, case
