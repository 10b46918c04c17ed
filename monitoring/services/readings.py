"""What servers send is untrusted: samples are cut to known fields, types and sizes before anything reads them."""

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from console import untrusted
from console.untrusted import amount, number, whole

MAX_BYTES = 2 << 20
MAX_NPUS = 128
MAX_PROCESSES = 512
MAX_TEXT = 300
MAX_RAW_TEXT = 64 * 1024

MOST_NPU, MOST_CHIP, MOST_MB = 2**31 - 1, 2**15 - 1, 2**31 - 1  # what the columns of Npu hold
NPU_PLACES = {"npu": MOST_NPU, "chip": MOST_CHIP, "phy_id": MOST_NPU}
MOST_READING = 10**6  # no chip draws so much or gets so hot: what says so is no reading
MOST_HOST = 10**9
MOST_CODES = 16
CODE = re.compile(r"[0-9A-F]{8}")
NPU_AMOUNTS = ("power_w", "hugepages_used", "hugepages_total", "aicore_pct")
NPU_MB = ("memory_used_mb", "memory_total_mb", "hbm_used_mb", "hbm_total_mb")
NPU_TEXTS = ("name", "health", "bus_id")
HOST_NUMBERS = (
    "load1", "cpu_pct", "cpus", "mem_used_mb", "mem_total_mb", "disk_used_gb", "disk_total_gb",
    "rx_kbps", "tx_kbps", "uptime_s",
)  # fmt: skip


def read(data: bytes) -> dict[str, Any] | None:
    """The message in `data`, or None where it is none of ours."""
    if len(data) > MAX_BYTES:
        return None
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) and message.get("type") in ("sample", "facts") else None


def text(value: Any, most: int = MAX_TEXT) -> str | None:
    return untrusted.text(value, most) if isinstance(value, str) else None


def clean_sample(message: Mapping[str, Any]) -> dict[str, Any]:
    """The sample with known fields only; shape as in deployments/agent/sampler.py."""
    host = message.get("host")
    error = message.get("error")
    holders = message.get("holders")
    return {
        "seq": whole(message.get("seq"), untrusted.MOST_NUMBER),
        "t": number(message.get("t")),
        "took_ms": number(message.get("took_ms")),
        "version": text(message.get("version")),
        "npus": [_npu(item) for item in _dicts(message.get("npus"), MAX_NPUS)],
        "processes": [_process(item) for item in _dicts(message.get("processes"), MAX_PROCESSES)],
        "host": {name: _within(amount(host.get(name)), MOST_HOST) for name in HOST_NUMBERS}
        if isinstance(host, dict)
        else {},
        "error": _error(error) if isinstance(error, dict) else None,
        "holders": _holders(holders) if isinstance(holders, dict) else {},
    }


def _dicts(value: Any, most: int) -> list[dict[str, Any]]:
    return [item for item in value[:most] if isinstance(item, dict)] if isinstance(value, list) else []


def _npu(item: Mapping[str, Any]) -> dict[str, Any]:
    get = item.get
    result: dict[str, Any] = {name: whole(get(name), most) for name, most in NPU_PLACES.items()}
    for name in NPU_AMOUNTS:
        result[name] = _within(amount(get(name)), MOST_READING)
    for name in NPU_MB:
        result[name] = _within(amount(get(name)), MOST_MB)
    for name in NPU_TEXTS:
        result[name] = text(get(name), 40)
    result["codes"] = _codes(get("codes"))
    result["temp_c"] = _within(number(get("temp_c")), MOST_READING)
    return result


def _codes(value: Any) -> list[str]:
    """Codes of faults, 8 hexadecimal digits each."""
    found = value[:MOST_CODES] if isinstance(value, list) else []
    return [one for one in found if isinstance(one, str) and CODE.fullmatch(one)]


def _within(value: float | int | None, most: int) -> float | int | None:
    return value if value is not None and abs(value) <= most else None


def _process(item: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "npu": whole(item.get("npu"), MOST_NPU),
        "chip": whole(item.get("chip"), MOST_CHIP),
        "pid": whole(item.get("pid"), untrusted.MOST_NUMBER),
        "name": text(item.get("name")),
        "memory_mb": _within(amount(item.get("memory_mb")), MOST_MB),
        "user": text(item.get("user"), 64),
        "command": text(item.get("command")),
        "attempt": text(item.get("attempt"), 40),
        "pod": item.get("pod") is True,
    }


def _error(error: Mapping[str, Any]) -> dict[str, Any]:
    what, do = error.get("what"), error.get("do")
    return {
        "code": number(error.get("code")),
        "meaning": text(error.get("meaning"), 60),
        "text": text(error.get("text"), MAX_RAW_TEXT),
        "what": _pair(what),
        "do": _pair(do),
    }


def _pair(value: Any) -> list[str] | None:
    if isinstance(value, list) and len(value) == 2 and all(isinstance(item, str) for item in value):
        return [untrusted.text(item, 500) for item in value]
    return None


def _holders(holders: Mapping[str, Any]) -> dict[str, str]:
    known = list(holders.items())[:MAX_PROCESSES]
    return {untrusted.text(key, 20): untrusted.text(value, 60) for key, value in known if isinstance(value, str)}


MAX_FACTS_BYTES = 256 * 1024


def clean_facts(message: Mapping[str, Any]) -> dict[str, Any]:
    """The facts, or {} where they are no object or longer than 256 kB."""
    facts = message.get("facts")
    kept: dict[str, Any] = untrusted.plain(facts) if isinstance(facts, dict) else {}
    return kept if len(json.dumps(kept)) <= MAX_FACTS_BYTES else {}


def same_facts(message: Mapping[str, Any]) -> str | None:
    """The digest of the facts that an agent has found unchanged, None in a message that holds facts."""
    return text(message.get("same"), 40)


class Agent(NamedTuple):
    """What a beat says of its agent, as the columns `agent_…` of Server hold it."""

    version: str
    code: str
    protocol: int


def agent(beat: Mapping[str, Any]) -> Agent | None:
    """None where the beat names no version. Beats of protocol 1 had no number, and no code."""
    version = text(beat.get("agent"), 40)
    if not version:
        return None
    code = text(beat.get("code"), 16) or ""
    return Agent(version, code, whole(beat.get("protocol"), MOST_CHIP) or 1)
