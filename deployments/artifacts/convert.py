"""`python -m deployments.artifacts.convert take|run|finish|tidy --how … --model … --target …`: the steps of the job.

Weights are converted by msModelSlim with a configuration that is made here from the model's own headers; graphs by atc
or converter_lite, which are steps of their own between `take` and `finish`.
"""

import argparse
import json
import sys
import time
from pathlib import Path

from deployments.artifacts import BadModel, modelslim, paths, quant_checks, report, target, verify
from deployments.artifacts.config import read_json
from deployments.artifacts.convert_words import NOT_FOR_VLLM, WAYS
from deployments.artifacts.progress import amount, clock
from deployments.artifacts.quantize import NOTE, disk_error, empty, note, readable
from deployments.artifacts.read import is_weight, read
from deployments.artifacts.tensors import Tensor, header
from deployments.stacks.said import FINE, ended
from deployments.steps import Text

CONFIG = Path("convert.yaml")
SCALE = ".weight_scale_inv"
FP8 = ("F8_E4M3", "F8_E5M2")
NOTHING = 3


def tensors_of(folder: Path) -> dict[str, Tensor]:
    """Raises BadModel."""
    return {name: one for path in sorted(folder.glob("*.safetensors")) for name, one in header(path).tensors.items()}


def layers(tensors: dict[str, Tensor], how: str) -> list[str]:
    """Last names of the layers that are converted: those with FP8 weights, or for MXFP8 every projection as well."""
    found = set()
    for name, one in tensors.items():
        module, _dot, last = name.rpartition(".")
        if last != "weight" or len(one.shape) != 2:
            continue
        if one.dtype in FP8 or (how == "mxfp8" and module.endswith("_proj")):
            found.add(module.rpartition(".")[2])
    return sorted(found)


def configuration(names: list[str], how: str) -> str:
    """YAML for msModelSlim; JSON of a text is YAML too, so that no name can break it."""
    to, saver = ("FLOAT", "huggingface") if how == "fp8_bf16" else ("W8A8_MXFP8", "ascend_v1")
    match = json.dumps([f"*.{name}" for name in names])
    return (
        f"apiversion: modelslim_convert\nmetadata:\n  config_id: {how.replace('_', '-')}\nspec:\n  preprocess: []\n"
        f"  linears:\n  - match: {match}\n    target: {to}\n    route: auto\n"
        f"  save:\n  - type: {saver}\n    part_file_size: 4\n  parallel:\n    workers: 1\n"
    )


def take(how: str, model: Path, to: Path) -> None:
    """Raises BadModel."""
    if WAYS[how].tool != "msmodelslim":
        take_graph(how, model, to)
        return
    quant_checks.check_paths(model, to)
    found = read(model)
    if found.problems:
        raise BadModel(found.problems[0].text)
    if found.format != "hf":
        raise BadModel(
            Text(f"{model} 是 {found.format}，不能这样转换。", f"{model} is {found.format}, which is not converted so.")
        )
    tensors = tensors_of(model)
    names = layers(tensors, how)
    if not names:
        raise BadModel(
            Text(
                f"{model} 里没有要转换的权重：它是 {found.dtype or '—'}，不是 FP8。vLLM-Ascend 可以直接加载它。",
                f"{model} holds no weights to convert: it is {found.dtype or '—'}, not FP8. vLLM-Ascend loads it as "
                "it is.",
            )
        )
    part = target.begin(to)
    empty(part)
    wanted = found.weight_bytes * (2 if how == "fp8_bf16" else 1)
    target.room(part, wanted)
    CONFIG.write_text(configuration(names, how), encoding="utf-8")
    print(f"{found.architecture}, {amount(found.weight_bytes)} → ≤ {amount(wanted)}: {', '.join(names)}", flush=True)
    NOTE.write_text(json.dumps({"fingerprint": found.fingerprint, "layers": found.layers}), encoding="utf-8")


