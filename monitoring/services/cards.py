"""Cards on the PCI bus against NPUs that the driver shows. Pure."""

from collections.abc import Mapping
from typing import Any

from deployments.steps import Text


def lost(facts: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Bus ids of cards that are on the bus and that npu-smi does not list; [] where either is not known.

    Both chips of a 300I Duo print one bus id. Where npu-smi lists nothing, the driver is not there or is ill: another
    matter, which has its own words.
    """
    cards = facts.get("pci")
    fitted = {
        str(card["bus_id"]).upper()
        for card in (cards if isinstance(cards, list) else [])
        if isinstance(card, dict) and isinstance(card.get("bus_id"), str)
    }
    printed = {str(npu["bus_id"]).upper() for npu in now["npus"] if npu.get("bus_id")}
    return sorted(fitted - printed) if fitted and printed and not now["error"] else []


def alert_words(name: str, missing: list[str]) -> tuple[Text, Text]:
    """(what happened, what to do)"""
    ids = ", ".join(missing[:8])
    return (
        Text(
            f"{name}：PCI 总线上有、但 NPU 列表里没有的卡：{ids}。",
            f"{name}: cards on the PCI bus but not among its NPUs: {ids}.",
        ),
        Text(
            "查看 dmesg 与 BMC 日志；重启后仍缺则更换该卡。",
            "See dmesg and the BMC's log; if they are still missing after a restart, replace them.",
        ),
    )
