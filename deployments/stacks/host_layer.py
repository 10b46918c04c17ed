"""Driver and firmware: one pair per server, a minimum and a pairing, as root, with a restart.

A first install takes the driver, then the firmware; whatever goes over something installed takes the firmware, then
the driver. There is no downgrade of either: both are uninstalled, and what follows is a first install.
"""

import re
from typing import NamedTuple

from deployments.stacks import actions
from deployments.stacks.actions import KERNEL
from deployments.stacks.draft import Draft, PlannedStep
from deployments.stacks.heard import HOST
from deployments.stacks.installed import ASCEND
from deployments.stacks.package_words import CHECK_MEANS, HOST_MEANS
from deployments.stacks.versions import PLAIN, at_least, in_range, key, same
from deployments.steps import ATTEMPT, Evidence, Text, python_module

DRIVER_INFO, FIRMWARE_INFO = f"{ASCEND}/driver/version.info", f"{ASCEND}/firmware/version.info"
SAYS_DRIVER = (r"driver package install(ed)? success",)
SAYS_FIRMWARE = (r"firmware package install(ed)? success",)
CHECK_SAYS = (r"all good",)
ANSWER_S = 900  # the driver brings up one NPU after the other
BY_HAND_S = 24 * 3600.0
UNKNOWN_VERSION = "VERSION"  # stands in a file name until somebody names the version


class Target(NamedTuple):
    """What is to be: versions, or None where nothing of that part is to change."""

    mode: str  # none | first | upgrade | firmware | downgrade
    driver: str | None = None
    firmware: str | None = None


def plan(draft: Draft, *, again: bool = False) -> str:
    """Write the steps of the host layer; the mode of what happens there. `again`: also what is there already."""
    least = draft.catalogue.driver_min(draft.stack)
    target = _target(draft, least)
    if target.mode == "none" and again:
        target = _again(draft)
    if target.mode == "none":
        _keep(draft, least)
        return "none"
    _before(draft)
    packages = _packages(draft, target)
    for part, file in packages:
        _check(draft, part, file)
    _free(draft)
    if target.mode == "downgrade":
        _uninstall(draft)
    if target.driver:
        _check_canns(draft, target.driver)
    for part, file in packages:
        _install(draft, target, part, file)
    _after(draft, target)
    return target.mode


def _target(draft: Draft, least: str | None) -> Target:
    """What must change, and to which versions."""
    has, wish = draft.installed, draft.options.driver
    if has.driver is None:
        return Target("first", wish or _paired(draft, least), _firmware(draft, wish or _paired(draft, least)))
    if wish and not same(wish, has.driver):
        mode = "upgrade" if key(wish) > key(has.driver) else "downgrade"
        if mode == "downgrade" and least and not at_least(wish, least):
            draft.refuse(
                "driver_below_minimum",
                f"CANN {draft.cann} 至少需要驱动 {least}，不能降到 {wish}。",
                f"CANN {draft.cann} needs driver {least} at least, so it cannot go down to {wish}.",
            )
        return Target(mode, wish, _firmware(draft, wish))
    if least and not at_least(has.driver, least):
        return Target("upgrade", _paired(draft, least), _firmware(draft, _paired(draft, least)))
    if has.driver_whole is False and PLAIN.fullmatch(has.driver):
        return Target("upgrade", has.driver, _firmware(draft, has.driver))
    if draft.options.firmware and not same(draft.options.firmware, has.firmware):
        return Target("firmware", None, _firmware(draft, has.driver))
    if has.firmware is None or has.is_paired is False:
        return Target("firmware", None, _firmware(draft, has.driver))
    return Target("none")


def _again(draft: Draft) -> Target:
    """The same once more, as an upgrade over itself: what a change that failed has left may be half there."""
    has = draft.installed
    assert has.driver is not None
    firmware = draft.options.firmware or has.firmware or _firmware(draft, has.driver)
    return Target("upgrade", has.driver, firmware)


