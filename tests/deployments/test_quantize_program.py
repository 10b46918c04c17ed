"""The steps of quantizing, with a tool that misbehaves: what it leaves is never offered, the model stays as it is."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deployments.artifacts import modelslim, quantize
from deployments.kinds import quantize as kind
from tests.deployments.models_on_disk import model, safetensors
from tests.deployments.tiny_tool import Tool

NAMES = {f"model.layers.{n}.mlp.{name}_proj.weight": (48, 48) for n in range(3) for name in ("up", "down")}
NAMES |= {"model.embed_tokens.weight": (301, 48)}


class Bench:
    """`run` goes through the steps as a job does; `target` is where the result is to lie."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.tool = folder, Tool(folder)
        self.source = model(folder / "models" / "Tiny-1B", config={"tie_word_embeddings": False})
        for path in self.source.glob("*.safetensors*"):
            path.unlink()
        safetensors(self.source / "model.safetensors", NAMES)
        self.target = folder / "models" / "out"
        (folder / "attempt").mkdir()
        self.before = self.content(self.source)
        self.reason = ""

    def content(self, folder: Path) -> dict[str, bytes]:
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def params(self, **more: object) -> kind.Params:
        given = {"model": str(self.source), "target": str(self.target), "model_type": "Tiny-1B", "quant_type": "w8a8",
                 "tools": str(self.tool.home)}  # fmt: skip
        return kind.Params(**{**given, **more})  # type: ignore[arg-type]

    def run(self, **more: object) -> list[tuple[str, int]]:
        """(step, exit code) of each that ran; the step that tidies runs always."""
        found, failed = [], False
        for step in kind.steps(self.params(**more)):
            do = step.argv[3]
            if failed and not step.always:
                continue
            reason = self.folder / "reason"
            reason.unlink(missing_ok=True)
            env = {**os.environ, "ASCEND_ITEMS": str(self.folder / "items"), "ASCEND_REASON": str(reason),
                   "PYTHONPATH": str(Path.cwd())}  # fmt: skip
            done = subprocess.run([sys.executable, *step.argv[1:]], env=env, cwd=self.folder / "attempt",
                                  capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120)  # fmt: skip
            found.append((do, done.returncode))
            if done.returncode and do != "tidy":
                failed, self.output = True, done.stdout + done.stderr
                self.reason = json.loads(reason.read_text())[1] if reason.exists() else ""
            elif do == "run":
                self.output = done.stdout
        return found

    def told(self) -> list[dict]:
        lines = (self.folder / "items").read_text().splitlines() if (self.folder / "items").exists() else []
        return [row["data"] for row in map(json.loads, lines) if "told" in row]

    def items(self) -> dict[str, dict]:
        rows = map(json.loads, (self.folder / "items").read_text().splitlines())
        return {row["key"]: row for row in rows if "key" in row}

    def check_nothing_left(self, *half: str) -> None:
        """But what is named so, which nobody is offered."""
        assert self.content(self.source) == self.before, "the model was touched"
        assert self.told() == [] and not self.target.exists()
        assert {path.name for path in self.target.parent.iterdir()} == {"Tiny-1B", *half}


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def test_a_model_is_quantized_verified_and_told(bench):
    assert bench.run() == [("take", 0), ("run", 0), ("finish", 0), ("tidy", quantize.NOTHING)]
    (told,) = bench.told()
    assert told["via"] == "quantized" and told["path"] == str(bench.target) and len(told["parent"]) == 64
    assert told["model"]["format"] == "quantized" and told["model"]["quant_type"] == "W8A8_DYNAMIC"
    assert bench.content(bench.source) == bench.before
    items = bench.items()
    assert "tiny-w8a8" in items["quantize.recipe"]["found"] and items["quantize.recipe"]["verdict"] == "ok"
    assert "1 行 rows. One and one" in items["quantize.calibration"]["found"]
    assert "FLOAT 1, W8A8_DYNAMIC 6" in items["quantize.verified"]["found"]
    assert {oct(path.stat().st_mode & 0o777) for path in bench.target.iterdir()} == {"0o644"}
    asked = bench.tool.asked
    part = f"{bench.target.parent}/.out.part"
    assert asked["argv"] == [
        "quant", "--model_path", str(bench.source), "--save_path", part, "--device", "cpu", "--model_type", "Tiny-1B",
        "--quant_type", "w8a8", "--tag", "vLLM-Ascend", "--trust_remote_code", "False",
    ]  # fmt: skip
    env = asked["env"]
    assert env["HF_HUB_OFFLINE"] == "1" and env["TORCH_DEVICE_BACKEND_AUTOLOAD"] == "0"
    assert not {"PYTHONPATH", "ASCEND_REASON", "ASCEND_ITEMS"} & set(env)
    assert "layer 3 of 3" in bench.output
    assert 'Run processor LinearQuantProcessor for "model.layers.1"' in bench.output, "the log stays whole"


