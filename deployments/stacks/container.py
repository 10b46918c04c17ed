"""The container route: an image of the right chip and system; driver and firmware are the host's."""

from collections.abc import Sequence

from deployments.stacks.draft import Draft, PlannedStep
from deployments.steps import Text

RUNTIMES = ("docker", "podman", "nerdctl", "isula")
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
PLATFORMS = {"aarch64": "linux/arm64", "x86_64": "linux/amd64"}


def run_arguments(
    runtime: str, image: str, devices: Sequence[int], command: Sequence[str], *, family: str = "A2",
    mounts: Sequence[str] = (), several_hosts: bool = False,
) -> list[str]:  # fmt: skip
    """The argument list of a container that sees these NPUs (indexes of /dev/davinciN) and is removed when it ends."""
    argv = [runtime, "run", "--rm", "--shm-size", "10g" if family == "310P" else "1g"]
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
    archive = draft.options.image_archive
    if archive:
        title = Text("从归档载入镜像", "Load the image from the archive")
        _add(draft, "image", title, [runtime, "load", "-i", archive], 3600.0)
    else:
        platform = PLATFORMS.get(draft.arch, "linux/arm64")
        title = Text("拉取镜像", "Pull the image")
        _add(draft, "image", title, [runtime, "pull", "--platform", platform, image], 3600.0)
        draft.calls(image.split("/")[0])
    _add(
        draft,
        "image_there",
        Text("确认镜像在本机", "See that the image is there"),
        [runtime, "image", "inspect", image],
        60.0,
    )
    smoke = run_arguments(runtime, image, [0], ["python", "-c", SMOKE], family=draft.family)
    _add(draft, "smoke", Text("在容器里试用一张 NPU", "Try one NPU in a container"), smoke, 600.0)


def _add(draft: Draft, key: str, title: Text, argv: list[str], timeout_s: float) -> None:
    draft.add(PlannedStep(key, "container", title, argv=tuple(argv), timeout_s=timeout_s))
