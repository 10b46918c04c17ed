"""Facts of the network between NPUs: by which addresses those of other servers reach the NPUs of this one."""

from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

from deployments.agent.facts_host import FactsHost
from deployments.kinds.check_probes import hccn, links
from deployments.kinds.check_probes.host import Trouble
from deployments.steps import Text
from monitoring.parsers import hccn_ip, hccn_vnic
from monitoring.parsers.failures import values_of

TIMEOUT_S = 3.0


def addresses(host: FactsHost) -> dict[str, Any]:
    """`npu_addresses`: [{device, roce, hccs}] of the NPUs that have a port; `hccs`, of chips with two dies, is the
    address within a super-pod. What is not set is None. Raises Trouble where nothing tells."""
    ports = links.devices(host)
    if not ports:
        raise Trouble(Text("没有带网口的 NPU", "there is no NPU with a port"))
    try:
        written = hccn.present(host) or {}
    except Trouble:
        written = {}
    found = {index: written.get(f"address_{index}") for index in ports}
    silent = [index for index in ports if not found[index]]
    found |= dict(zip(silent, _ask(host, silent, "-ip", hccn_ip), strict=True))
    within = _ask(host, ports, "-vnic", hccn_vnic) if any(npu.chip for npu in host.npus) else [None] * len(ports)
    rows = [
        {"device": index, "roce": found[index], "hccs": hccs} for index, hccs in zip(ports, within, strict=True)
    ]  # fmt: skip
    return {"npu_addresses": rows if any(row["roce"] or row["hccs"] for row in rows) else None}


def _ask(host: FactsHost, ports: list[int], option: str, parser: ModuleType) -> list[str | None]:
    """What hccn_tool says for each; None where it does not. Where it says nothing for the first the others are not
    asked: samples wait for facts."""
    try:
        name = links.tool(host) if ports else ""
    except Trouble:
        return [None] * len(ports)

    def one(index: int) -> str | None:
        try:
            text = host.tool(name, "-i", str(index), option, "-g", timeout_s=TIMEOUT_S)
        except Trouble:
            return None
        told = values_of(parser, text)
        return next((str(told[key])[:64] for key in ("ipaddr", "vnic ipaddr") if told.get(key)), None)

    first = [one(index) for index in ports[:1]]
    if first in ([], [None]):
        return first * len(ports)
    with ThreadPoolExecutor(links.AT_ONCE) as pool:
        return first + list(pool.map(one, ports[1:]))