def test_a_recipe_that_is_not_verified_must_be_accepted_and_is_then_named(bench):
    assert bench.run(quant_type="w8a16")[0] == ("take", 1) and "only default-w8a16" in bench.reason
    assert not bench.tool.was_run
    bench.check_nothing_left()
    bench.run(quant_type="w8a16", accept=True)
    words = bench.tool.asked["argv"]
    assert "--quant_type" not in words and words[words.index("--config_path") + 1].endswith("default-w8a16.yaml")


def test_a_calibration_set_of_the_operators_own_goes_into_a_copy_of_the_recipe(bench):
    own = bench.folder / "own.jsonl"
    own.write_text('{"inputs_pretokenized": "你好"}\n{"inputs_pretokenized": "and good day"}\n')
    bench.run(calibration=str(own))
    words = bench.tool.asked["argv"]
    copy = Path(words[words.index("--config_path") + 1])
    assert json.loads(copy.read_text())["spec"]["dataset"] == str(own)
    assert "2 行 rows. 你好" in bench.items()["quantize.calibration"]["found"]
    recipe = bench.tool.home / "site/msmodelslim/lab_practice/tiny/tiny-w8a8.yaml"
    assert json.loads(recipe.read_text())["spec"]["dataset"] == "mix_calib.jsonl"


@pytest.mark.parametrize(
    ("mode", "step", "says"),
    [
        ("asks", "run", ""), ("full", "run", ""), ("killed", "run", ""), ("says anything", "run", ""),
        ("no_scale", "finish", "scales or offsets that are missing (6)"), ("nan", "finish",
         "scales that are no numbers"),
        ("lost", "finish", "weights that are missing (1)"), ("cut", "finish", "is damaged"),
        ("undescribed", "finish", "there is no quant_model_description.json"),
    ],
)  # fmt: skip
def test_what_went_wrong_is_never_offered(bench, mode, step, says):
    bench.tool.mode(mode)
    ran = bench.run()
    ended_well = step == "finish"  # by its exit code: what it wrote may have taken days, and stays to be looked at
    assert ran[-2][0] == step and ran[-2][1] != 0 and ran[-1] == ("tidy", quantize.NOTHING if ended_well else 0)
    assert says in bench.reason
    bench.check_nothing_left(*([".out.part"] if ended_well else []))
    bench.tool.mode("good")
    assert [code for _step, code in bench.run()] == [0, 0, 0, quantize.NOTHING]


def test_a_model_that_changes_meanwhile_makes_the_result_worthless(bench):
    bench.tool.mode("touches_source")
    assert bench.run()[-2] == ("finish", 1) and "was changed while" in bench.reason
    assert not bench.target.exists() and bench.told() == []


