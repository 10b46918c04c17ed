"""What is looked at before msModelSlim runs: the model, the target, the recipe, memory, disk and calibration set."""

import json
import os
import posixpath
import re
import shutil
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deployments.artifacts import BadModel, estimate, paths, recipes, target
from deployments.artifacts.progress import amount
from deployments.artifacts.read import Model, read
from deployments.artifacts.recipes import Choice, Recipe
from deployments.artifacts.tensors import open_regular
from deployments.steps import Text

Item = dict[str, Any]  # of a report, as agent/items.py takes it
CLEAN = re.compile(r"[_A-Za-z0-9/.-]+")  # the tool takes no other signs in paths
FIRST_ROWS, MOST_ROWS, MOST_CALIBRATION = 3, 100_000, 200 * 1024 * 1024
OUT_OF_SHARE = 0.95
LEVELS = {
    "verified": Text("为此模型与类型验证过", "verified for this model and type"),
    "other_hardware": Text("验证过，但不是在这种芯片与引擎上", "verified, but not on this chip and engine"),
    "default": Text("默认配方，不保证精度", "the default recipe, which promises nothing about accuracy"),
    "own": Text("您自己的配方", "a recipe of your own"),
}


@dataclass(frozen=True)
class Asked:
    """As the job asks for it. `device`: cpu | npu | npu:0,1. `family` is that of the server's NPUs, '' for none.
    `recipe`: verified | accept (also one that is not) | the path of a file. `calibration`: '' (the recipe's own), the
    name of a bundled set, or the path of a file."""

    model: Path
    target: Path
    tools: Path
    type: str
    model_type: str
    activate: str = ""
    device: str = "cpu"
    family: str = ""
    recipe: str = "verified"
    calibration: str = ""
    trust: bool = False


@dataclass
class Taken:
    """What was found. `items` are those of a report, `refusals` why it cannot run; `level` as recipes.Choice has it."""

    model: Model
    recipe: Recipe
    level: str
    tags: tuple[str, ...]
    output: estimate.Range
    float16: bool = False
    items: list[Item] = field(default_factory=list)
    refusals: list[Text] = field(default_factory=list)

    def say(self, key: str, zh: str, en: str, found: str, verdict: str = "ok", wanted: str = "") -> None:
        item: Item = {"key": f"quantize.{key}", "title": [zh, en], "verdict": verdict, "found": found}
        self.items.append({**item, **({"wanted": wanted} if wanted else {})})

    def refuse(self, text: Text) -> None:
        self.refusals.append(text)


def check(asked: Asked) -> Taken:
    """Raises BadModel where there is no model, no target or no tool to look at; else what was found, and refusals."""
    check_paths(asked.model, asked.target)
    model = read(asked.model)
    target.check(asked.target)
    catalogue = recipes.installed(asked.tools)
    choice, recipe = _choice(asked, catalogue)
    kept = estimate.embedding(model.vocab, model.hidden, model.dtype, tied=model.tied)
    size = estimate.output(model.weight_bytes, kept, model.dtype, asked.type)
    taken = Taken(model, recipe, choice.level, choice.tags, size, float16=asked.family == "310P")
    _model(taken, asked, catalogue.adapters.get(asked.model_type, recipes.DEFAULT))
    _recipe(taken, asked, choice, catalogue)
    _memory(taken, asked, kept)
    _disk(taken, asked)
    _calibration(taken, asked, catalogue)
    return taken


def check_paths(model: Path, to: Path) -> None:
    """The same with what links lead to. Raises BadModel."""
    if wrong := path_problem(str(model), str(to)):
        raise BadModel(wrong)
    real, real_to = os.path.realpath(model), posixpath.join(os.path.realpath(to.parent), to.name)
    if wrong := path_problem(real, real_to):
        raise BadModel(wrong)


def path_problem(model: str, to: str) -> Text | None:
    """What is wrong with the two folders by their names alone; None where nothing is."""
    for path in (model, to):
        if wrong := paths.problem(path):
            return wrong
        if not CLEAN.fullmatch(path):
            return Text(
                f"msModelSlim 只接受由字母、数字与 . _ - / 组成的路径，而 {path} 含有别的字符。请改名，或复制到这样的"
                "路径。",
                f"msModelSlim takes only paths of letters, digits and . _ - /, and {path} has others. Rename it, or "
                "copy "
                "it to such a path.",
            )
    if paths.inside(to, model) or paths.inside(model, to):
        return Text(
            f"目标 {to} 与源模型 {model} 互相包含。请选择源模型之外的新目录。",
            f"The target {to} and the model {model} lie within each other. Choose a new folder outside the model.",
        )
    return None


