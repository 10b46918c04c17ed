"""One environment, the CANN that it meets and the driver, against the row of its vLLM-Ascend."""

import re

from deployments.kinds.check_probes.environments import Environment
from deployments.kinds.check_probes.finding import Finding, failed, job, ok, unknown, warning
from deployments.kinds.check_probes.host import Host
from deployments.kinds.check_probes.pci import npu_devices
from deployments.kinds.check_probes.stack import ASCEND, STACKS, cann_versions, toolkit_version, version_of
from deployments.stacks.catalogue import Stack
from deployments.stacks.versions import at_least, same
from deployments.steps import Text

PACKAGES = ("vllm", "torch", "torch_npu", "triton_ascend")
Difference = tuple[str, str, str, bool]  # what, found, wanted, whether it must fail


def family_of(host: Host) -> str | None:
    """The family of this server's chips, of the catalogue."""
    on_bus = next((f for card in npu_devices(host) if (f := STACKS.family_on_bus(card.device))), None)
    return on_bus or next((f for npu in host.npus if (f := STACKS.family_of(npu.name))), None)


def version_mix(host: Host, one: Environment) -> Finding:
    version = one.has("vllm_ascend")
    if version is None:
        return _without_plugin(one)
    rows = [row for row in STACKS.stacks.values() if row.kind == "npu" and same(row.vllm_ascend, version)]
    if not rows:
        remedy = Text(
            f"目录里没有 vLLM-Ascend {version} 这一行，无法核对：改用目录里的版本，或由管理员在站点文件里加一行。",
            f"No row of the catalogue has vLLM-Ascend {version}, so nothing can be compared: use a version that is "
            "there, or let an administrator add a row.",
        )
        return unknown(remedy, f"vllm_ascend {version}", about=one.prefix)
    family = family_of(host)
    found = min(((differences(host, one, row, family), row) for row in rows), key=lambda pair: len(pair[0]))
    return _judged(one, *found)


def _without_plugin(one: Environment) -> Finding:
    """torch_npu alone is fine, for those who train."""
    if one.has("vllm") is None:
        return ok(f"torch_npu {one.has('torch_npu')}", "—")
    remedy = Text(
        "有 vllm 而没有 vllm-ascend：NPU 不会被用到。按目录的一行安装配套的 vllm-ascend。",
        "vllm is there without vllm-ascend, so no NPU is used: install the vllm-ascend of one row of the catalogue.",
    )
    return warning(f"vllm {one.has('vllm')}", "vllm-ascend", remedy, about=one.prefix, job=job("install"))


def _judged(one: Environment, found: list[Difference], row: Stack) -> Finding:
    if not found:
        return ok(f"vllm_ascend {row.vllm_ascend}", row.name)
    has = ", ".join(f"{what} {value}" for what, value, _wanted, _bad in found)
    wanted = ", ".join(f"{what} {value}" for what, _has, value, _bad in found)
    remedy = Text(
        f"与 {row.name} 一行不配套：把这几项换成该行的版本（安装软件栈 {row.name}），或换用与现有版本配套的一行。",
        f"It does not fit the row {row.name}: bring these to what the row has (install {row.name}), or use the row "
        "that fits what is there.",
    )
    verdict = failed if any(bad for *_rest, bad in found) else warning
    return verdict(has, wanted, remedy, about=one.prefix, job=job("install", stack=row.name))


def differences(host: Host, one: Environment, row: Stack, family: str | None) -> list[Difference]:
    """What is not as the row has it. What no file tells is left out: other items say that it is not known."""
    found: list[Difference] = []
    for name in PACKAGES:
        wanted, has = getattr(row, name), one.has(name)
        # The plugin runs without triton-ascend, and 310P must do so.
        if wanted and not same(has, wanted) and not (name == "triton_ascend" and has is None):
            found.append((name, has or "—", wanted, True))
    for pin in row.pins:
        name, sign, wanted = pin.partition("==")
        has = one.has(name.replace("-", "_").lower())
        if sign and has and not same(has, wanted):
            found.append((name, has, wanted, False))
    return found + _below(host, one, row, family)


def _below(host: Host, one: Environment, row: Stack, family: str | None) -> list[Difference]:
    """CANN, NNAL and driver."""
    found: list[Difference] = []
    own = f"{host.stacks}/{one.prefix.removeprefix(f'{host.stacks}/').split('/')[0]}/ascend"
    mine = toolkit_version(host, f"{own}/cann") if one.prefix.startswith(f"{host.stacks}/") else None
    canns, wanted = ([mine] if mine else sorted(cann_versions(host))), row.cann_for(family)
    if canns and not any(same(has, wanted) for has in canns):
        found.append(("CANN", "/".join(canns), wanted, True))
    nnal = nnal_versions(host, own if mine else ASCEND)
    if nnal and row.nnal and not any(same(has, row.nnal) for has in nnal) and row.cann == wanted:
        found.append(("NNAL", "/".join(nnal), row.nnal, True))
    driver = version_of(host, "driver").get("Version")
    least = STACKS.driver_min(row)
    if driver and least and not at_least(driver, least):
        found.append(("driver", driver, f"≥ {least}", True))
    return found


def nnal_versions(host: Host, base: str) -> list[str]:
    """By the names of its folders: no version file of NNAL is documented."""
    return [name for name in host.look(f"{base}/nnal/atb") if re.fullmatch(r"\d+\.\d+[\w.]*", name)]
