"""The container route: an image of the right chip and system; driver and firmware are the host's."""

import re
from collections.abc import Sequence
from typing import Any

from deployments.stacks import one_npu
from deployments.stacks.draft import Draft, PlannedStep
from deployments.steps import Evidence, Text, python_module

RUNTIMES = ("docker", "podman", "nerdctl")  # of one command line
MANAGERS = ("davinci_manager", "devmm_svm", "hisi_hdc")
MOUNTS = (
    "/usr/local/dcmi",
    "/usr/local/bin/npu-smi",
    "/usr/local/Ascend/driver/lib64/",
    "/usr/local/Ascend/driver/version.info",
    "/etc/ascend_install.info",
)
SEVERAL_HOSTS = ("/usr/local/Ascend/driver/tools/hccn_tool", "/etc/hccn.conf")
SMOKE = (
    "import torch, torch_npu; n = torch_npu.npu.device_count(); print(torch_npu.npu.is_available(), n); "
    "raise SystemExit(0 if n else 1)"
)
SMOKE_S, IMAGE_S = 540, 3600.0
ENGINE_MEANS = (
    (
        r"no space left on device",
        Text(
            "磁盘空间不足，镜像没有载入完。请清出容器引擎数据目录所在的磁盘，再重试。",
            "The disk is full, so the image did not come whole. Free some space where the container engine keeps its "
            "data, then try again.",
        ),
    ),
    (
        r"permission denied .{0,80}docker.{0,20}(sock|api)|got permission denied",
        Text(
            "代理账号不能使用 docker。请以 root 运行 usermod -aG docker <代理账号>，重启代理，再重试。",
            "The agent's account may not use docker. Run as root: usermod -aG docker ACCOUNT, start the agent anew, "
            "then try again.",
        ),
    ),
    (
        r"cannot connect to the docker daemon|is the docker daemon running|cannot connect to podman",
        Text(
            "容器引擎没有运行。请启动它（例如 systemctl start docker），再重试。",
            "The container engine does not run. Start it (such as by systemctl start docker), then try again.",
        ),
    ),
    (
        r"invalid tar header|unexpected eof|archive/tar|not a valid (image|archive)",
        Text(
            "镜像归档不完整，或这个引擎的版本读不了它。请重新复制归档；麒麟 V10 上请在别处 docker save 后再载入。",
            "The archive of the image is not whole, or this version of the engine cannot read it. Copy it again; on "
            "Kylin V10 take one that docker save wrote elsewhere.",
        ),
    ),
    (
        r"manifest unknown|not found: manifest|repository .{1,200} not found|pull access denied|unauthorized",
        Text(
            "镜像仓库没有这个镜像，或不让我们取。请在“选项”里改镜像仓库，或改从归档载入。",
            "The registry has no such image, or does not let us have it. Name another registry among the choices, or "
            "load it from an archive.",
        ),
    ),
    (
        r"no matching manifest|does not match the specified platform",
        Text("镜像没有这种架构的版本。请换一个。", "The image is not made for this architecture. Take another one."),
    ),
    (
        r"i/o timeout|tls handshake timeout|no such host|connection refused|network is unreachable|context deadline",
        Text(
            "连不到镜像仓库。请检查网络与引擎的代理设置，或改从归档载入。",
            "The registry of images cannot be reached. Look at the network and at the engine's proxy, or load the "
            "image from an archive.",
        ),
    ),
)
PLATFORMS = {"aarch64": "linux/arm64", "x86_64": "linux/amd64"}


def run_arguments(
    runtime: str, image: str, devices: Sequence[int | str], command: Sequence[str], *, family: str = "A2",
    mounts: Sequence[str] = (), several_hosts: bool = False, name: str = "",
) -> list[str]:  # fmt: skip
    """The argument list of a container that sees these NPUs (indexes of /dev/davinciN) and is removed when it ends."""
    argv = [runtime, "run", "--rm", *(["--name", name] if name else [])]
    argv += ["--shm-size", "10g" if family == "310P" else "1g"]
    if several_hosts:
        argv += ["--net", "host"]
    for name in [*(f"davinci{index}" for index in devices), *MANAGERS]:
        argv += ["--device", f"/dev/{name}"]
    for path in [*MOUNTS, *(SEVERAL_HOSTS if several_hosts else ()), *mounts]:
        argv += ["-v", f"{path}:{path}" if ":" not in path else path]
    return [*argv, image, *command]


