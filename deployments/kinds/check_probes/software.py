"""Group `software`: Python environments against the rows of the stacks, and container images against the chip."""

import re
from collections.abc import Callable

from deployments.kinds.check_probes import environments
from deployments.kinds.check_probes.driver import loader_folders
from deployments.kinds.check_probes.environments import Environment
from deployments.kinds.check_probes.finding import Finding, Probe, failed, job, ok, unknown, warning
from deployments.kinds.check_probes.host import Host
from deployments.kinds.check_probes.images import images
from deployments.kinds.check_probes.mix import family_of, version_mix
from deployments.kinds.check_probes.operators import operators
from deployments.kinds.check_probes.stack import STACKS
from deployments.stacks.versions import fits, key
from deployments.steps import Text

OURS = ("vllm_ascend", "torch_npu")
# What CANN's operator compiler imports (vllm-ascend 0.23.0, installation.md), by distribution.
CANN_NEEDS = (
    "attrs", "numpy", "decorator", "sympy", "cffi", "pyyaml", "psutil", "protobuf", "scipy", "requests", "absl_py",
)  # fmt: skip
SUBPACKAGES = ("attention", "ops", "worker")  # of vllm_ascend, in every release
SYSTEM_LIBS = ("/usr/lib/aarch64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/usr/lib64")
NO_NUMPY_2 = "<2"
MOONCAKE = ("/usr/local/lib", "/usr/local/lib64")


def with_npu(host: Host) -> list[Environment]:
    """Environments that hold something for NPUs."""
    return [one for one in environments.pythons(host) if any(name in one.named for name in OURS)]


def each(host: Host, judge: Callable[[Environment], Finding]) -> list[Finding]:
    """One finding for all environments that are well, one for each other, which is told by its place."""
    found = [judge(one) for one in with_npu(host)]
    well = [finding for finding in found if finding.verdict == "ok"]
    summed = [ok(f"{len(well)} × {well[0].found}" if len(well) > 1 else well[0].found, well[0].wanted)] if well else []
    return summed + [finding for finding in found if finding.verdict != "ok"]


def mix(host: Host) -> list[Finding]:
    """Each environment against the row of its vLLM-Ascend."""
    if not with_npu(host):
        remedy = Text(
            "常见位置没有装着 vLLM-Ascend 或 torch_npu 的 Python 环境，无从核对。",
            "No Python environment with vLLM-Ascend or torch_npu lies where they usually do, so nothing was compared.",
        )
        return [unknown(remedy)]
    return each(host, lambda one: version_mix(host, one))


def numpy(host: Host) -> list[Finding]:
    return each(host, _numpy)


def _numpy(one: Environment) -> Finding:
    version = one.has("numpy")
    wanted = wanted_numpy(one)
    if version is None:
        return failed("—", f"numpy {wanted}", _reinstall(one, "numpy"), about=one.prefix)
    if fits(version, wanted):
        return ok(f"numpy {version}", wanted)
    remedy = Text(
        f"CANN 与插件的 Python 部分用不了这个 numpy：{one.path} -m pip install 'numpy{wanted}'，再重启服务。",
        f"The Python parts of CANN and of the plugin do not work with this numpy: "
        f"{one.path} -m pip install 'numpy{wanted}', then restart what uses it.",
    )
    return failed(f"numpy {version}", wanted, remedy, about=one.prefix, job=_again(one))


def wanted_numpy(one: Environment) -> str:
    """The range that the packages there ask for; below 2 where none says anything, as CANN wants it."""
    for name in OURS:
        folder, _version = one.named.get(name, ("", ""))
        text = one.host.peek(f"{folder}/METADATA")[:60000] if folder else ""
        if hit := re.search(r"^Requires-Dist: numpy\s*\(?([<>=!.,\d ]+)", text, re.MULTILINE):
            return hit[1].strip().strip(",")
    version = one.has("vllm_ascend")
    row = next((row for row in STACKS.stacks.values() if row.vllm_ascend == version), None)
    pin = next((pin for pin in row.pins if pin.startswith("numpy")), None) if row else None
    return pin.removeprefix("numpy") if pin else NO_NUMPY_2


