"""msModelSlim in an environment of its own, in the folder of a stack that came without: its versions are not those that
serve. `plan` makes the steps for the stack in use."""

from collections.abc import Mapping

from deployments.stacks import python_layer
from deployments.stacks.activate import TOOLS
from deployments.stacks.catalogue import Catalogue, Stack
from deployments.stacks.draft import Draft, PlannedStep
from deployments.stacks.installed import Installed
from deployments.stacks.options import Options, check
from deployments.stacks.plan import Plan
from deployments.steps import Evidence, Text, python_module

# The same that the CPU stack pins, and what torch_npu imports without asking pip for it.
MSMODELSLIM, TRANSFORMERS = "26.1.0", "4.57.6"
BESIDE_TORCH_NPU = ("pyyaml", "setuptools", "decorator", "attrs", "psutil")


def wanted(stack: Stack) -> Mapping[str, str]:
    """Name → version of what makes the environment whole."""
    pins = dict(pin.partition("==")[::2] for pin in stack.pins)
    npu = {"torch_npu": stack.torch_npu} if stack.torch_npu else {}
    return {"msmodelslim": pins.get("msmodelslim", MSMODELSLIM), "torch": stack.torch or "", **npu}


def plan(installed: Installed, stack: Stack, catalogue: Catalogue, options: Options) -> Plan:
    """Raises BadOptions."""
    check(options)
    draft = Draft(catalogue, stack, installed, options)
    for text in python_layer.obstacles(draft):
        draft.refuse("python", text.zh, text.en)
    if not draft.refusals:
        _steps(draft)
    return Plan(
        stack.name, "cpu" if stack.kind == "cpu" else "venv", "none", tuple(draft.steps), tuple(draft.refusals),
        tuple(draft.gaps), tuple(draft.warnings), addresses=tuple(draft.addresses), locks=("stack",),
    )  # fmt: skip


def _steps(draft: Draft) -> None:
    tools, whole = f"{draft.folder}/{TOOLS}", wanted(draft.stack)
    said = ", ".join(f"{name} {version}" for name, version in whole.items())
    there = python_layer.with_packages(draft, whole, f"{tools}/")
    title = Text("msModelSlim 的环境", "The environment of msModelSlim")
    if there:
        draft.satisfied("tools", "python", title, there.path, said)
    else:
        python_layer.wheels(draft)
        python_layer.tools(draft, tools, Evidence(f"{tools}/bin/python", said), packages(draft.stack))
    draft.add(
        PlannedStep(
            "activate", "python", Text("写入 activate", "Write the activate file"),
            argv=tuple(python_module("deployments.stacks.activate", "again", draft.folder)), timeout_s=60.0,
        )
    )  # fmt: skip


def packages(stack: Stack) -> list[str]:
    """What pip installs beside torch, pinned exactly where a version matters."""
    if stack.kind == "cpu":
        return list(stack.pins)
    return [
        f"torch-npu=={stack.torch_npu}", f"msmodelslim=={MSMODELSLIM}", f"transformers=={TRANSFORMERS}",
        *BESIDE_TORCH_NPU,
    ]  # fmt: skip
