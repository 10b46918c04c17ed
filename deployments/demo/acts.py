"""Which program a step calls, and who acts it out: nothing of it is ever started on this machine.

Kinds with `ACTED` are acted out; other kinds run with the simulated tools of `tools.py`.
"""

from collections.abc import Callable
from pathlib import Path

from deployments.agent.tools import Output
from deployments.demo import (
    acts_benchmark,
    acts_env,
    acts_evaluate,
    acts_host,
    acts_models,
    acts_models_in,
    acts_quantize,
    acts_serve,
    acts_support,
)
from deployments.demo.scene import DONE, Act, Ended, Scene
from deployments.demo.telemetry import MemoryHost
from deployments.kinds.support_bundle import VARIABLE
from deployments.stacks.cann_layer import WITH_ENV
from deployments.stacks.faults import FAULTS, as_anybody, unwrapped
from deployments.stacks.installed import ASCEND
from deployments.stacks.one_npu import HELD
from deployments.steps import PYTHON, Step

RUNTIMES = ("docker", "podman", "nerdctl", "isula")
OWN = "deployments.stacks."


def of(step: Step, scene: Scene, fault: str = "") -> Act:
    """The step acted out. `fault` is what the operator wants to see go wrong; it comes about where it can."""
    struck = fault if fault and (fault not in FAULTS or FAULTS[fault].strikes(step)) else ""
    if fault == "lspci_missing":  # it lacks at the step before, too, and only strikes later
        struck = fault
    return _after_env(step, scene, struck)


def _after_env(step: Step, scene: Scene, fault: str) -> Act:
    """The shell reads set_env.sh files first, and goes on where one is not there. No real index is asked, so nobody
    signs in."""
    words = as_anybody(step.argv)
    if words[:3] == ["bash", "-c", WITH_ENV]:
        for file in words[4 : words.index("--")]:
            if not scene.exists(file):
                yield f"with-env: line 1: {file}: No such file or directory"
    return (yield from _program(unwrapped(words), step, scene, fault))


def _program(words: list[str], step: Step, scene: Scene, fault: str) -> Act:
    if step.needs_root:
        return _as_root(words, scene, fault)
    if words[:1] == ["bash"] and words[-1:] == ["--check"]:
        return acts_host.check(words[1], fault)
    if words[:1] == ["bash"] and any(word.startswith("--install-path=") for word in words):
        prefix = next(word for word in words if word.startswith("--install-path=")).partition("=")[2]
        return acts_host.package(scene, words[1], prefix, fault, over=False)
    if words[1:3] == ["-m", "venv"]:
        return acts_env.make_venv(scene, words[0], words[-1], clear="--clear" in words)
    if words[1:3] == ["-m", "pip"]:
        return acts_env.pip(scene, words[0], words[3:], step, fault)
    if words[:2] == [PYTHON, "-m"] and words[2] in acts_evaluate.NAMES:
        return acts_evaluate.of(words[2], words[3:], step.env)
    if words[:2] == [PYTHON, "-m"] and words[2].startswith(acts_serve.OWN):
        return acts_serve.of(words[2], words[3:], step.env, scene, fault)
    if words[:3] == [PYTHON, "-m", acts_benchmark.NAME]:
        return acts_benchmark.of(words[3:])
    if words[:3] == [PYTHON, "-m", acts_support.NAME]:
        return acts_support.of(words[3:], step.env.get(VARIABLE, ""), scene)
    if words[:2] == [PYTHON, "-m"]:
        return _module(words[2], words[3:], scene, step.env.get(HELD, ""))
    if words[:1] == ["npu-smi"]:
        return _tool(words, scene)
    if words[:1] and words[0] in RUNTIMES:
        return acts_env.container(scene, words, step.reads.value if step.reads else "")
    if words[:2] == ["python", "-c"]:
        return acts_env.try_python(scene, _stack_of(step), words[2])
    if words[:1] and words[0] in ("atc", "converter_lite"):
        return acts_quantize.graph(words)
    if words[:1] and words[0].endswith("/bin/msmodelslim"):
        return _said("usage: msmodelslim [-h] {quant,analyze} ...")
    return _unknown(words)


def _stack_of(step: Step) -> str:
    """The folder of the stack whose activate file a step reads."""
    return next((word.removesuffix("/activate") for word in step.argv if word.endswith("/activate")), "")


