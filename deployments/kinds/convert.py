"""Convert a model: FP8 weights for chips that have none, and graphs for other runtimes, which vLLM does not read."""

from dataclasses import dataclass
from pathlib import Path

from deployments.artifacts.convert_words import NOT_FOR_VLLM, WAYS
from deployments.artifacts.paths import EXAMPLE, PATH, lock
from deployments.artifacts.quant_failures import ATC, LITE, MODELSLIM
from deployments.artifacts.target import part_of
from deployments.stacks.cann_layer import with_env
from deployments.steps import Step, Text, param, python_module

TITLE = Text("转换模型", "Convert a model")
ACTED = True
FILLED = ("tools", "activate", "chip")  # by the console, when the job is queued
CONVERT_S, LOOK_S = 24 * 3600.0, 600.0
BY_CONSOLE = Text("由控制台填写。", "The console fills it in.")
ATC_SAYS, LITE_SAYS = (r"ATC run success",), (r"CONVERT RESULT SUCCESS", r"convert success")
SHAPE = r"|[A-Za-z0-9_.:/-]{1,120}:-?\d+(,-?\d+){0,7}(;[A-Za-z0-9_.:/-]{1,120}:-?\d+(,-?\d+){0,7}){0,31}"


@dataclass(frozen=True)
class Params:
    model: str = param(
        "artifact",
        zh="模型",
        en="Model",
        pattern=PATH,
        example=EXAMPLE,
        help=Text(
            "模型目录；转换图时是文件（.onnx、.air、.mindir）。",
            "A model's folder; for graphs a file (.onnx, .air, .mindir).",
        ),
    )
    target: str = param("new_folder", zh="结果目录", en="Folder of the result", pattern=PATH, example=EXAMPLE)
    how: str = param(
        "text",
        zh="转换方式",
        en="Conversion",
        default="fp8_bf16",
        most_characters=2000,
        help=Text(
            f"{'、'.join(WAYS)}。除前两种外：{NOT_FOR_VLLM.zh}",
            f"{', '.join(WAYS)}. Apart from the first two: {NOT_FOR_VLLM.en}",
        ),
    )
    input_shape: str = param(
        "text",
        zh="输入形状",
        en="Shapes of inputs",
        default="",
        pattern=SHAPE,
        help=Text(
            "只用于 atc，如 input_ids:1,128;attention_mask:1,128。",
            "For atc alone: input_ids:1,128;attention_mask:1,128.",
        ),
    )
    soc_version: str = param(
        "text",
        zh="SoC 版本",
        en="SoC version",
        default="",
        pattern=r"|Ascend[A-Za-z0-9_]{2,30}",
        help=Text(
            "只用于 atc；空为 Ascend + npu-smi 的名称。",
            "For atc alone; empty: Ascend and the name that npu-smi prints.",
        ),
    )
    tools: str = param("text", zh="msModelSlim 的环境", en="Environment of msModelSlim", default="", help=BY_CONSOLE)
    activate: str = param("text", zh="软件栈的 activate", en="The stack's activate", default="", help=BY_CONSOLE)
    chip: str = param("text", zh="芯片", en="Chip", default="", help=BY_CONSOLE)


def locks(p: Params) -> list[str]:
    return [lock(p.target)]


def step(p: Params, do: str) -> list[str]:
    given = {"--how": p.how, "--model": p.model, "--target": p.target, "--tools": p.tools, "--activate": p.activate}
    return python_module("deployments.artifacts.convert", do, *(f"{k}={v}" for k, v in given.items() if v))


def steps(p: Params) -> list[Step]:
    way = WAYS.get(p.how, WAYS["fp8_bf16"])
    return [
        Step(Text("查看模型与余量", "See the model, and that there is room"), step(p, "take"), timeout_s=LOOK_S),
        _work(p, way.title),
        Step(Text("核对结果", "Verify what came out"), step(p, "finish"), timeout_s=3600.0),
        Step(Text("清理未完成的结果", "Take away what is not whole"), step(p, "tidy"), timeout_s=LOOK_S, always=True),
    ]


def _work(p: Params, title: Text) -> Step:
    way, part = WAYS.get(p.how, WAYS["fp8_bf16"]), part_of(Path(p.target))
    out = f"{part}/{Path(p.model).stem}"
    if way.tool == "msmodelslim":
        argv = step(p, "run")
        return Step(title, argv, timeout_s=CONVERT_S, means=MODELSLIM, unattended=True, fills=str(part))
    argv = atc(p, out) if way.tool == "atc" else lite(p, out)
    whole = list(with_env([p.activate], argv)) if p.activate else argv
    says, means = (ATC_SAYS, ATC) if way.tool == "atc" else (LITE_SAYS, LITE)
    return Step(title, whole, timeout_s=CONVERT_S, says=says, means=means, unattended=True, fills=str(part))


def atc(p: Params, out: str) -> list[str]:
    """The argument list, as the vendor's page has it."""
    argv = [
        "atc",
        f"--model={p.model}",
        f"--framework={WAYS[p.how].framework}",
        f"--output={out}",
        f"--soc_version={p.soc_version or f'Ascend{p.chip}'}",
    ]
    return [*argv, *([f"--input_shape={p.input_shape}"] if p.input_shape else [])]


def lite(p: Params, out: str) -> list[str]:
    argv = ["converter_lite", f"--fmk={WAYS[p.how].framework}", f"--modelFile={p.model}", f"--outputFile={out}"]
    return [*argv, "--saveType=MINDIR", *(["--optimize=ascend_oriented"] if p.how == "mindir_ascend" else [])]


def undo(p: Params) -> list[Step]:
    """Nothing: a failed job leaves nothing behind."""
    return []