def _check_canns(draft: Draft, driver: str) -> None:
    """Warn of every CANN of the server that the driver would be too old for."""
    for version in dict.fromkeys(part.version for part in draft.installed.cann or () if part.version):
        least = draft.catalogue.cann_driver_min(version)
        if least and not at_least(driver, least):
            draft.warn(
                f"这台服务器上的 CANN {version} 至少需要驱动 {least}：换成 {driver} 之后，用它的软件栈不可用。",
                f"CANN {version} on this server needs driver {least} at least: with {driver} the stacks that use it "
                "stop working.",
            )


def _paired(draft: Draft, least: str | None) -> str:
    """The driver to install: of those that the CANN names as its pair the newest final one, else the newest."""
    row = draft.catalogue.cann.get(draft.cann.lower()) or draft.catalogue.cann.get(draft.stack.cann.lower())
    named = row.hdk_paired if row else ()
    if named:
        return max(named, key=lambda version: ("rc" not in version.lower(), key(version)))
    wanted = f"≥ {least}" if least else "?"
    draft.ask(
        f"没有资料写明 CANN {draft.cann} 配套哪个驱动（最低 {wanted}）：请填写驱动版本。",
        f"No source names the driver that goes with CANN {draft.cann} (wanted: {wanted}): name the driver's version.",
    )
    return ""


def _firmware(draft: Draft, driver: str) -> str:
    """The firmware for a driver: as wished, else as it was seen beside it."""
    if draft.options.firmware:
        _check_range(draft, driver, draft.options.firmware)
        return draft.options.firmware
    found = draft.catalogue.firmware.get((draft.family, driver.lower())) if driver else None
    if found:
        return found
    if driver:
        draft.ask(
            f"没有资料写明 {draft.family} 的驱动 {driver} 配套哪个固件：请按厂商配套表填写固件版本。",
            f"No source names the firmware that goes with driver {driver} on {draft.family}: "
            "name its version, from the vendor's table.",
        )
    return ""


def _check_range(draft: Draft, driver: str, firmware: str) -> None:
    """A firmware that the installed driver would refuse is refused before, where that driver stays."""
    has = draft.installed
    if not same(driver, has.driver) or not has.firmware_ranges:
        return
    if not any(in_range(firmware, low, high) for low, high in has.firmware_ranges):
        words = ", ".join(f"{low}–{high}" for low, high in has.firmware_ranges)
        draft.refuse(
            "firmware_not_accepted",
            f"驱动 {driver} 只接受固件 {words}，{firmware} 不在其中。",
            f"Driver {driver} accepts firmware {words}, which {firmware} is not.",
        )


def _keep(draft: Draft, least: str | None) -> None:
    has = draft.installed
    driver = Text("NPU 驱动", "NPU driver")
    if least is None:
        note = Text("没有资料写明此软件栈的最低驱动。", "No source names the oldest driver of this stack.")
        draft.warn(
            f"没有资料写明 CANN {draft.cann} 的最低驱动：{has.driver} 是否够新，请查发布说明。",
            f"No source names the oldest driver of CANN {draft.cann}: see its release notes on whether "
            f"{has.driver} is new enough.",
        )
    else:
        note = Text(f"需要 ≥ {least}。", f"≥ {least} is needed.")
    draft.satisfied("driver", "host", driver, DRIVER_INFO, f"Version={has.driver}", note)
    firmware = Text("NPU 固件", "NPU firmware")
    if has.is_paired is None:
        accepted = Text("驱动没有写明它接受哪些固件。", "The driver does not say which firmware it accepts.")
    else:
        words = ", ".join(f"{low}–{high}" for low, high in has.firmware_ranges or ())
        accepted = Text(f"驱动接受 {words}。", f"The driver accepts {words}.")
    draft.satisfied("firmware", "host", firmware, FIRMWARE_INFO, f"Version={has.firmware}", accepted)