def _choice(asked: Asked, catalogue: recipes.Catalogue) -> tuple[Choice, Recipe]:
    """Raises BadModel where there is nothing to take."""
    if asked.recipe.startswith("/"):
        own = recipes.one(asked.tools, Path(asked.recipe))
        return Choice("own", own, asked.model_type in catalogue.adapters), own
    choice = recipes.choose(catalogue, asked.model_type, asked.type, asked.family if asked.device != "cpu" else "")
    if choice.recipe is None:
        raise BadModel(no_recipe(catalogue, asked))
    return choice, choice.recipe


def no_recipe(catalogue: recipes.Catalogue, asked: Asked) -> Text:
    there = recipes.types_for(catalogue, asked.model_type, asked.family)
    named = ", ".join(there) or "—"
    return Text(
        f"msModelSlim {catalogue.version} 对 {asked.model_type} 没有 {asked.type} 的配方。它有：{named}。请换一个类型，"
        "或用自己的配方文件。",
        f"msModelSlim {catalogue.version} has no recipe to make {asked.model_type} {asked.type}. It has: {named}. "
        "Choose "
        "another type, or a recipe file of your own.",
    )


def _model(taken: Taken, asked: Asked, family: str) -> None:
    model = taken.model
    taken.say(
        "model", "模型", "Model", f"{model.architecture or '—'}, {amount(model.weight_bytes)}, {model.dtype or '—'}"
    )
    if model.format != "hf":
        taken.refuse(
            Text(
                f"{asked.model} 已是 {model.quant_type or model.format}，不能再量化。请选择浮点模型（BF16、FP16）。",
                f"{asked.model} is {model.quant_type or model.format} already and cannot be quantized again. Choose "
                "the model "
                "in float (BF16, FP16).",
            )
        )
    if model.quant_type.startswith("FP8") and family not in recipes.READ_FP8:
        taken.refuse(
            Text("这是 FP8 权重：先用作业“转换”做成 BF16。", "These are FP8 weights: convert them to BF16 first.")
        )
    for problem in model.problems:
        taken.refuse(problem.text)
    if model.remote_code and not asked.trust:
        taken.refuse(
            Text(
                "这个模型带有自己的 Python 代码，量化时会运行它。信任其来源时，勾选“允许模型自带代码”再提交。",
                "This model has Python code of its own, which quantizing would run. Where you trust where it came "
                "from, tick "
                "“Allow the model's own code” and queue it again.",
            )
        )


def _recipe(taken: Taken, asked: Asked, choice: Choice, catalogue: recipes.Catalogue) -> None:
    words, recipe = LEVELS[choice.level], taken.recipe
    fine = choice.level in ("verified", "own")
    if not choice.known:
        taken.say(
            "model_type",
            "模型类型",
            "Model type",
            f"{asked.model_type}: msModelSlim {catalogue.version} 不认识，用默认适配器 "
            "is not known, the default adapter is used",
            "warning",
        )
    found = f"{recipe.id} ({recipe.type}, {recipe.api}): {words.zh} {words.en}"
    taken.say("recipe", "将使用的配方", "The recipe that is taken", found, "ok" if fine else "warning")
    if choice.level in ("other_hardware", "default") and asked.recipe != "accept":
        taken.refuse(
            Text(
                f"msModelSlim 没有为 {asked.model_type} 的 {asked.type} 验证过的配方，只有 {recipe.id}（{words.zh}）。"
                "勾选“接受未验证的配方”再提交，或换一个类型。",
                f"msModelSlim has no recipe verified for {asked.model_type} as {asked.type}, only {recipe.id} "
                f"({words.en}). "
                "Tick “Accept a recipe that is not verified” and queue it again, or choose another type.",
            )
        )
    if choice.level == "own" and recipe.w_bit and recipe.type != asked.type:
        taken.refuse(
            Text(
                f"配方 {asked.recipe} 是 {recipe.type}，而要求的是 {asked.type}。请改其中之一。",
                f"The recipe {asked.recipe} is for {recipe.type}, and {asked.type} is asked for. Change one of both.",
            )
        )
    if recipe.api == "modelslim_v0" and taken.model.tied:
        taken.say(
            "tied",
            "共享的词嵌入",
            "Tied embedding",
            "旧版配方（V0）保存共享词嵌入的模型时会失败 V0 recipes fail to save a model whose head is its embedding",
            "warning",
        )


def _memory(taken: Taken, asked: Asked, kept: int) -> None:
    model = taken.model
    wanted = estimate.memory(model.weight_bytes, model.layers, kept, taken.recipe.memory)
    words = f"{amount(wanted.low)} – {amount(wanted.high)}"
    how = "整个模型 whole model" if taken.recipe.memory == recipes.WHOLE else "逐层 layer by layer"
    if asked.device != "cpu":
        taken.say("memory", "NPU 显存估计", "Memory of the NPU, estimated", f"{words}, {how}")
        return
    free = available()
    short = free is not None and free < wanted.low
    found = f"{words}, {how}; {amount(free) if free is not None else '—'} 可用 free"
    taken.say("memory", "内存估计", "Memory, estimated", found, "warning" if short else "ok")