def take_graph(how: str, model: Path, to: Path) -> None:
    """Raises BadModel."""
    for path in (model, to):
        if wrong := paths.problem(str(path)):
            raise BadModel(wrong)
    if model.suffix.lower() != WAYS[how].takes or not model.is_file():
        raise BadModel(
            Text(
                f"{model} 不是 {WAYS[how].takes} 文件。请写出该文件的完整路径。",
                f"{model} is no {WAYS[how].takes} file. Give the whole path of that file.",
            )
        )
    part = target.begin(to)
    empty(part)
    target.room(part, model.stat().st_size)
    print(f"{NOT_FOR_VLLM.zh} {NOT_FOR_VLLM.en}", flush=True)
    fingerprint = read(model.parent).fingerprint if (model.parent / "config.json").is_file() else ""
    NOTE.write_text(json.dumps({"fingerprint": fingerprint, "layers": None}), encoding="utf-8")


def run(model: Path, to: Path, tools: Path, activate: str) -> int:
    noted = note()
    argv = modelslim.command(
        tools, source=str(model), save=str(target.part_of(to)), device="cpu", config=str(CONFIG.absolute())
    )
    began = time.monotonic()
    code = modelslim.run(argv, activate=activate, cpu=True, layers=0)
    NOTE.write_text(json.dumps({**noted, "took_s": round(time.monotonic() - began, 1)}), encoding="utf-8")
    return code


def finish(how: str, model: Path, to: Path) -> None:
    """Raises BadModel."""
    noted, part = note(), target.part_of(to)
    if how == "fp8_bf16":
        check_floats(part, model)
    elif how == "mxfp8":
        verify.check(part, model, "w8a8")
    else:
        check_graph(part)
    readable(part)
    target.finish(part, to)
    made = report.made(to, via="converted", parent=str(noted["fingerprint"]))
    took = noted.get("took_s")
    print(f"{made.format}, {amount(made.bytes)}, {clock(took) if isinstance(took, (int, float)) else '—'}", flush=True)


def check_floats(part: Path, model: Path) -> None:
    """Each weight of the parent is there as a float of the same shape, and nothing says FP8. Raises BadModel."""
    found = read(part)
    wrong = [problem.text for problem in found.problems]
    before, after = tensors_of(model), tensors_of(part)
    lost = [
        name for name, one in before.items()
        if is_weight(name) and (name not in after or after[name].shape != one.shape or after[name].dtype in FP8)
    ]  # fmt: skip
    if lost:
        wrong.append(
            Text(
                f"{len(lost)} 个权重缺失或不是浮点，如 {lost[0]}",
                f"{len(lost)} weights are missing or no floats, {lost[0]} for one",
            )
        )
    if "quantization_config" in read_json(part / "config.json"):
        wrong.append(Text("config.json 仍说是 FP8", "config.json still says FP8"))
    if wrong:
        raise verify.wrong(wrong)


def check_graph(part: Path) -> None:
    """Raises BadModel where no file has come out."""
    found = [path for path in part.rglob("*") if path.is_file()]
    if not any(path.stat().st_size for path in found):
        raise BadModel(Text("没有写出文件。请看上面的日志。", "No file came out. See the log above."))
    read(part)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="deployments.artifacts.convert")
    parser.add_argument("do", choices=("take", "run", "finish", "tidy"))
    parser.add_argument("--how", choices=tuple(WAYS), required=True)
    for name in ("model", "target"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--tools", type=Path, default=Path("/"))
    parser.add_argument("--activate", default="")
    asked = parser.parse_args(arguments)
    try:
        if asked.do == "run":
            return run(asked.model, asked.target, asked.tools, asked.activate)
        if asked.do == "tidy":
            part = target.part_of(asked.target)
            target.give_up(part) if part.exists() else None
            return 0
        if asked.do == "take":
            take(asked.how, asked.model, asked.target)
        else:
            finish(asked.how, asked.model, asked.target)
    except BadModel as error:
        return ended(error.text)
    except OSError as error:
        return ended(disk_error(error))
    return ended(FINE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