def _before(draft: Draft) -> None:
    """Tools and headers for the driver's build, and the account that it runs as."""
    kernel, debian = draft.installed.kernel, draft.installed.debian
    title = Text("编译驱动所需的软件包与内核头文件", "Tools and kernel headers for the driver's build")
    if kernel is None or debian is None or not re.fullmatch(KERNEL, kernel):
        draft.ask(
            "不知道这台服务器的内核或系统，无法写出软件包命令：等代理上报后再看。",
            "The kernel or the system of this server is not known, so its packages cannot be named: "
            "wait for its agent to tell.",
        )
    else:
        manager = "apt" if debian else "yum"
        draft.root("tools", "host", title, [f"{manager}-driver-tools", kernel], state="look")
        draft.calls("apt (/etc/apt/sources.list)" if debian else "yum (/etc/yum.repos.d)")
    draft.root("run_group", "host", Text("驱动运行用户组", "Group of the driver"), ["run-group"], state="look")
    draft.root("run_user", "host", Text("驱动运行用户", "Account of the driver"), ["run-user"], state="look")
    draft.root(
        "join_group", "host", Text("让代理账号使用 NPU", "Let the agent's account use the NPUs"),
        ["join-run-group"], state="look",
    )  # fmt: skip


def _free(draft: Draft) -> None:
    """Nobody may hold an NPU from here on; the root helper looks again just before each change."""
    draft.add(
        PlannedStep(
            "free", "host", Text("确认没有人使用 NPU", "See that nobody holds an NPU"),
            argv=tuple(python_module("deployments.agent.holders")), timeout_s=300.0,
            note=Text(
                "已知的监控导出器会先停止，改动结束（或失败）后再启动。",
                "Known exporters are stopped before, and started again when the change has ended or failed.",
            ),
        )
    )  # fmt: skip


def _packages(draft: Draft, target: Target) -> list[tuple[str, str]]:
    """[(part, file of its package)] in the order in which they go on."""
    files = draft.catalogue.files
    hdk = draft.catalogue.families[draft.family].hdk
    if hdk is None:
        draft.ask(
            f"没有资料写明 {draft.family} 驱动与固件安装包的文件名：请从厂商处取得，放进 {actions.PACKAGES}。",
            f"No source names the files of driver and firmware for {draft.family}: "
            f"get them from the vendor and put them into {actions.PACKAGES}.",
        )
        hdk = f"Ascend-hdk-{draft.family}-npu"
    driver = files["driver"].format(hdk=hdk, version=_written(target.driver), arch=draft.arch)
    firmware = files["firmware"].format(hdk=hdk, version=_written(target.firmware))
    parts = [("driver", driver), ("firmware", firmware)]
    if target.mode == "firmware":
        return parts[1:]
    return parts[::-1] if target.mode == "upgrade" else parts


def _written(version: str | None) -> str:
    """A version as names of files have it: the vendor's tools tell of 26.0.rc1 what came out of a file 26.0.RC1."""
    return version.replace(".rc", ".RC") if version else UNKNOWN_VERSION


def _name(part: str) -> Text:
    return Text("驱动", "driver") if part == "driver" else Text("固件", "firmware")


def _check(draft: Draft, part: str, file: str) -> None:
    name, path = _name(part), draft.root_package(file)
    draft.add(
        PlannedStep(
            f"check_{part}", "host", Text(f"校验{name.zh}安装包", f"Check the package of the {name.en}"),
            argv=("bash", path, "--check"), says=CHECK_SAYS, means=CHECK_MEANS, package=path, timeout_s=600.0,
        )
    )  # fmt: skip


def _uninstall(draft: Draft) -> None:
    for part in ("driver", "firmware"):
        name = _name(part)
        draft.root(
            f"uninstall_{part}", "host", Text(f"卸载现有{name.zh}", f"Uninstall the present {name.en}"),
            [f"uninstall-{part}"], means=HOST, to_its_end=True,
        )  # fmt: skip
    draft.warn(
        "驱动与固件没有降级方式，只能卸载后重装：在重启之前这台服务器没有可用的 NPU，失败时也没有退路。",
        "Neither driver nor firmware has a downgrade: both are uninstalled and installed anew. Until the restart "
        "the server has no usable NPU, and a failure leaves it so.",
    )