def available() -> int | None:
    """Bytes of memory that programs can still have, as the kernel estimates it."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return None
    found = re.search(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def _disk(taken: Taken, asked: Asked) -> None:
    at = next(path for path in asked.target.parents if path.exists())
    free = shutil.disk_usage(at).free
    words = f"{amount(taken.output.low)} – {amount(taken.output.high)}"
    fits = free >= taken.output.high + target.SPARE
    taken.say(
        "disk",
        "结果大小估计",
        "Size of the result, estimated",
        f"{words}; {amount(free)} 可用 free",
        "ok" if fits else "failed",
    )
    if not fits:
        taken.refuse(
            Text(
                f"{at} 只剩 {amount(free)}，结果约需 {words}。请清理磁盘，或换一个目标目录。",
                f"{at} has {amount(free)} left, and the result takes about {words}. Make room, or choose another "
                "target.",
            )
        )


def _calibration(taken: Taken, asked: Asked, catalogue: recipes.Catalogue) -> None:
    name = asked.calibration or taken.recipe.dataset
    if not name:
        taken.say(
            "calibration", "校准集", "Calibration set", "配方不需要，或用工具默认的 none is named: mix_calib.jsonl"
        )
        return
    if not name.startswith("/"):
        path = Path(catalogue.calib_dir) / name
        if name not in catalogue.calib and asked.calibration:
            named = ", ".join(catalogue.calib)
            taken.refuse(Text(f"没有校准集 {name}。有：{named}。", f"There is no set {name}. There are: {named}."))
            return
    else:
        path = Path(name)
    if _is_endless(path):
        taken.refuse(_bad_rows(path, "不是文件", "it is no file").text)
        return
    if path.suffix != ".jsonl":
        taken.say("calibration", "校准集", "Calibration set", name)
        return
    try:
        rows, first = calibration_rows(path)
    except BadModel as error:
        taken.refuse(error.text)
        return
    shown = " ⏎ ".join(text[:160] for text in first)
    taken.say("calibration", "校准集", "Calibration set", f"{name}: {rows} 行 rows. {shown}")


def _is_endless(path: Path) -> bool:
    """Whether it is a pipe, a device or the like; what cannot be looked at is told of by who reads it."""
    try:
        return stat.S_IFMT(path.stat().st_mode) not in (stat.S_IFREG, stat.S_IFDIR)
    except OSError:
        return False


def calibration_rows(path: Path) -> tuple[int, list[str]]:
    """How many rows, and the first ones. Raises BadModel naming the line that is wrong."""
    if wrong := None if CLEAN.fullmatch(str(path)) else path:
        raise _bad_rows(wrong, "路径含有 msModelSlim 不接受的字符", "its path has signs that msModelSlim does not take")
    first: list[str] = []
    n = 0
    try:
        with os.fdopen(open_regular(path), encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_size > MOST_CALIBRATION:
                raise _bad_rows(path, "超过 200 MB", "it is larger than 200 MB")
            for n, line in enumerate(file, 1):
                if n > MOST_ROWS:
                    raise _bad_rows(path, f"超过 {MOST_ROWS} 行", f"it has more than {MOST_ROWS} rows")
                text = _row(path, n, line)
                if n <= FIRST_ROWS:
                    first.append(text)
    except UnicodeDecodeError as error:
        raise _bad_rows(path, f"第 {n + 1} 行不是 UTF-8", f"line {n + 1} is not UTF-8") from error
    except OSError as error:
        raise _bad_rows(path, f"无法读取（{error.strerror}）", f"it cannot be read ({error.strerror})") from error
    if not n:
        raise _bad_rows(path, "是空文件", "it is empty")
    return n, first


def _row(path: Path, n: int, line: str) -> str:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _bad_rows(path, f"第 {n} 行不是 JSON", f"line {n} is no JSON") from error
    if not isinstance(data, dict):
        raise _bad_rows(path, f"第 {n} 行不是对象", f"line {n} is no object")
    text = data.get("inputs_pretokenized", data.get("prompt", line.strip()))
    if not isinstance(text, str) or not text.strip():
        raise _bad_rows(
            path, f"第 {n} 行的 inputs_pretokenized 不是文字", f"inputs_pretokenized of line {n} is no text"
        )
    return text


def _bad_rows(path: Path, zh: str, en: str) -> BadModel:
    return BadModel(
        Text(
            f'校准集 {path} 不能用：{zh}。每行须是 {{"inputs_pretokenized": "…"}}。',
            f'The calibration set {path} cannot be used: {en}. Each line is {{"inputs_pretokenized": "…"}}.',
        )
    )
