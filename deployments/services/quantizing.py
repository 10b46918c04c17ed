"""Quantize models: what a job of it would take on a server, known before it is queued, and what it is filled in with.

The server looks at all of it once more when the job runs: it alone sees the disk, and the tool that is installed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.utils.translation import gettext as _

from console.errors import Conflict, ConsoleError, Invalid
from console.language import pick
from deployments.artifacts import estimate, modelslim, paths, quant_checks, quant_words, recipes
from deployments.artifacts.recipes import Choice
from deployments.artifacts.target import part_of
from deployments.models import Artifact, ArtifactPlace, Job, Server, Via
from deployments.models.job import ENDED
from deployments.services import filling, installs, stacks
from deployments.stacks import frozen, quantizer
from deployments.stacks import plan as plans
from deployments.stacks.activate import TOOLS
from deployments.steps import Text

MOST_WORDS = 200
SAMPLE_TYPE = "Qwen2.5-7B-Instruct"


@dataclass
class Plan:
    """`choice` and `version` are None where the server has no msModelSlim, or one whose recipes the console does not
    know: a look on the server tells then. `loads` is what vLLM-Ascend makes of it there, '' for nothing."""

    type: str = ""
    note: Text | None = None
    tools: str = ""
    activate: str = ""
    family: str = ""
    version: str | None = None
    choice: Choice | None = None
    types: Mapping[str, Choice] = field(default_factory=dict)
    loads: str = ""
    memory: estimate.Range | None = None
    whole: bool = False
    output: estimate.Range | None = None
    before: int | None = None
    calibration: str = ""
    argv: list[str] = field(default_factory=list)
    warnings: list[Text] = field(default_factory=list)
    refusals: list[tuple[str, Text]] = field(default_factory=list)

    def refuse(self, code: str, zh: str, en: str) -> None:
        self.refusals.append((code, Text(zh, en)))

    def warn(self, zh: str, en: str) -> None:
        self.warnings.append(Text(zh, en))


def tools_of(server: Server) -> tuple[str, str, str]:
    """(environment of msModelSlim, the stack's activate, version) of the stack in use; '' where there is none."""
    has = stacks.row_of(server).has
    if not has.current:
        return "", "", ""
    folder = f"{has.root}/{has.current}"
    home = f"{folder}/{TOOLS}/"
    for python in has.pythons or ():
        if python.path.startswith(home) and (version := python.has("msmodelslim")):
            return home.rstrip("/"), f"{folder}/activate", version
    return "", "", ""


def plan(server: Server, params: Mapping[str, Any]) -> Plan:
    """What quantizing with these parameters (kinds/quantize.py) would take; never raises for what a person typed."""
    made = Plan(family=stacks.row_of(server).has.family or "")
    made.tools, made.activate, made.version = tools_of(server)
    try:
        made.type, made.note = quant_words.read(_text(params, "quant_type") or "w8a8")
    except quant_words.NoType as error:
        made.refusals.append(("no_type", error.text))
    npus = [str(one) for one in params.get("npus") or ()]
    _places(made, server, params, npus)
    _tool(made, server)
    if made.type:
        _recipe(made, params, npus)
        _serving(made)
    summary = _model(made, server, params)
    _sizes(made, summary, server, npus)
    made.argv = _argv(made, params, npus)
    return made


def _text(params: Mapping[str, Any], name: str) -> str:
    value = params.get(name)
    return value.strip() if isinstance(value, str) else ""


def _places(made: Plan, server: Server, params: Mapping[str, Any], npus: list[str]) -> None:
    model, target = _text(params, "model"), _text(params, "target")
    if model and target and (wrong := quant_checks.path_problem(model, target)):
        made.refusals.append(("bad_path", wrong))
    there = set(server.npus.values_list("bus_id", flat=True))
    if strange := [one for one in npus if one not in there]:
        made.refuse(
            "no_such_npu",
            f"{server.name} 没有 NPU {strange[0][:40]}。请选服务器页面上列出的。",
            f"{server.name} has no NPU {strange[0][:40]}. Choose those that its page lists.",
        )


def _tool(made: Plan, server: Server) -> None:
    if not made.tools:
        made.refuse(
            "no_msmodelslim",
            f"{server.name} 在用的软件栈里没有 msModelSlim。请先运行作业“安装 msModelSlim”，没有软件栈则先安装软件栈。",
            f"The stack in use on {server.name} has no msModelSlim. Run the job “Install msModelSlim” first; where "
            "no stack is "
            "in use, install one.",
        )


def catalogue_for(made: Plan) -> recipes.Catalogue | None:
    """The recipes of the server's msModelSlim, None where the console does not know that version."""
    known = recipes.built_in()
    return known if made.version == known.version else None


def _recipe(made: Plan, params: Mapping[str, Any], npus: list[str]) -> None:
    known, model_type = catalogue_for(made), _text(params, "model_type")
    if known is None or not model_type:
        if made.tools and model_type:
            made.warn(
                f"控制台不知道 msModelSlim {made.version} 的配方：先“查看”，由服务器说出将使用哪个。",
                f"The console does not know the recipes of msModelSlim {made.version}: look first, and the server "
                "tells which "
                "one is taken.",
            )
        return
    hardware = made.family if npus else ""
    made.types = recipes.types_for(known, model_type, hardware)
    if _text(params, "recipe"):
        made.warn("用自己的配方：服务器会先读它。", "A recipe of your own is taken: the server reads it first.")
        return
    made.choice = recipes.choose(known, model_type, made.type, hardware)
    recipe = made.choice.recipe
    if recipe is None:
        there = ", ".join(made.types) or "—"
        made.refuse(
            "no_recipe",
            f"msModelSlim {known.version} 对 {model_type} 没有 {made.type} 的配方。它有：{there}。",
            f"msModelSlim {known.version} has no recipe to make {model_type} {made.type}. It has: {there}.",
        )
        return
    made.whole = recipe.memory == recipes.WHOLE
    made.calibration = _text(params, "calibration") or recipe.dataset
    if not made.choice.known:
        made.warn(
            f"msModelSlim 不认识“{model_type[:80]}”，会用默认适配器。",
            f"msModelSlim does not know “{model_type[:80]}” and would use its default adapter.",
        )
    if made.choice.level in ("other_hardware", "default"):
        words = quant_checks.LEVELS[made.choice.level]
        made.warn(f"配方 {recipe.id}：{words.zh}。", f"The recipe {recipe.id} is {words.en}.")
        if not params.get("accept"):
            made.refuse(
                "not_verified",
                f"没有为 {model_type} 的 {made.type} 验证过的配方。勾选“接受未验证的配方”，或换一个类型。",
                f"No recipe is verified for {model_type} as {made.type}. Tick “Accept a recipe that is not "
                "verified”, or choose "
                "another type.",
            )


def _serving(made: Plan) -> None:
    if not made.family:
        made.warn(
            "这台服务器没有 NPU：结果不能在这里由 vLLM 部署（CPU 版 vLLM 读不了这种格式），但可以用参考引擎评测。",
            "This server has no NPU: vLLM cannot serve the result here (its CPU build does not read this format), "
            "but it can "
            "be evaluated by the reference engine.",
        )
        return
    made.loads = recipes.support()["loads"].get(made.family, {}).get(made.type, "")
    if not made.loads:
        made.warn(
            f"vLLM-Ascend 在 {made.family} 上不能加载 {made.type}：只在别的芯片或引擎上才有用。",
            f"vLLM-Ascend loads no {made.type} on {made.family}: it is of use on other chips or engines only.",
        )


def _model(made: Plan, server: Server, params: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of the model; {} where it was never looked for."""
    path = _text(params, "model").rstrip("/")
    place = ArtifactPlace.objects.filter(server=server, path=path, gone_at=None).select_related("artifact").first()
    if place is None:
        return {}
    artifact = place.artifact
    if artifact.format != "hf":
        made.refuse(
            "not_float",
            f"{artifact.name} 是 {artifact.format}，不能量化。请选浮点模型。",
            f"{artifact.name} is {artifact.format} and cannot be quantized. Choose a model in float.",
        )
    family = recipes.built_in().adapters.get(_text(params, "model_type"), recipes.DEFAULT)
    if str(artifact.summary.get("quant_type", "")).startswith("FP8") and family not in recipes.READ_FP8:
        made.refuse("fp8", "这是 FP8 权重：先转换为 BF16。", "These are FP8 weights: convert them to BF16 first.")
    for code, words, _missing in place.problems[:3]:
        made.refusals.append((str(code), Text(*words)))
    if artifact.summary.get("remote_code") and not params.get("trust"):
        made.refuse(
            "remote_code",
            "这个模型带有自己的 Python 代码。信任其来源时，勾选“允许模型自带代码”。",
            "This model has Python code of its own. Where you trust its source, tick “Allow the model's own code”.",
        )
    if made.choice and made.choice.recipe and made.choice.recipe.api == "modelslim_v0" and artifact.summary.get("tied"):
        made.warn(
            "这个模型的输出层与词嵌入共享权重，旧版（V0）配方保存时会失败。",
            "This model's head is its embedding, and recipes of the older kind (V0) fail to save such a model.",
        )
    return dict(artifact.summary)


def _sizes(made: Plan, summary: Mapping[str, Any], server: Server, npus: list[str]) -> None:
    weight_bytes = summary.get("weight_bytes")
    if not isinstance(weight_bytes, int) or not made.type:
        return
    dtype = str(summary.get("dtype") or "")
    kept = estimate.embedding(summary.get("vocab"), summary.get("hidden"), dtype, tied=bool(summary.get("tied")))
    made.before = weight_bytes
    made.output = estimate.output(weight_bytes, kept, dtype, made.type)
    if made.choice and made.choice.recipe:
        made.memory = estimate.memory(weight_bytes, summary.get("layers"), kept, made.choice.recipe.memory)
    totals = [one.memory_total_mb for one in server.npus.all() if one.bus_id in npus and one.memory_total_mb]
    if made.memory and totals and made.memory.low > min(totals) * 1024 * 1024:
        made.warn(
            "估计的显存超过所选 NPU 的显存：量化可能中途失败。",
            "The estimate is more than the chosen NPU has: quantizing may fail on the way.",
        )


def _argv(made: Plan, params: Mapping[str, Any], npus: list[str]) -> list[str]:
    """The tool's own command, as it will be run."""
    model, target = _text(params, "model"), _text(params, "target")
    if not (made.tools and made.type and model and target.startswith("/")):
        return []
    choice = made.choice
    config = _text(params, "recipe")
    if not config and choice and choice.recipe and (not choice.is_exact or _text(params, "calibration")):
        config = f"lab_practice/{choice.recipe.path}"

    return modelslim.command(
        made.tools, source=model, save=str(part_of(Path(target))), device=modelslim.device(len(npus)),
        quant_type=made.type, model_type=_text(params, "model_type"), config=config,
        tags=choice.tags if choice else (recipes.ENGINE,), trust=bool(params.get("trust")),
    )  # fmt: skip


def likely_type(name: str) -> str:
    """The tool's model type for a model's name, '' where none is like it: `Qwen3-30B-A3B` is its `Qwen3-30B`."""
    plain = name.lower()
    known = sorted(recipes.built_in().adapters, key=len, reverse=True)
    return next((one for one in known if one != recipes.DEFAULT and plain.startswith(one.lower())), "")


def proposed_type(artifact: Artifact) -> str:
    """As likely_type; the sample model of 28 layers has the shape that the recipe of its name's model names."""
    shape = (artifact.summary.get("model_type"), artifact.summary.get("layers"))
    if artifact.via == Via.SAMPLE and shape == ("qwen2", 28):
        return SAMPLE_TYPE
    return likely_type(artifact.name)


def stack_for_trying(server: Server) -> str:
    """The stack that brings msModelSlim to a server without NPUs that has none yet; '' where it is not that simple."""
    if stacks.row_of(server).has.current or server.npus.exists():
        return ""
    return next((name for name, one in stacks.catalogue().stacks.items() if one.kind == "cpu"), "")


def bringing_tools(server: Server) -> Job | None:
    """The job under way that brings msModelSlim, or a stack."""
    return server.jobs.filter(kind__in=("install", "quantizer")).exclude(state__in=ENDED).order_by("pk").first()


def fill(server: Server, params: dict[str, Any]) -> dict[str, Any]:
    """What a job is filled in with; words of the guide become the tool's. Raises Invalid, Conflict."""
    made = plan(server, params)
    if problem := obstacle(made):
        raise problem
    return _filled(made, params)


def fill_look(server: Server, params: dict[str, Any]) -> dict[str, Any]:
    """A look may find out itself what else is wrong."""
    made = plan(server, params)
    if problem := obstacle(made, ("no_type", "bad_path", "no_msmodelslim", "no_such_npu")):
        raise problem
    return _filled(made, params)


def _filled(made: Plan, params: Mapping[str, Any]) -> dict[str, Any]:
    folders = {name: paths.tidy(_text(params, name)) for name in ("model", "target")}
    return {**folders, "quant_type": made.type, "tools": made.tools, "activate": made.activate, "family": made.family}


def quantizer_plan(server: Server, params: Mapping[str, Any]) -> plans.Plan:
    """The plan that puts msModelSlim beside the stack in use. Raises Conflict where none is, or where it cannot be."""
    has = stacks.row_of(server).has
    if not has.current or has.current not in stacks.catalogue().stacks:
        raise Conflict(
            _("%(server)s has no stack in use that the catalogue knows.") % {"server": server.name},
            _("Install one from the page Stacks, then install msModelSlim."),
            code="no_stack",
        )
    stack = stacks.find(has.current)
    options = installs.options_for(server, dict(params), stack)
    made = quantizer.plan(has, stack, stacks.catalogue(), options)
    if made.refusals:
        raise Conflict(
            " ".join(pick(one.text) for one in made.refusals), _("Choose another stack or server."), code="no_way"
        )
    return made


def fill_quantizer(server: Server, params: dict[str, Any]) -> dict[str, Any]:
    """Raises Conflict, Invalid."""
    made = quantizer_plan(server, params)
    return {"plan": frozen.write(made), "stack": made.stack}


WRONG_WORDS = ("no_type", "bad_path", "no_such_npu")


def obstacle(made: Plan, only: tuple[str, ...] = ()) -> ConsoleError | None:
    """Why the job cannot be queued; None where it can."""
    found = [(code, text) for code, text in made.refusals if not only or code in only]
    if not found:
        return None
    code, text = found[0]
    kind = Invalid if code in WRONG_WORDS else Conflict
    return kind(pick(text), _("Change it, then queue the job again."), code=code)


def as_json(made: Plan) -> dict[str, Any]:
    choice = made.choice
    recipe = choice.recipe if choice else None
    return {
        "type": made.type or None,
        "note": made.note and made.note._asdict(),
        "msmodelslim": made.version or None,
        "family": made.family or None,
        "recipe": recipe and {"id": recipe.id, "api": recipe.api, "level": choice.level if choice else None,
                              "dataset": recipe.dataset or None},
        "types": {kind: one.level for kind, one in made.types.items()},
        "loads": made.loads or None,
        "memory": made.memory and made.memory._asdict(),
        "memory_is_of": ("model" if made.whole else "layer") if recipe else None,
        "before": made.before,
        "output": made.output and made.output._asdict(),
        "calibration": made.calibration or None,
        "argv": made.argv,
        "warnings": [text._asdict() for text in made.warnings],
        "refusals": [{"code": code, **text._asdict()} for code, text in made.refusals],
        "can_run": not made.refusals,
    }  # fmt: skip


filling.FILLERS |= {"quantize": fill, "quantize_look": fill_look, "quantizer": fill_quantizer}