def _install(draft: Draft, target: Target, part: str, file: str) -> None:
    has = draft.installed
    name = _name(part)
    over = target.mode != "downgrade" and (has.driver if part == "driver" else has.firmware) is not None
    version = (target.driver if part == "driver" else target.firmware) or "?"
    verb = Text("升级", "Upgrade") if over else Text("安装", "Install")
    title = Text(f"{verb.zh}{name.zh} {version}", f"{verb.en} the {name.en} to {version}")
    if not over:
        title = Text(title.zh, f"Install the {name.en} {version}")
    draft.root(
        part, "host", title, actions.package("upgrade" if over else f"{part}-first", file), accepts=(0, 2),
        says=SAYS_DRIVER if part == "driver" else SAYS_FIRMWARE, package=draft.root_package(file),
        means=(*HOST, *HOST_MEANS[part]), to_its_end=True,
        reads=Evidence(DRIVER_INFO if part == "driver" else FIRMWARE_INFO, f"Version={version}"),
        note=Text("安装期间不要断电或重启。", "Neither power it off nor restart it meanwhile.")
        if part == "firmware" else None,
    )  # fmt: skip


def _after(draft: Draft, target: Target) -> None:
    draft.root(
        "exporters", "host", Text("启动停下的导出器", "Start the exporters that were stopped"), ["start-exporters"],
        always=True, timeout_s=300.0,
    )  # fmt: skip
    _restart(draft)
    draft.add(
        PlannedStep(
            "npus_back", "host", Text("等待 NPU 恢复", "Wait until the NPUs answer"),
            argv=tuple(python_module("deployments.kinds.reboot_look", "after", "--patience", str(ANSWER_S))),
            timeout_s=ANSWER_S + 120.0,
        )
    )  # fmt: skip
    draft.add(
        PlannedStep(
            "npu_smi", "host", Text("确认 NPU 就绪", "See that the NPUs answer"), argv=("npu-smi", "info"),
            says=(r"npu-smi\s+\S+\s+version",), timeout_s=120.0,
            reads=Evidence(DRIVER_INFO, f"Version={target.driver or draft.installed.driver or '?'}"),
        )
    )  # fmt: skip
    draft.add(
        PlannedStep(
            "check_stack", "host", Text("检查驱动、固件与配套", "Check driver, firmware and their pairing"),
            argv=tuple(python_module("deployments.kinds.check_probes", "stack")), timeout_s=300.0,
        )
    )  # fmt: skip
    draft.warn(
        "驱动层会中断这台服务器上的全部 NPU 任务，并需要重启；失败时服务器转入维护状态。",
        "The host layer interrupts all work on the NPUs of this server and needs a restart; "
        "where it fails, the server goes into maintenance.",
    )


def _restart(draft: Draft) -> None:
    """By hand, or by the agent: at once, or in a span of time, and then only where nobody uses the server."""
    note = Text("固件在重启后生效。", "The firmware takes effect after it.")
    title = Text("重启服务器", "Restart the server")
    if draft.options.restart == "by_hand":
        waits = Text("由人在合适的时间重启。", "A person restarts it, when it suits.")
        draft.add(
            PlannedStep(
                "reboot", "host", title, reboot=True, reboot_s=BY_HAND_S,
                note=Text(note.zh + waits.zh, f"{note.en} {waits.en}"),
            )
        )  # fmt: skip
        return
    if draft.options.restart == "window":
        span = draft.options.window
        draft.add(
            PlannedStep(
                "window", "host", Text(f"等到 {span}（服务器时间）", f"Wait for {span}, by the server's clock"),
                argv=tuple(python_module("deployments.stacks.window", span)), timeout_s=25 * 3600.0,
            )
        )  # fmt: skip
    draft.add(
        PlannedStep(
            "in_use", "host", Text("查看谁在使用", "Look who uses it"),
            argv=tuple(python_module("deployments.kinds.reboot_look", "before", "--changed")), timeout_s=120.0,
        )
    )  # fmt: skip
    draft.root("reboot", "host", title, ["reboot", ATTEMPT], reboot=True, note=note, timeout_s=120.0)
