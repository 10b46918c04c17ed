"""Quantize a model with msModelSlim, in its own environment of the stack in use.

The console fills in where that environment lies and what the server's chips are. The first step says which recipe is
taken, and refuses where the tool would ask; the folder gets its name only when everything in it was verified.
"""

from dataclasses import dataclass
from pathlib import Path

from deployments.artifacts import modelslim, quant_words
from deployments.artifacts.paths import EXAMPLE, PATH, lock
from deployments.artifacts.quant_failures import MODELSLIM
from deployments.artifacts.target import part_of
from deployments.steps import Step, Text, param, python_module

TITLE = Text("量化模型", "Quantize a model")
ACTED = True  # on simulated servers, and never run there
FILLED = ("tools", "activate", "family")  # by the console, when the job is queued
QUANTIZE_S, VERIFY_S, LOOK_S = 48 * 3600.0, 3600.0, 600.0
NOTHING_LEFT = 3
BY_CONSOLE = Text("由控制台填写。", "The console fills it in.")


@dataclass(frozen=True)
class Params:
    model: str = param("artifact", zh="模型", en="Model", pattern=PATH, example=EXAMPLE)
    target: str = param(
        "new_folder",
        zh="结果目录",
        en="Folder of the result",
        pattern=PATH,
        example=EXAMPLE,
        help=Text("新目录，或空目录。", "A new folder, or an empty one."),
    )
    model_type: str = param(
        "text",
        zh="模型类型",
        en="Model type",
        pattern=r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}",
        help=Text(
            "msModelSlim 的模型名，区分大小写，如 Qwen2.5-7B-Instruct。",
            "The model's name as msModelSlim has it; case matters, as in Qwen2.5-7B-Instruct.",
        ),
    )
    quant_type: str = param(
        "text",
        zh="量化类型",
        en="Type",
        default="w8a8",
        most_characters=200,
        help=Text(
            f"{'、'.join(quant_words.TYPES)}；也可写 weight_bits 8, act_bits 8。",
            f"{', '.join(quant_words.TYPES)}; or such words as weight_bits 8, act_bits 8.",
        ),
    )
    npus: list[str] = param(
        "npus",
        zh="NPU",
        en="NPUs",
        default=[],
        help=Text(
            "不选则用 CPU。多张只在校准集很大时更快。",
            "None: the CPU. Several are faster with large calibration sets only.",
        ),
    )
    accept: bool = param("flag", zh="接受未验证的配方", en="Accept a recipe that is not verified", default=False)
    recipe: str = param(
        "text",
        zh="自己的配方",
        en="Recipe of your own",
        default="",
        pattern=rf"|{PATH}",
        example="/data/recipe.yaml",
        help=Text("服务器上的 YAML 文件；空为工具自带的。", "A YAML file on the server; empty takes the tool's own."),
    )
    calibration: str = param(
        "text",
        zh="校准集",
        en="Calibration set",
        default="",
        pattern=rf"|[A-Za-z0-9._-]{{1,80}}|{PATH}",
        example="/data/set.jsonl",
        help=Text(
            "空为配方自己的；或自带的名字（如 mix_calib.jsonl）；或服务器上的 jsonl 文件。",
            "Empty: the recipe's own. Or the name of a bundled one, such as mix_calib.jsonl; or a jsonl file on the "
            "server.",
        ),
    )
    trust: bool = param(
        "flag",
        zh="允许模型自带代码",
        en="Allow the model's own code",
        default=False,
        help=Text(
            "会运行模型目录里的 Python。只对可信的来源勾选。",
            "Runs Python of the model's folder. Only where you trust its source.",
        ),
    )
    tools: str = param("text", zh="msModelSlim 的环境", en="Environment of msModelSlim", default="", help=BY_CONSOLE)
    activate: str = param("text", zh="软件栈的 activate", en="The stack's activate", default="", help=BY_CONSOLE)
    family: str = param("text", zh="芯片系列", en="Family of chips", default="", help=BY_CONSOLE)


def locks(p: Params) -> list[str]:
    """What is written, and the chosen NPUs."""
    return [lock(p.target), *(f"npu:{name}" for name in p.npus)]


def arguments(p: Params) -> list[str]:
    """Of each of our own steps."""
    given = {
        "--model": p.model,
        "--target": p.target,
        "--tools": p.tools,
        "--activate": p.activate,
        "--type": p.quant_type,
        "--model-type": p.model_type,
        "--device": modelslim.device(len(p.npus)),
        "--family": p.family,
        "--recipe": p.recipe or ("accept" if p.accept else "verified"),
        "--calibration": p.calibration,
    }
    words = [f"{name}={value}" for name, value in given.items() if value]
    return [*words, *(["--trust-remote-code"] if p.trust else [])]


def step(p: Params, do: str) -> list[str]:
    return python_module("deployments.artifacts.quantize", do, *arguments(p))


def steps(p: Params) -> list[Step]:
    part = str(part_of(Path(p.target)))
    kind = p.quant_type
    return [
        Step(
            Text("查看将使用的配方与余量", "See which recipe is taken, and that there is room"),
            step(p, "take"),
            timeout_s=LOOK_S,
        ),
        Step(
            Text(f"量化为 {kind}", f"Quantize as {kind}"),
            step(p, "run"),
            npus=list(p.npus),
            timeout_s=QUANTIZE_S,
            means=MODELSLIM,
            unattended=True,
            fills=part,
        ),
        Step(Text("核对结果", "Verify what came out"), step(p, "finish"), timeout_s=VERIFY_S),
        Step(
            Text("清理未完成的结果", "Take away what is not whole"),
            step(p, "tidy"),
            timeout_s=LOOK_S,
            always=True,
            skips=(NOTHING_LEFT,),
        ),
    ]


def undo(p: Params) -> list[Step]:
    """Nothing: a failed job leaves nothing behind, and a model is deleted on its page."""
    return []
