"""What the other questions to `npu-smi` and `hccn_tool` print on a simulated server."""

from typing import Any

from deployments.demo import physics, tables
from deployments.demo.fleet import Chip, DemoServer, Engine

Engines = tuple[Engine, ...]
LEGEND = """
Legend:

  X    = Self
  SYS  = Path traversing PCIe and NUMA nodes. Nodes are connected through SMP, such as QPI, UPI.
  PHB  = Path traversing PCIe and the PCIe host bridge of a CPU.
  PIX  = Path traversing a single PCIe switch
  PXB  = Path traversing multiple PCIe switches
  HCCS = Connection traversing HCCS.
  NA   = Unknown relationship.
"""
AFFINITY = ("144-167", "144-167", "96-119", "96-119", "0-23", "0-23", "48-71", "48-71")


def fields(*rows: tuple[str, object]) -> str:
    return "".join(f"\t{name:<31}: {value}\n" for name, value in rows)


def listing(server: DemoServer) -> str:
    """`npu-smi info -l`"""
    npus = list(dict.fromkeys(chip.npu for chip in tables.shown(server)))
    text = fields(("Total Count", len(npus)))
    for npu in npus:
        text += "\n" + fields(("NPU ID", npu), ("Chip Count", server.spec.dies))
    return text


def mapping(server: DemoServer) -> str:
    """`npu-smi info -m`"""
    head = ("NPU ID", "Chip ID", "Chip Logic ID", "Chip Name")
    rows = [head]
    for logic, chip in enumerate(tables.shown(server)):
        name = server.spec.chip if server.spec.chip.startswith("Ascend") else f"Ascend {server.spec.chip}"
        rows.append((str(chip.npu), str(chip.chip), str(logic), name))
    return "".join("\t" + "".join(f"{cell:<31}" for cell in row) + "\n" for row in rows)


def link_between(server: DemoServer, one: Chip, other: Chip) -> str:
    if one.index == other.index:
        return "X"
    if server.spec.dies == 2 and one.npu == other.npu and server.spec.ports:
        return "SIO"
    if server.spec.link == "PIX" and one.index // 4 != other.index // 4:
        return "PHB"
    return server.spec.link


def links(server: DemoServer) -> dict[str, Any]:
    """{"npus": names, "matrix": rows of link words, "cpu_affinity": by name}, as the sampler's `topology`."""
    chips = tables.shown(server)
    names = [f"NPU{chip.index if server.spec.dies == 2 else chip.npu}" for chip in chips]
    return {
        "npus": names,
        "matrix": [[link_between(server, one, other) for other in chips] for one in chips],
        "cpu_affinity": {name: AFFINITY[chip.npu % len(AFFINITY)] for name, chip in zip(names, chips, strict=True)},
    }


def topology(server: DemoServer) -> str:
    """`npu-smi info -t topo`"""
    known = links(server)
    text = "\t   " + "".join(f"{name:<11}" for name in known["npus"]) + "CPU Affinity\n"
    for name, row in zip(known["npus"], known["matrix"], strict=True):
        text += f"{name:<11}" + "".join(f"{word:<11}" for word in row) + known["cpu_affinity"][name] + "\n"
    return text + LEGEND


def board(server: DemoServer, npu: int, chip: int | None) -> str:
    """`npu-smi info -t board`, of a card or, with a chip, of that chip."""
    found = next(one for one in server.chips if one.npu == npu and one.chip == (chip or 0))
    vendor, subsystem = server.spec.subsystem.split(":")
    if chip is not None:
        name = server.spec.chip.removeprefix("Ascend")
        return fields(
            ("NPU ID", npu), ("Chip ID", chip), ("Chip Type", "Ascend"), ("Chip Name", name),
            ("Chip Version", "V1"), ("Board ID", "0x3c"), ("PCB ID", "NA"), ("BOM ID", 1),
            ("PCIe Bus Info", found.bus_id), ("Firmware Version", server.stack.firmware or "NA"),
        )  # fmt: skip
    return fields(
        ("NPU ID", npu), ("Software Version", server.driver), ("Firmware Version", server.stack.firmware or "NA"),
        ("Compatibility", "OK"), ("Board ID", "0x3c"), ("PCB ID", "A"), ("BOM ID", 1),
        ("PCIe Bus Info", found.bus_id), ("Slot ID", npu), ("Class ID", "NA"), ("PCI Vendor ID", "0x19E5"),
        ("PCI Device ID", f"0x{server.spec.pci}"), ("Subsystem Vendor ID", f"0x{vendor}"),
        ("Subsystem Device ID", f"0x{subsystem}"), ("Chip Count", server.spec.dies),
    )  # fmt: skip


def health(server: DemoServer, chip: Chip) -> str:
    """`npu-smi info -t health`"""
    code = server.quirks.get("alarm", {}).get(chip.index)
    return fields(
        ("Health Status", "Alarm" if code else "OK"),
        ("Error Code", code or "NA"),
        ("Error Information", "HBM multi-bit ECC error, page isolation limit reached" if code else "NA"),
    )


