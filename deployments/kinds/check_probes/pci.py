"""Ascend devices on the PCI bus, read from sysfs: needs neither driver nor lspci."""

from typing import NamedTuple

from deployments.kinds.check_probes.host import Host
from deployments.kinds.check_probes.textfiles import pairs

DEVICES = "/sys/bus/pci/devices"
VENDOR = "19E5"
FAMILIES = {
    "D801": "910",
    "D802": "910B",
    "D803": "A3",
    "D500": "310P",
    "D806": "950",
    "D105": "310B",
    "D107": "310B",
    "D100": "310",
}


class PciNpu(NamedTuple):
    """`bus_id` is upper case, as npu-smi prints it; `family` is a value of FAMILIES."""

    bus_id: str
    device: str
    subsystem: str
    family: str


def npu_devices(host: Host) -> list[PciNpu]:
    """The Ascend accelerators on the bus, in order of their address; empty when there is none."""
    found = []
    for name in host.names(DEVICES):
        values = pairs(host.read(f"{DEVICES}/{name}/uevent") or "", "=")
        vendor, _, device = values.get("PCI_ID", "").upper().partition(":")
        if vendor == VENDOR and device in FAMILIES:
            found.append(
                PciNpu(name.upper(), device.lower(), values.get("PCI_SUBSYS_ID", "").lower(), FAMILIES[device])
            )
    return found