# ---------- root ----------


def _as_root(words: list[str], scene: Scene, fault: str) -> Act:
    """What the simulated root helper does; a restart is not acted out here (`play.py`)."""
    name, rest = words[0], words[1:]
    if name in ("apt-driver-tools", "yum-driver-tools") and rest:
        return acts_host.driver_tools(scene, name[:3], rest[0], fault)
    if name in ("run-group", "run-user"):
        return acts_host.run_account(scene)
    if name in acts_serve.ROOT:
        return acts_serve.root(words)
    if name == "start-exporters":
        return _said("npu-exporter.service: started")
    if name in ("uninstall-driver", "uninstall-firmware"):
        return acts_host.uninstall(scene, name.removeprefix("uninstall-"))
    if name == "package-part-uninstall" and rest:
        return acts_host.cann_uninstall(scene, rest[0])
    if name.startswith("package-") and rest:
        return acts_host.package(scene, rest[0], ASCEND, fault, over="upgrade" in name)
    return _skipped(words)


# ---------- our own programs ----------


def _module(name: str, words: list[str], scene: Scene, held: str) -> Act:
    acted: dict[str, Callable[[], Act]] = {
        f"{OWN}there": lambda: acts_env.mounts(scene, words),
        f"{OWN}room": lambda: acts_env.free_room(scene, *words),
        f"{OWN}in_group": lambda: acts_env.is_in_group(scene, *words),
        f"{OWN}remove": lambda: acts_env.remove(scene, *words),
        f"{OWN}one_prompt": lambda: acts_env.answer_once(scene, words, host_of(scene), held),
        f"{OWN}one_npu": lambda: acts_env.on_one_npu(scene, words, host_of(scene), held),
        f"{OWN}retire": lambda: acts_env.retire(scene, *words),
        f"{OWN}without_cuda": lambda: acts_env.requirements(scene, words[1]),
        "deployments.agent.wheels": lambda: acts_env.fetch_wheels(scene, words[0], words[2]),
        "deployments.kinds.check_probes": lambda: acts_env.probes(words[0], host_of(scene)),
        "deployments.agent.holders": lambda: acts_host.holders(scene),
        "deployments.artifacts.quantize": lambda: acts_quantize.of(scene, words),
        "deployments.artifacts.convert": lambda: acts_quantize.convert(scene, words),
        "deployments.artifacts.scan": lambda: acts_models.scan(scene, words),
        "deployments.artifacts.remove": lambda: acts_models.remove(scene, *words),
        "deployments.agent.models.sample": lambda: acts_models_in.make_sample(scene, *words),
        "deployments.agent.models.download": lambda: acts_models_in.download(scene, words),
        "deployments.agent.models.serving": lambda: _said(f"simulated: {words[0]}"),
        f"{OWN}window": lambda: _said(f"simulated: it is within {words[0]} at once"),
        "deployments.kinds.reboot_look": lambda: _said(f"{len(scene.server.chips)} / {len(scene.server.chips)}"),
    }
    if name == f"{OWN}activate":
        if words[0] == "use":
            return acts_env.use(scene, words[1])
        if words[0] == "again":
            return acts_env.activate_again(scene, words[1])
        return acts_env.write_activate(scene, words[1], words[2:])
    return acted[name]() if name in acted else _skipped([name, *words])


def host_of(scene: Scene) -> MemoryHost:
    """The server as probes see it."""

    def run(argv: object, **_more: object) -> Output:
        return Output(*scene.ask(*argv))  # type: ignore[misc]

    return MemoryHost(scene.server, Path("/nonexistent"), run)


def _tool(words: list[str], scene: Scene) -> Act:
    code, text = scene.ask(*words)
    yield from text.splitlines()
    yield 0.5
    return Ended(code)


def _said(text: str) -> Act:
    yield text
    return DONE


def _skipped(words: list[str]) -> Act:
    """Something of ours that is not acted out: what it brings about is looked at by its step all the same."""
    yield f"simulated: {' '.join(words)[:200]} is not acted out, and counts as done"
    return DONE


def _unknown(words: list[str]) -> Act:
    yield f"simulated: there is no {words[0] if words else 'command'} on this server"
    return Ended(127)
