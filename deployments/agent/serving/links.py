"""Whether the nodes of a replica can reach each other from here: our own interface, and the ports of our NPUs."""

from deployments.agent.config import Config
from deployments.agent.serving import npus, program
from deployments.agent.serving.npus import Seen
from deployments.agent.serving.program import Stopped
from deployments.kinds.check_probes.finding import Finding
from deployments.kinds.check_probes.host import Host, Trouble
from deployments.kinds.check_probes.links import ADDRESS, LINK, NET_HEALTH, NO_PORTS, Question, judge, tool
from deployments.serving.asked import Ask
from deployments.steps import Text

QUESTIONS = (LINK, NET_HEALTH, ADDRESS)


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
    for one in npus.look(host):
        if one.name in ask.npus:
            down += [
                one.name for question in QUESTIONS if not _well(judge(host, name, one.index, question), one, question)
            ]
    if down:
        words = ", ".join(sorted(set(down)))
        raise Stopped(
            f"这些 NPU 的网口没有连上：{words}。多机部署需要每个网口都连上：检查光模块、光纤与交换机端口，再重试。",
            f"The ports of these NPUs are down: {words}. Serving over several servers needs each of them: check "
            "optics, fibre and switch port, then try again.",
        )


def _well(found: Finding, one: Seen, question: Question) -> bool:
    """Whether nothing forbids to go on: only a link that is down does."""
    title = Text(f"{one.name} {question.option}", f"{one.name} {question.option}")
    program.item(f"link:{one.name}{question.option}", title, found.verdict, found.found, question.wanted, found.remedy)
    return found.verdict != "failed"
