"""Group `links`: the RoCE ports of the NPUs, by hccn_tool. Cards without ports are left out."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any, NamedTuple

from deployments.kinds.check_probes import hccn
from deployments.kinds.check_probes.finding import Finding, Probe, ok, unknown
from deployments.kinds.check_probes.host import Host, Trouble
from deployments.kinds.check_probes.npus import chip_name, why_none
from deployments.steps import Text
from monitoring.parsers import hccn_ip, hccn_link, hccn_net_health, hccn_optical, hccn_stat
from monitoring.parsers.failures import values_of

AT_ONCE = 4  # questions at a time; a busy host takes about a second for each
TIMEOUT_S = 8.0  # for each: sixteen hanging ports must not outlast the step
TOOLS = ("hccn_tool", "/usr/local/Ascend/driver/tools/hccn_tool")
NO_PORTS = "310"
ERRORS = ("mac_rx_bad_pkt_num", "mac_rx_fcs_err_pkt_num", "roce_qp_status_err_num", "roce_new_pkt_rty_num")
Values = dict[str, Any]


class Question(NamedTuple):
    """One question to each port. `found` makes a word of the answer; a port is well when that is the wanted word."""

    option: str
    parser: ModuleType
    found: Callable[[Values], str]
    wanted: str
    verdict: str  # of a port that is not well
    remedy: Text


LINK = Question(
    "-link",
    hccn_link,
    lambda told: str(told.get("link status")),
    "UP",
    "failed",
    Text(
        "网口没有连上：检查光模块、光纤与交换机端口；单机部署不受影响，多机部署会失败。",
        "The port is down: check optics, fibre and switch port. One server works without it, several do not.",
    ),
)
NET_HEALTH = Question(
    "-net_health",
    hccn_net_health,
    lambda told: str(told.get("net health status")),
    "Success",
    "warning",
    Text(
        "网络侦测没有成功：为网口配置 IP、网关与侦测地址（hccn_tool -i N -netdetect -s address …）。",
        "The network probe does not succeed: give the port an address, a gateway and an address to probe "
        "(hccn_tool -i N -netdetect -s address …).",
    ),
)
ADDRESS = Question(
    "-ip",
    hccn_ip,
    lambda told: "IP" if told.get("ipaddr") else "—",
    "IP",
    "warning",
    Text(
        "网口没有 IP：多机部署前用 hccn_tool -i N -ip -s 配置。",
        "The port has no address: set one with hccn_tool -i N -ip -s before serving over several servers.",
    ),
)
COUNTERS = Question(
    "-stat",
    hccn_stat,
    lambda told: ", ".join(f"{name} {told[name]}" for name in ERRORS if told.get(name)) or "0",
    "0",
    "warning",
    Text("有错包：清洁或更换光模块与光纤。", "Packets were damaged: clean or replace optics and fibre."),
)
OPTICS = Question(
    "-optical",
    hccn_optical,
    lambda told: str(told.get("present")),
    "present",
    "warning",
    Text("没有光模块：插入光模块。", "There is no optical module: fit one."),
)


def devices(host: Host) -> list[int]:
    """Device numbers that have a port; hccn_tool counts as ASCEND_RT_VISIBLE_DEVICES does."""
    return [index for index, npu in enumerate(host.npus) if not chip_name(npu.name).startswith(NO_PORTS)]


def tool(host: Host) -> str:
    """How hccn_tool is called here; many sites do not have it on the PATH. Raises Trouble when it is nowhere."""
    if host.run(TOOLS[0], "-h") is not None:
        return TOOLS[0]
    if host.exists(TOOLS[1]):
        return str(host.path(TOOLS[1]))
    raise Trouble(Text("没有 hccn_tool：驱动没有装全", "There is no hccn_tool: the driver is not whole"))


def ask(host: Host, question: Question) -> list[Finding]:
    """One finding for all ports that are well, one for each other."""
    if not host.npus:
        raise Trouble(why_none(host))
    ports = devices(host)
    if not ports:
        return [ok("0", question.wanted)]
    name = tool(host)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(lambda device: judge(host, name, device, question), ports))
    well = sum(finding.verdict == "ok" for finding in found)
    all_well = [ok(f"{well} × {question.wanted}", question.wanted)] if well else []
    return all_well + [finding for finding in found if finding.verdict != "ok"]


def judge(host: Host, name: str, device: int, question: Question) -> Finding:
    """The finding about one port."""
    about = str(device)
    try:
        text = host.tool(name, "-i", about, question.option, "-g", timeout_s=TIMEOUT_S)
    except Trouble as trouble:
        return unknown(Text(f"{trouble.reason.zh}。", f"{trouble.reason.en}."), wanted=question.wanted, about=about)
    told = values_of(question.parser, text)
    if not told:
        said = " ".join(text.split())[:200]
        remedy = Text(f"看不懂 hccn_tool 的回答：{said}", f"hccn_tool answered what cannot be read: {said}")
        return unknown(remedy, wanted=question.wanted, about=about)
    found = question.found(told)
    if found == question.wanted:
        return ok(found, question.wanted, about=about)
    return Finding(question.verdict, found, question.wanted, question.remedy, about=about)


def deep(question: Question) -> Callable[[Host], list[Finding]]:
    """A question that is left out unless the check was asked to look deeper."""
    return lambda host: ask(host, question) if host.deep else []


PROBES = [
    Probe("link", Text("HCCN 链路", "HCCN links"), lambda host: ask(host, LINK)),
    Probe("net_health", Text("HCCN 网络健康", "HCCN network health"), lambda host: ask(host, NET_HEALTH)),
    Probe("hccn_ip", Text("HCCN 地址", "HCCN addresses"), lambda host: ask(host, ADDRESS)),
    Probe("hccn_conf", Text("hccn.conf", "hccn.conf"), hccn.conf),
    Probe("hccn_stat", Text("HCCN 错包计数", "HCCN error counters"), deep(COUNTERS)),
    Probe("optics", Text("光模块", "Optical modules"), deep(OPTICS)),
]