def _again(one: Environment) -> dict[str, object] | None:
    """The job that makes an environment of ours anew; None for those of others, which we leave alone."""
    inside = f"{one.host.stacks}/"
    name = one.prefix.removeprefix(inside).split("/")[0] if one.prefix.startswith(inside) else ""
    return job("install", stack=name) if name in STACKS.stacks else None


def _reinstall(one: Environment, words: str) -> Text:
    return Text(
        f"缺少：{words}。{one.path} -m pip install {words}",
        f"Missing: {words}. {one.path} -m pip install {words}",
    )


def cann_python(host: Host) -> list[Finding]:
    """What the operator compiler imports."""

    def judge(one: Environment) -> Finding:
        missing = [name for name in CANN_NEEDS if name not in one.named]
        if not missing:
            return ok(f"{len(CANN_NEEDS)}", "CANN")
        words = " ".join(missing)
        return failed(f"− {words}", "CANN", _reinstall(one, words), about=one.prefix, job=_again(one))

    return each(host, judge)


def plugin_whole(host: Host) -> list[Finding]:
    """Whether vllm_ascend has its subpackages and its compiled part."""
    found = each(host, _whole)
    return [finding for finding in found if finding.found != "-"]


def _whole(one: Environment) -> Finding:
    if "vllm_ascend" not in one.named:
        return ok("-")
    folder = next((f"{place}/vllm_ascend" for place in one.places if one.host.look(f"{place}/vllm_ascend")), None)
    wanted = f"vllm_ascend: {', '.join(SUBPACKAGES)}, *.so"
    if folder is None:
        remedy = Text(
            "这是从源码目录装的（editable），是否完整看不出：在别的目录运行 python -c “import vllm_ascend”。",
            "It is installed from a source folder (editable), so nobody can tell whether it is whole: "
            "run python -c “import vllm_ascend” from another folder.",
        )
        return unknown(remedy, wanted=wanted, about=one.prefix)
    names = one.host.look(folder)
    missing = [name for name in SUBPACKAGES if name not in names]
    missing += [] if any(name.endswith(".so") for name in names) else ["*.so"]
    if not missing:
        return ok("vllm_ascend", wanted)
    remedy = Text(
        f"vllm_ascend 没有装全（缺 {'、'.join(missing)}）：卸载后从发布的 wheel 重装，自己编译时设 "
        "COMPILE_CUSTOM_KERNELS=1。",
        f"vllm_ascend is not whole ({', '.join(missing)} missing): uninstall it and install the release's wheel; "
        "who builds it sets COMPILE_CUSTOM_KERNELS=1.",
    )
    return failed(f"− {', '.join(missing)}", wanted, remedy, about=one.prefix, job=_again(one))


def backends(host: Host) -> list[Finding]:
    """Packages that register a device with PyTorch by themselves: two for NPUs exclude each other."""

    def judge(one: Environment) -> Finding:
        found = [
            name
            for name, (folder, _version) in sorted(one.named.items())
            if "[torch.backends]" in one.host.peek(f"{folder}/entry_points.txt")
        ]
        if len(found) <= 1:
            return ok(", ".join(found) or "0", "≤ 1")
        remedy = Text(
            "多个软件包都自动注册 PyTorch 后端，导入时会冲突：卸载多余的，或启动前设 TORCH_DEVICE_BACKEND_AUTOLOAD=0。",
            "Several packages register a backend with PyTorch by themselves and clash: uninstall all but one, or set "
            "TORCH_DEVICE_BACKEND_AUTOLOAD=0.",
        )
        return failed(", ".join(found), "≤ 1", remedy, about=one.prefix)

    return each(host, judge)


