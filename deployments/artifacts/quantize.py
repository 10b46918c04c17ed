"""`python -m deployments.artifacts.quantize take|look|run|finish|tidy --model … --target …`: the steps of the job.

`take` looks at everything before and says which recipe is taken; `look` is the same and changes nothing. `run` starts
msModelSlim and tells of its layers. `finish` verifies what came out and gives the folder its name. `tidy` takes away
what a failed run has left. What `take` decides for the others lies in a file of the attempt's folder.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from deployments.artifacts import BadModel, modelslim, quant_checks, report, target, verify
from deployments.artifacts.config import read_json
from deployments.artifacts.progress import amount, clock
from deployments.artifacts.quant_checks import Asked, Item, Taken
from deployments.artifacts.read import Model, read
from deployments.stacks.said import FINE, ended
from deployments.steps import Text

NOTE = Path("quantize.json")  # in the attempt's folder, where every step begins
RECIPE, SOURCE = "recipe.yaml", "source"
NOTHING = 3  # the exit code of `tidy` where nothing was left


def take(asked: Asked, *, only_look: bool = False) -> None:
    """Raises BadModel."""
    taken = quant_checks.check(asked)
    for item in taken.items:
        print(f"{item['title'][0]} {item['title'][1]}: {item['found']}", flush=True)
        _report(item)
    if taken.refusals:
        raise BadModel(Text(" ".join(one.zh for one in taken.refusals), " ".join(one.en for one in taken.refusals)))
    if only_look:
        return
    part = target.begin(asked.target)
    empty(part)
    target.room(part, taken.output.high)
    source = _float16_copy(asked.model) if taken.float16 else asked.model
    recipe = _recipe(asked, taken)
    NOTE.write_text(
        json.dumps({
            "recipe": taken.recipe.id, "level": taken.level, "config": recipe, "tags": list(taken.tags),
            "source": str(source), "layers": taken.model.layers, "fingerprint": taken.model.fingerprint,
        }),
        encoding="utf-8",
    )  # fmt: skip


def _report(item: Item) -> None:
    if path := os.environ.get("ASCEND_ITEMS"):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps(item) + "\n")


def empty(part: Path) -> None:
    """What a run before has left goes: the tool cannot go on with it."""
    for path in list(part.iterdir()):
        if path.is_dir() and not path.is_symlink():
            target.give_up(path)
        else:
            path.unlink()


def _recipe(asked: Asked, taken: Taken) -> str:
    """The file that is named to the tool, '' where it finds the recipe by itself."""
    from deployments.artifacts import recipes

    if asked.calibration:
        recipes.rewrite(asked.tools, taken.recipe.path, Path(RECIPE), asked.calibration)
        return str(Path(RECIPE).absolute())
    return "" if taken.level == "verified" else taken.recipe.path


def _float16_copy(model: Path) -> Path:
    """A folder of links to the model with a config.json of its own that asks for float16; the model stays as it is."""
    folder = Path(SOURCE).absolute()
    target.give_up(folder)
    folder.mkdir()
    for path in sorted(model.iterdir()):
        if path.name != "config.json":
            (folder / path.name).symlink_to(path)
    config = {**read_json(model / "config.json"), "torch_dtype": "float16"}
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    print(f"config.json: torch_dtype float16, {folder}", flush=True)
    return folder


def note() -> dict[str, Any]:
    """Raises BadModel where no step before has left one."""
    return read_json(NOTE)


def run(asked: Asked) -> int:
    """Start msModelSlim; its exit code."""
    noted = note()
    argv = modelslim.command(
        asked.tools, source=str(noted["source"]), save=str(target.part_of(asked.target)), device=asked.device,
        quant_type=asked.type, model_type=asked.model_type, config=str(noted["config"]),
        tags=tuple(map(str, noted["tags"])), trust=asked.trust,
    )  # fmt: skip
    layers = noted["layers"] if isinstance(noted["layers"], int) else 0
    began = time.monotonic()
    code = modelslim.run(argv, activate=asked.activate, cpu=asked.device == "cpu", layers=layers)
    took_s = round(time.monotonic() - began, 1)
    NOTE.write_text(json.dumps({**noted, "took_s": took_s, "code": code}), encoding="utf-8")
    return code


def finish(asked: Asked) -> None:
    """Verify, name, tell. Raises BadModel; the folder keeps its name for half things then."""
    noted, part = note(), target.part_of(asked.target)
    parent = read(asked.model)
    if parent.fingerprint != noted["fingerprint"]:
        raise BadModel(
            Text(
                f"{asked.model} 在量化期间被改动，结果不可信。请确认没有别的程序写入它，再重试。",
                f"{asked.model} was changed while it was quantized, so the result is not to be trusted. See that "
                "nothing else "
                "writes there, then try again.",
            )
        )
    made = verify.check(part, asked.model, asked.type)
    readable(part)
    target.finish(part, asked.target)
    child = report.made(asked.target, via="quantized", parent=parent.fingerprint)
    for item in results(parent, child, made, noted):
        print(f"{item['title'][0]} {item['title'][1]}: {item['found']}", flush=True)
        _report(item)


def readable(part: Path) -> None:
    """The tool lets its own account alone read what it writes; whoever serves the model has to read it, too."""
    for path in part.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o644)


def results(parent: Model, child: Model, made: verify.Verified, noted: dict[str, Any]) -> list[Item]:
    """Items of the job's report: sizes, types of layers, time."""
    share = 100 * child.weight_bytes // max(1, parent.weight_bytes)
    kinds = ", ".join(f"{name} {count}" for name, count in sorted(made.kinds.items()))
    took = noted.get("took_s")
    rows = [
        ("size", "权重大小", "Size of weights",
         f"{amount(parent.weight_bytes)} → {amount(child.weight_bytes)} ({share} %)"),
        ("verified", "已核对", "Verified", f"{made.tensors} tensors, {kinds}"),
        ("taken", "配方", "Recipe", f"{noted['recipe']} ({noted['level']})"),
        ("took", "用时", "Time", clock(took) if isinstance(took, (int, float)) else "—"),
    ]  # fmt: skip
    return [{"key": f"quantize.{key}", "title": [zh, en], "verdict": "ok", "found": text} for key, zh, en, text in rows]