def common(server: DemoServer, chip: Chip, t: float, engines: Engines) -> str:
    """`npu-smi info -t common`"""
    reading = physics.readings(server, t, engines)[chip.index]
    rows: list[tuple[str, object]] = [("NPU ID", chip.npu), ("Chip Count", server.spec.dies), ("Chip ID", chip.chip)]
    rows += [("Memory Usage Rate(%)", 0 if server.spec.hbm_mb else reading.used_mb * 100 // server.spec.ddr_mb)]
    rows += [("HBM Usage Rate(%)", reading.used_mb * 100 // server.spec.hbm_mb)] if server.spec.hbm_mb else []
    rows += [("Aicore Usage Rate(%)", reading.aicore), ("Aicore Freq(MHZ)", 1800)]
    rows += [("Aicore curFreq(MHZ)", 1800 if reading.aicore else 800), ("Temperature(C)", reading.celsius)]
    rows += [("NPU Real-time Power(W)", "NA" if reading.watts is None else reading.watts)]
    return fields(*rows)


def usages(server: DemoServer, chip: Chip, t: float, engines: Engines) -> str:
    """`npu-smi info -t usages`"""
    spec, reading = server.spec, physics.readings(server, t, engines)[chip.index]
    rows: list[tuple[str, object]] = [
        ("NPU ID", chip.npu),
        ("Chip Count", spec.dies),
        ("DDR Capacity(MB)", spec.ddr_mb),
    ]
    rows += [("DDR Usage Rate(%)", 0 if spec.hbm_mb else reading.used_mb * 100 // spec.ddr_mb)]
    if spec.hbm_mb:
        rows += [("HBM Capacity(MB)", spec.hbm_mb), ("HBM Usage Rate(%)", reading.used_mb * 100 // spec.hbm_mb)]
    rows += [("Aicore Usage Rate(%)", reading.aicore), ("Aicpu Usage Rate(%)", 0), ("Ctrlcpu Usage Rate(%)", 2)]
    rows += [("HBM Bandwidth Usage Rate(%)", reading.aicore * 7 // 10)] if spec.hbm_mb else []
    return fields(*rows, ("Chip ID", chip.chip))


def temperature(server: DemoServer, chip: Chip, t: float, engines: Engines) -> str:
    return fields(("NPU ID", chip.npu), ("Temperature (C)", physics.readings(server, t, engines)[chip.index].celsius))


def ecc(server: DemoServer, chip: Chip) -> str:
    bad = 1 if chip.index in server.quirks.get("alarm", {}) else 0
    counts = ("Error Count", "Aggregate Total Err Cnt", "Isolated Pages Count")
    rows: list[tuple[str, object]] = [("NPU ID", chip.npu), ("Chip Count", server.spec.dies)]
    for count in counts:
        rows += [(f"HBM Single Bit {count}", 0), (f"HBM Double Bit {count}", bad * 64)]
    return fields(*rows, ("Chip ID", chip.chip))


def process_memory(server: DemoServer, chip: Chip, t: float, engines: Engines) -> str:
    text = fields(("NPU ID", chip.npu))
    for held in physics.processes(server, t, engines):
        if held.chip == chip.index:
            text += f"\tProcess id:{held.pid}  Process name:{held.name}        Process memory(MB):{held.memory_mb}\n"
    return text


def hccn(server: DemoServer, device: int, question: str) -> str | None:
    """What `hccn_tool -i <device> <question> -g` prints; None where the chip has no port or the question is unknown."""
    if not server.spec.ports or device >= len(tables.shown(server)):
        return None
    down = server.quirks.get("down") == device
    answers = {
        "-link": f"link status: {'DOWN' if down else 'UP'}\n",
        "-net_health": f"net health status: {'Init' if down else 'Success'}\n",
        "-ip": f"ipaddr:198.18.{server.index % 250}.{device + 10}\nnetmask:255.255.0.0\n",
        **({"-vnic": _vnic(server, device)} if server.spec.dies == 2 else {}),
        "-speed": f"Speed: {'Unknown!' if down else '200000 Mb/s'}\n",
        "-stat": _counters(device, 7 if down else 0),
        "-optical": f"optical info:\npresent              : present\nVendor Name          : DEMO\n"
        f"temperature          : {41 + device} C\nTx Power             : 1.{device}120 mW\nRx Power             : "
        f"{'0.0000' if down else f'0.9{device}40'} mW\n",
        "-lldp": f"Chassis ID TLV\n\tMAC: 00:00:5e:00:53:{server.index % 256:02x}\nPort ID TLV\n"
        f"\tIfname: 200GE1/0/{device + 1}\nEnd of LLDPDU TLV\n",
    }
    return answers.get(question)


def ping(server: DemoServer, device: int, address: str) -> str | None:
    """What `-ping` and `-hccs_ping` print: all that is well is reached, from a port that is down nothing."""
    if hccn(server, device, "-link") is None:
        return None
    lost = server.quirks.get("down") == device
    rows = [f"recv time out seq={n}" if lost else f"recv seq={n},time=0.0{6 + n}4000ms" for n in range(3)]
    told = "3 packets transmitted, 0 received, 100.00" if lost else "3 packets transmitted, 3 received, 0.00"
    return "\n".join((f"device {device} PING {address}", *rows, f"{told}% packet loss")) + "\n"


def _vnic(server: DemoServer, device: int) -> str:
    address = f"198.19.{server.index % 250}.{device + 10}"
    return f"vnic link status: UP\nvnic ipaddr: {address}\nvnic netmask: 255.255.0.0\n"


def _counters(device: int, bad: int) -> str:
    rows = [
        ("mac_tx_mac_pause_num", 0),
        ("mac_rx_mac_pause_num", 0),
        ("mac_rx_bad_pkt_num", bad),
        ("mac_rx_fcs_err_pkt_num", bad),
        ("roce_new_pkt_rty_num", bad * 3),
        ("roce_qp_status_err_num", 0),
        ("nic_tx_all_pkg_num", 90213 + device * 377),
        ("nic_rx_all_pkg_num", 88120 + device * 411),
    ]
    return "packet statistics:\n" + "".join(f"{name}:{value}\n" for name, value in rows)