def test_what_an_earlier_run_left_is_taken_away_first(bench):
    part = bench.target.parent / ".out.part"
    (part / "deep").mkdir(parents=True)
    (part / "old.safetensors").write_bytes(b"x")
    (part / "link").symlink_to(bench.source)
    bench.run()
    assert {path.name for path in bench.target.iterdir()} == {
        "config.json", "tokenizer.json", "quant_model_description.json", "quant_model_weights.safetensors",
    }  # fmt: skip
    assert bench.content(bench.source) == bench.before


def no_config(bench):
    (bench.source / "config.json").unlink()


def corrupt(bench):
    (bench.source / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0nothing!")


def missing_shard(bench):
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors"}}
    (bench.source / "model.safetensors.index.json").write_text(json.dumps(index))


def circle(bench):
    (bench.source / "a.safetensors").symlink_to("a.safetensors")


def full_target(bench):
    bench.target.mkdir()
    (bench.target / "something").write_text("")


def quantized(bench):
    (bench.source / "quant_model_description.json").write_text('{"model_quant_type": "W8A8"}')


def fp8(bench):
    config = json.loads((bench.source / "config.json").read_text())
    (bench.source / "config.json").write_text(json.dumps({**config, "quantization_config": {"quant_method": "fp8"}}))


def own_code(bench):
    config = json.loads((bench.source / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "configuration_tiny.Config"}
    (bench.source / "config.json").write_text(json.dumps(config))
    (bench.source / "configuration_tiny.py").write_text("raise SystemExit\n")


def bad_rows(bench):
    (bench.folder / "own.jsonl").write_text('{"inputs_pretokenized": "fine"}\nnot JSON\n')


def bad_recipe(bench):
    (bench.folder / "own.yaml").write_text("[1, 2]")


def other_recipe(bench):
    (bench.folder / "own.yaml").write_text(bench.tool.recipe("default", "own", 4, 8).read_text())


@pytest.mark.parametrize(
    ("break_it", "more", "says"),
    [
        (no_config, {}, "holds no config.json"), (corrupt, {}, "model.safetensors is damaged"),
        (missing_shard, {}, "model-00001-of-00002.safetensors is missing"), (circle, {}, "leads to no file"),
        (full_target, {}, "is not empty"), (quantized, {}, "already and cannot be quantized"), (fp8, {}, "FP8"),
        (own_code, {}, "Python code of its own"), (None, {"quant_type": "w4a4"}, "has no recipe to make Tiny-1B w4a4"),
        (None, {"model_type": "Nobody"}, "has no recipe to make Nobody w8a8"),
        (None, {"target": "{source}/inside"}, "lie within each other"), (None, {"target": "relative"}, "whole path"),
        (None, {"model": "{folder}/nowhere"}, "no folder"), (None, {"model": "{folder}/有 blank"}, "letters, digits"),
        (None, {"target": "/etc/model"}, "system's own"), (None, {"calibration": "other.jsonl"},
         "There are: mix_calib"),
        (bad_rows, {"calibration": "{folder}/own.jsonl"}, "line 2 is no JSON"),
        (bad_recipe, {"recipe": "{folder}/own.yaml"}, "is no recipe that can be used: it has no spec"),
        (other_recipe, {"recipe": "{folder}/own.yaml"}, "is for w4a8, and w8a8 is asked for"),
        (None, {"recipe": "{folder}/none.yaml"}, "is no recipe that can be used"),
        (None, {"tools": "{folder}/none"}, "msModelSlim is not whole"),
    ],
)  # fmt: skip
def test_bad_input_gets_a_sentence_and_nothing_begins(bench, break_it, more, says):
    if break_it:
        break_it(bench)
    bench.before = bench.content(bench.source)
    places = {"source": bench.source, "folder": bench.folder}
    ran = bench.run(**{name: value.format(**places) for name, value in more.items()})
    assert ran[0] == ("take", 1) and says in bench.reason, bench.reason
    assert not bench.tool.was_run and bench.told() == []
    assert bench.content(bench.source) == bench.before
    assert not list(bench.folder.rglob("*.part"))


def test_310p_gets_float16_in_a_copy_of_the_config(bench):
    bench.run(family="310P", npus=["0000:81:00.0"])
    words = bench.tool.asked["argv"]
    source = Path(words[words.index("--model_path") + 1])
    assert source != bench.source and json.loads((source / "config.json").read_text())["torch_dtype"] == "float16"
    assert (source / "model.safetensors").resolve() == bench.source / "model.safetensors"
    assert json.loads((bench.source / "config.json").read_text())["torch_dtype"] == "bfloat16"


def test_a_disk_that_is_too_small_is_told_beforehand(bench, monkeypatch):
    from deployments.artifacts import quant_checks

    monkeypatch.setattr(quant_checks.shutil, "disk_usage", lambda _path: os.terminal_size((0, 0)) and _Usage())
    asked = quant_checks.Asked(bench.source, bench.target, bench.tool.home, "w8a8", "Tiny-1B")
    (refusal,) = quant_checks.check(asked).refusals
    assert "has 1.0 kB left" in refusal.en


class _Usage:
    free = 1000


@pytest.mark.parametrize(("npus", "word"), [(0, "cpu"), (1, "npu"), (2, "npu:0,1"), (4, "npu:0,1,2,3")])
def test_devices_are_counted_among_the_visible_ones(npus, word):
    assert modelslim.device(npus) == word


def test_layers_are_heard_in_both_kinds_of_recipe():
    heard = modelslim.Layers(28)
    heard.at = -10.0
    assert "layer 7 of 28" in heard.feed(b'- INFO - Run processor AscendV1Saver for "model.layers.6"\n')
    heard.at = -10.0
    line = b"- INFO - layer: 'model.layers.8.mlp.up_proj.quant_input', range: tensor(1.5), Automatically"
    assert heard.feed(line[:40]) == "" and "layer 9 of 28" in heard.feed(line[40:] + b"\n")
    heard.at = -10.0
    bar = " 14%|█▍        | 7/50 [00:02<00:12,  3.20it/s]\r".encode()
    assert "batch 7 of 50" in heard.feed(bar[:20]) + heard.feed(bar[20:])
    assert heard.feed(b"feature process:  20%|##   | 1/5 [00:00<00:01]\r") == ""
    assert "layer 28 of 28" in heard.feed(b'Run processor X for "model.language_model.layers.27"\n'), "the last at once"


def test_who_ends_the_step_ends_the_tool(bench):
    bench.tool.mode("hangs")
    take, run, *_rest = kind.steps(bench.params())
    env = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    where = {"env": env, "cwd": bench.folder / "attempt", "stdin": subprocess.DEVNULL}
    subprocess.run([sys.executable, *take.argv[1:]], check=True, stdout=subprocess.DEVNULL, **where)
    process = subprocess.Popen([sys.executable, *run.argv[1:]], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               start_new_session=True, **where)  # fmt: skip
    while b"it hangs" not in process.stdout.readline():
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    _output, errors = process.communicate(timeout=30)  # both pipes end only when the tool has ended
    assert process.returncode != 0 and b"KeyboardInterrupt" in errors and b"deployments" not in errors, errors


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_disk_that_fills_halfway_leaves_nothing(bench):
    disk = bench.folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=280m", "none", str(disk)], check=True)
    try:
        bench.tool.mode("fills")
        ran = bench.run(target=str(disk / "out"))
        assert ran == [("take", 0), ("run", 1), ("tidy", 0)] and "No space left" in bench.output
        assert list(disk.iterdir()) == [] and bench.told() == []
        assert bench.content(bench.source) == bench.before
        (disk / "ballast").write_bytes(bytes(200_000_000))
        assert bench.run(target=str(disk / "out"))[0] == ("take", 1) and "Make room" in bench.reason
    finally:
        subprocess.run(["umount", str(disk)], check=True)