def triton(host: Host) -> list[Finding]:
    """310P has no Triton; elsewhere triton-ascend alone may lie there, which `triton` overwrites."""
    on_310p = family_of(host) == "310P"

    def judge(one: Environment) -> Finding:
        found = one.only(("triton", "triton_ascend"))
        words = ", ".join(f"{name} {version}" for name, version in found.items()) or "—"
        if on_310p and found:
            remedy = Text(
                f"310P 不能用 Triton：{one.path} -m pip uninstall -y triton triton-ascend",
                f"310P cannot run Triton: {one.path} -m pip uninstall -y triton triton-ascend",
            )
            return failed(words, "—", remedy, about=one.prefix)
        if len(found) == 2:
            remedy = Text(
                "triton 与 triton-ascend 互相覆盖：卸载两者，再单独装回 triton-ascend。",
                "triton and triton-ascend overwrite each other: uninstall both, then install triton-ascend again.",
            )
            return warning(words, "triton-ascend", remedy, about=one.prefix)
        return ok(words, "—" if on_310p else "triton-ascend")

    return each(host, judge)


def libstdcxx(host: Host) -> list[Finding]:
    """An environment's own C++ library must not be older than the system's."""
    system = newest_libstdcxx(host, SYSTEM_LIBS)

    def judge(one: Environment) -> Finding:
        own = newest_libstdcxx(host, (f"{one.prefix}/lib",))
        if own is None or system is None:
            return ok("—" if own is None else own, "≥ " + (system or "—"))
        if key(own) >= key(system):
            return ok(own, f"≥ {system}")
        remedy = Text(
            f"环境自带的 libstdc++ 比系统的旧，会报缺少 GLIBCXX：conda install -c conda-forge libstdcxx-ng，"
            f"或启动前设 LD_PRELOAD 为系统的 libstdc++.so.6（{one.prefix}）。",
            "The environment's own libstdc++ is older than the system's, so GLIBCXX will be missing: "
            "conda install -c conda-forge libstdcxx-ng, or preload the system's libstdc++.so.6.",
        )
        return warning(own, f"≥ {system}", remedy, about=one.prefix)

    return each(host, judge)


def newest_libstdcxx(host: Host, folders: tuple[str, ...]) -> str | None:
    """`6.0.30` of libstdc++.so.6.0.30, the newest of these folders."""
    names = [name for folder in folders for name in host.look(folder)]
    found = [hit[1] for name in names if (hit := re.fullmatch(r"libstdc\+\+\.so\.(6\.0\.\d+)", name))]
    return max(found, key=key) if found else None


def mooncake(host: Host) -> list[Finding]:
    """The transport of Mooncake installs itself where the loader may not look. Left out where it is not there."""
    lies = [folder for folder in MOONCAKE if any("ascend_transport" in name for name in host.look(folder))]
    if not lies:
        return []
    if any(folder in loader_folders(host) for folder in lies):
        return [ok(lies[0], lies[0])]
    remedy = Text(
        f"加载器不搜索 {lies[0]}，分离部署会报找不到 ascend_transport.so。以 root 运行："
        f"echo {lies[0]} > /etc/ld.so.conf.d/mooncake.conf && ldconfig",
        f"The loader does not look into {lies[0]}, so engines will not find ascend_transport.so. As root run: "
        f"echo {lies[0]} > /etc/ld.so.conf.d/mooncake.conf && ldconfig",
    )
    return [warning(f"{lies[0]}/ascend_transport.so", "ld.so.conf, LD_LIBRARY_PATH", remedy)]


PROBES = [
    Probe("operators", Text("芯片的算子包", "Operators of the chip"), operators),
    Probe("version_mix", Text("版本配套", "Versions that go together"), mix),
    Probe("numpy", Text("numpy", "numpy"), numpy),
    Probe("cann_python", Text("CANN 需要的 Python 包", "Python packages that CANN needs"), cann_python),
    Probe("plugin_whole", Text("vLLM-Ascend 完整性", "vLLM-Ascend is whole"), plugin_whole),
    Probe("backends", Text("PyTorch 后端", "Backends of PyTorch"), backends),
    Probe("triton", Text("Triton", "Triton"), triton),
    Probe("libstdcxx", Text("环境自带的 libstdc++", "The environment's libstdc++"), libstdcxx),
    Probe("mooncake", Text("Mooncake 传输库", "Transport of Mooncake"), mooncake),
    Probe("images", Text("镜像的芯片", "Chip of the images"), images),
]
