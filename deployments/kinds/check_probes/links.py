"""Group `links`: the RoCE ports of the NPUs, by hccn_tool. Cards without ports are left out."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from deployments.kinds.check_probes.finding import Finding, Probe, Trouble, failed, ok, unknown, warning
from deployments.kinds.check_probes.host import Host
from deployments.kinds.check_probes.npus import chip_name, why_none
from deployments.kinds.check_probes.textfiles import pairs
from deployments.steps import Text

AT_ONCE = 4  # questions to hccn_tool; it takes about a second each on a busy host
TOOLS = ("hccn_tool", "/usr/local/Ascend/driver/tools/hccn_tool")
NO_PORTS = ("310",)
ERRORS = ("mac_rx_bad_pkt_num", "mac_rx_fcs_err_pkt_num", "roce_qp_status_err_num", "roce_new_pkt_rty_num")
Reading = dict[str, str] | str  # values, or why there are none


def devices(host: Host) -> list[int]:
    """Device numbers that have a port; hccn_tool counts as ASCEND_RT_VISIBLE_DEVICES does."""
    return [index for index, npu in enumerate(host.npus) if not chip_name(npu.name).startswith(NO_PORTS)]


def tool(host: Host) -> str | None:
    if host.run("hccn_tool", "-h") is not None:
        return TOOLS[0]
    path = host.path(TOOLS[1])
    return str(path) if path.exists() else None


def ask_all(host: Host, *question: str) -> dict[int, Reading]:
    """The answers of all ports. Raises Trouble when there is nobody to ask."""
    ports = devices(host)
    if not host.npus:
        raise Trouble(why_none(host))
    name = tool(host)
    if name is None:
        raise Trouble(Text("没有 hccn_tool：驱动没有装全", "There is no hccn_tool: the driver is not whole"))

    def one(device: int) -> Reading:
        try:
            return pairs(host.tool(name, "-i", str(device), *question), ":")
        except Trouble as trouble:
            return trouble.reason.en

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(ports, pool.map(one, ports), strict=True))


def judge(
    host: Host, question: tuple[str, ...], wanted: str, verdict: Callable[[int, dict[str, str]], Finding | None]
) -> Iterable[Finding]:
    """One finding for all ports that are well, one for each other; `verdict` gives None for a port that is well."""
    answers = ask_all(host, *question)
    if not answers:
        yield ok("0", wanted)
        return
    well, rest = 0, []
    for device, reading in answers.items():
        if isinstance(reading, str):
            rest.append(
                unknown(
                    Text(f"hccn_tool 没有回答：{reading}", f"hccn_tool did not answer: {reading}"), about=str(device)
                )
            )
            continue
        finding = verdict(device, reading)
        well += finding is None
        rest += [finding] if finding else []
    if well:
        yield ok(f"{well} × {wanted}", wanted)
    yield from rest


def link(host: Host) -> Iterable[Finding]:
    def verdict(device: int, values: dict[str, str]) -> Finding | None:
        state = values.get("link status", "?")
        if state == "UP":
            return None
        remedy = Text(
            "网口没有连上：检查光模块、光纤与交换机端口；单机部署不受影响，多机部署会失败。",
            "The port is down: check optics, fibre and switch port. One server works without it, several do not.",
        )
        return failed(state, "UP", remedy, about=str(device))

    return judge(host, ("-link", "-g"), "UP", verdict)


def net_health(host: Host) -> Iterable[Finding]:
    def verdict(device: int, values: dict[str, str]) -> Finding | None:
        state = values.get("net health status", "?")
        if state == "Success":
            return None
        remedy = Text(
            "网络侦测没有成功：为网口配置 IP、网关与侦测地址（hccn_tool -i N -netdetect -s address …）。",
            "The network probe does not succeed: give the port an address, a gateway and an address to probe "
            "(hccn_tool -i N -netdetect -s address …).",
        )
        return warning(state, "Success", remedy, about=str(device))

    return judge(host, ("-net_health", "-g"), "Success", verdict)


def addresses(host: Host) -> Iterable[Finding]:
    def verdict(device: int, values: dict[str, str]) -> Finding | None:
        if values.get("ipaddr"):
            return None
        return warning(
            "—",
            "IP",
            Text(
                "网口没有 IP：多机部署前用 hccn_tool -i N -ip -s 配置。",
                "The port has no address: set one with hccn_tool -i N -ip -s before serving over several servers.",
            ),
            about=str(device),
        )

    return judge(host, ("-ip", "-g"), "IP", verdict)


def counters(host: Host) -> Iterable[Finding]:
    def verdict(device: int, values: dict[str, str]) -> Finding | None:
        bad = [f"{name} {values[name]}" for name in ERRORS if values.get(name, "0") not in ("0", "")]
        if not bad:
            return None
        return warning(
            ", ".join(bad),
            "0",
            Text("有错包：清洁或更换光模块与光纤。", "Packets were damaged: clean or replace optics and fibre."),
            about=str(device),
        )

    return judge(host, ("-stat", "-g"), "0", verdict) if host.deep else [NOT_ASKED]


def optics(host: Host) -> Iterable[Finding]:
    def verdict(device: int, values: dict[str, str]) -> Finding | None:
        state = values.get("present", "?")
        if state == "present":
            return None
        return warning(
            state,
            "present",
            Text("没有光模块：插入光模块。", "There is no optical module: fit one."),
            about=str(device),
        )

    return judge(host, ("-optical", "-g"), "present", verdict) if host.deep else [NOT_ASKED]


NOT_ASKED = unknown(
    Text("没有检查：勾选“深入检查链路”后重新运行。", "Not asked: run the check again with “Look deeper at the links”.")
)

PROBES = [
    Probe("link", Text("HCCN 链路", "HCCN links"), link),
    Probe("net_health", Text("HCCN 网络健康", "HCCN network health"), net_health),
    Probe("hccn_ip", Text("HCCN 地址", "HCCN addresses"), addresses),
    Probe("hccn_stat", Text("HCCN 错包计数", "HCCN error counters"), counters),
    Probe("optics", Text("光模块", "Optical modules"), optics),
]