def runtime_of(draft: Draft) -> str | None:
    """The container runtime of the server; docker where its agent has not told of any."""
    has = draft.installed.containers
    if has is None:
        return "docker"
    return next((name for name in RUNTIMES if name in has), None)


def image_of(draft: Draft) -> str | None:
    """Registry, name and tag."""
    debian = draft.installed.debian
    tag = draft.stack.image(draft.family, None if debian is None else "ubuntu" if debian else "openeuler")
    registry = draft.options.registry or draft.catalogue.addresses["registry"]
    return f"{registry.rstrip('/')}/vllm-ascend:{tag}" if tag else None


def obstacles(draft: Draft) -> list[Text]:
    """Why no container can do it; empty when one can."""
    found = []
    if image_of(draft) is None:
        words = (
            f"{draft.stack.name} 没有 {draft.family} 的镜像。",
            f"{draft.stack.name} has no image for {draft.family}.",
        )
        found.append(Text(*words))
    if runtime_of(draft) is None:
        found.append(Text("没有容器运行时（docker 或 podman）。", "There is no container runtime (docker or podman)."))
    return found


def plan(draft: Draft) -> None:
    runtime, image = runtime_of(draft) or "docker", image_of(draft) or ""
    if draft.installed.containers is None:
        draft.warn(
            "代理没有上报容器运行时，按 docker 计划。",
            "The agent has not told which container runtime there is; docker is assumed.",
        )
    platform = PLATFORMS.get(draft.arch, "linux/arm64")
    words = Text(f"确认 {runtime} 可用", f"See that {runtime} answers")
    _add(draft, "engine", words, [runtime, "version"], 60.0, means=ENGINE_MEANS)
    needed = [*(f"/dev/{name}" for name in ("davinci0", *MANAGERS)), *MOUNTS]
    words = Text("确认设备与驱动文件在本机", "See that devices and the driver's files are there")
    _add(draft, "mounts", words, python_module("deployments.stacks.there", *needed), 60.0)
    _image(draft, runtime, image, platform)
    words = Text("确认镜像是本机架构的", "See that the image is of this architecture")
    look = [runtime, "image", "inspect", "--format", "{{.Os}}/{{.Architecture}}", image]
    _add(draft, "image_arch", words, look, 60.0, says=(re.escape(platform),))
    name = f"ascend-console-smoke-{draft.stack.name}"
    remove = [runtime, "rm", "-f", name]
    # One that is not there is answered by 1 of some versions.
    words = Text("移除上次留下的容器", "Remove what an earlier try left")
    _add(draft, "smoke_left", words, remove, 60.0, accepts=(0, 1))
    inside = ["timeout", str(SMOKE_S), "python", "-c", SMOKE]  # who ends the client does not end the container
    smoke = run_arguments(runtime, image, [one_npu.INDEX], inside, family=draft.family, name=name)
    words = Text("在容器里试用一张 NPU", "Try one NPU in a container")
    _add(
        draft, "smoke", words, python_module("deployments.stacks.one_npu", *smoke), SMOKE_S + 60.0,
        means=ENGINE_MEANS, skips=(one_npu.NOT_TRIED,),
        note=Text("NPU 上有进程时，会说明并跳过。", "Where a process is on it, the step says so and is skipped."),
    )  # fmt: skip
    _add(draft, "smoke_out", Text("移除试用的容器", "Remove the container of the try"), remove, 60.0, accepts=(0, 1))


def _image(draft: Draft, runtime: str, image: str, platform: str) -> None:
    """Load or pull it, unless it is there; afterwards it must be."""
    there = Evidence(f"{runtime} image", image)
    archive = draft.options.image_archive
    if archive:
        title, argv = Text("从归档载入镜像", "Load the image from the archive"), [runtime, "load", "-i", archive]
    else:
        title, argv = Text("拉取镜像", "Pull the image"), [runtime, "pull", "--platform", platform, image]
        registry = image.split("/")[0]
        draft.calls(registry, *draft.catalogue.addresses.get("files", {}).get(registry, ()))
    _add(draft, "image", title, argv, IMAGE_S, state="look", reads=there, once=True, means=ENGINE_MEANS)


def _add(draft: Draft, key: str, title: Text, argv: list[str], timeout_s: float, **more: Any) -> None:
    draft.add(PlannedStep(key, "container", title, argv=tuple(argv), timeout_s=timeout_s, **more))