def tidy(asked: Asked) -> int:
    """What a run has left that was cut off goes. What the tool has ended well and is not as it should be may have taken
    days: it stays to be looked at, under its name for half things, until the next run."""
    part = target.part_of(asked.target)
    if not part.exists():
        return NOTHING
    if NOTE.exists() and note().get("code") == 0:
        print(f"{part}: 留作查看，下次运行时删除 stays to be looked at, and goes with the next run", flush=True)
        return NOTHING
    target.give_up(part)
    print(f"{part}: 已删除未完成的结果 half a result was taken away", flush=True)
    return 0


def read_arguments(arguments: list[str]) -> tuple[str, Asked]:
    parser = argparse.ArgumentParser(prog="deployments.artifacts.quantize")
    parser.add_argument("do", choices=("take", "look", "run", "finish", "tidy"))
    for name in ("model", "target", "tools"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--type", required=True)
    parser.add_argument("--model-type", required=True)
    parser.add_argument("--activate", default="")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--family", default="")
    parser.add_argument("--recipe", default="verified")
    parser.add_argument("--calibration", default="")
    parser.add_argument("--trust-remote-code", action="store_true", dest="trust")
    found = vars(parser.parse_args(arguments))
    return found.pop("do"), Asked(**found)


def main(arguments: list[str]) -> int:
    do, asked = read_arguments(arguments)
    try:
        if do == "run":
            return run(asked)
        if do == "tidy":
            return tidy(asked)
        if do == "finish":
            finish(asked)
        else:
            take(asked, only_look=do == "look")
    except BadModel as error:
        return ended(error.text)
    except OSError as error:
        return ended(disk_error(error))
    return ended(FINE)


def disk_error(error: OSError) -> Text:
    words = error.strerror or str(error)
    return Text(
        f"无法读写 {error.filename or '文件'}（{words}）。请检查磁盘空间与 Agent 账号的权限，再重试。",
        f"{error.filename or 'A file'} could not be read or written ({words}). Check the disk's room and the rights "
        "of the "
        "agent's account, then try again.",
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
