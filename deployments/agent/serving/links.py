"""Whether the nodes of a replica can reach each other from here: our own interface, the ports of our NPUs, and from
each of them the NPUs of the other nodes."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from deployments.agent.config import Config
from deployments.agent.serving import npus, program
from deployments.agent.serving.npus import Seen
from deployments.agent.serving.program import Stopped
from deployments.kinds.check_probes.finding import Finding
from deployments.kinds.check_probes.host import Host, Trouble
from deployments.kinds.check_probes.links import ADDRESS, AT_ONCE, LINK, NET_HEALTH, NO_PORTS, Question, judge, tool
from deployments.serving import nodes
from deployments.serving.asked import Ask
from deployments.serving.nodes import Peer
from deployments.steps import Text
from monitoring.parsers import ParseError, hccn_ping

QUESTIONS = (LINK, NET_HEALTH, ADDRESS)
PING_S = 15.0  # three packets, each of which may be waited for
SHOWN = 4
NOT_KNOWN = Text(
    "不知道那个节点上 NPU 的地址，没有 ping：在那里设置 NPU 的地址，等代理报告后再试。",
    "The addresses of that node's NPUs are not known, so none was pinged: set them there, and wait until its agent has "
    "told of them.",
)
NOT_READ = Text("看不懂 hccn_tool 的回答。", "hccn_tool answered what cannot be read.")


def check(ask: Ask, config: Config) -> None:
    """Raises Stopped where a port is down; nothing is asked where there is one node only."""
    if len(ask.addresses) < 2:
        return
    if ask.interface and not (config.root / "sys/class/net" / ask.interface).exists():
        raise Stopped(
            f"这台服务器没有网络接口 {ask.interface}。请改正部署的接口名。",
            f"This server has no network interface {ask.interface}. Correct its name in the deployment.",
        )
    if ask.device == "cpu" or ask.family.startswith(NO_PORTS):
        return
    host, down = Host(), []
    try:
        name = tool(host)
    except Trouble as trouble:
        raise Stopped(
            f"{trouble.reason.zh}，无法确认多机链路。请重新安装驱动，再重试。",
            f"{trouble.reason.en}, so the links between servers cannot be looked at. Install the driver again, then "
            "try again.",
        ) from trouble
    ours = [one for one in npus.look(host) if one.name in ask.npus]
    for one in ours:
        down += [one.name for question in QUESTIONS if not _well(judge(host, name, one.index, question), one, question)]
    if down:
        words = ", ".join(sorted(set(down)))
        raise Stopped(
            f"这些 NPU 的网口没有连上：{words}。多机部署需要每个网口都连上：检查光模块、光纤与交换机端口，再重试。",
            f"The ports of these NPUs are down: {words}. Serving over several servers needs each of them: check "
            "optics, fibre and switch port, then try again.",
        )
    _reach(ask, host, name, sorted(ours, key=lambda one: ask.npus.index(one.name)))


def _reach(ask: Ask, host: Host, name: str, ours: Sequence[Seen]) -> None:
    """Each NPU asks for the one of the same place on every other node. Raises Stopped where one gets no answer."""
    known = [found for text in ask.peers if (found := nodes.peer(text))]
    told = {found.rank for found in known}
    for rank in range(len(ask.addresses)):
        if rank not in told and rank != ask.rank:
            title = Text(f"到节点 {rank} 的 NPU", f"To the NPUs of node {rank}")
            program.item(f"ping:{rank}", title, "unknown", None, None, NOT_KNOWN)
    pairs = [
        (one, rank, ways)
        for position, one in enumerate(ours)
        for rank in sorted(told)
        if (ways := [found for found in known if (found.rank, found.position) == (rank, position)])
    ]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        lost = list(pool.map(lambda pair: _lost(host, name, *pair), pairs))
    silent = [
        f"{one.name} → {ask.addresses[rank]} ({why})"
        for (one, rank, _ways), why in zip(pairs, lost, strict=True)
        if why
    ]
    if silent:
        words = "; ".join(silent[:SHOWN])
        raise Stopped(
            f"这些 NPU 连不到另一节点的 NPU：{words}。"
            "检查两端的地址、VLAN、交换机与 TLS 开关（hccn_tool -i N -tls -g），再重试。",
            f"These NPUs do not reach those of another node: {words}. Check addresses, VLAN and switch, and that TLS "
            "is on or off on both sides (hccn_tool -i N -tls -g), then try again.",
        )


def _lost(host: Host, name: str, one: Seen, rank: int, ways: Sequence[Peer]) -> str:
    """'' where it is reached by one of the ways, or nothing tells; else what was tried. NPUs of two super-pods answer
    by RoCE alone, so each way may fail."""
    tried = []
    for way in ways:
        title = Text(f"{one.name} 到节点 {rank}", f"{one.name} to node {rank}")
        key, option = f"ping:{one.name}:{rank}", nodes.WAYS[way.way]
        try:
            answer = host.run(name, "-i", str(one.index), option, "-g", "address", way.address, timeout_s=PING_S)
            found = hccn_ping.parse(answer.text if answer else "")
        except (Trouble, ParseError):
            found = None
        if not isinstance(found, hccn_ping.Ping):
            program.item(key, title, "unknown", f"{option} {way.address}", None, NOT_READ)
            return ""
        program.item(key, title, _verdict(found), f"{option} {way.address}: {found.received}/{found.sent}")
        if found.received:
            return ""
        tried.append(f"{option} {way.address}")
    return ", ".join(tried)


def _verdict(found: hccn_ping.Ping) -> str:
    if not found.received:
        return "failed"
    return "ok" if found.received >= found.sent else "warning"


def _well(found: Finding, one: Seen, question: Question) -> bool:
    """Whether nothing forbids to go on: only a link that is down does."""
    title = Text(f"{one.name} {question.option}", f"{one.name} {question.option}")
    program.item(f"link:{one.name}{question.option}", title, found.verdict, found.found, question.wanted, found.remedy)
    return found.verdict != "failed"
