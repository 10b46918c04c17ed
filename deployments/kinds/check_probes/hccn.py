"""The file /etc/hccn.conf against what was known of it last; the agent's state folder keeps that.

`python -m deployments.kinds.check_probes.hccn` notes it as it is now.
"""

import json
import os
import re
import sys
from pathlib import Path

from deployments.kinds.check_probes.finding import Finding, Probe, failed, item, job, ok, unknown, warning
from deployments.kinds.check_probes.host import Host, Trouble
from deployments.kinds.check_probes.textfiles import pairs
from deployments.steps import Text

FILE = "/etc/hccn.conf"
KEPT = "known/hccn.json"  # below the state folder: the pairs of the file
ADDRESS = re.compile(r"address_(\d+)")
MOST_KEPT = 64 * 1024
SHOWN = 6


def present(host: Host) -> dict[str, str] | None:
    """`name=value` of the file, None where there is none. Raises Trouble where it takes root."""
    text = host.read(FILE)
    return None if text is None else pairs(text, "=")


def kept(state: Path) -> dict[str, str] | None:
    try:
        with (state / KEPT).open(encoding="utf-8") as file:
            found = json.loads(file.read(MOST_KEPT))
    except (OSError, ValueError):
        return None
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else None


def keep(state: Path, found: dict[str, str]) -> None:
    """Whole or not at all. Raises OSError."""
    path = state / KEPT
    path.parent.mkdir(mode=0o700, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    new.write_text(json.dumps(found), encoding="utf-8")
    new.replace(path)


def changes(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """`address_0 192.0.2.1 → 192.0.2.9`, one for each pair that differs."""
    names = sorted({*before, *now}, key=lambda name: (len(name), name))
    return [
        f"{name} {before.get(name, '—')} → {now.get(name, '—')}" for name in names if before.get(name) != now.get(name)
    ]


def conf(host: Host) -> list[Finding]:
    """Left out where there are no ports to configure."""
    now = present(host)
    if now is None and not host.npus:
        return []
    if now is None:
        remedy = Text(
            "没有 /etc/hccn.conf，重启后网口地址会丢：用 hccn_tool -i N -ip -s 配置，它会写这个文件。",
            "There is no /etc/hccn.conf, so addresses of the ports are lost at a restart: set them with "
            "hccn_tool -i N -ip -s, which writes the file.",
        )
        return [warning("—", FILE, remedy)]
    return [odd] if (odd := twice(now)) else [against_kept(host, now)]


def noted(state: Path, now: dict[str, str]) -> Text | None:
    """Why it could not be kept; None when it is."""
    try:
        keep(state, now)
    except OSError as error:
        why = error.strerror or type(error).__name__
        return Text(f"记不下来：{why}。", f"It could not be noted: {why}.")
    return None


def note(host: Host) -> Finding:
    """Take the file as it is now."""
    now = present(host)
    if now is None or host.state is None:
        why = Text(f"没有 {FILE}，或不是由代理运行。", f"There is no {FILE}, or this is not run by the agent.")
        return failed("—", FILE, why)
    different = changes(kept(host.state) or {}, now)
    if wrong := noted(host.state, now):
        return failed("—", FILE, wrong)
    return ok("; ".join(different[:SHOWN]) or "0", FILE)


def twice(now: dict[str, str]) -> Finding | None:
    addresses = [value for name, value in now.items() if ADDRESS.fullmatch(name)]
    same = sorted({value for value in addresses if addresses.count(value) > 1})
    if not same:
        return None
    remedy = Text(
        f"几个网口用同一个地址 {'、'.join(same)}，互相连不通：每个网口一个地址。",
        f"Several ports have the address {', '.join(same)} and cannot connect: give each its own.",
    )
    return failed(", ".join(same), "1 × address_N", remedy)


def against_kept(host: Host, now: dict[str, str]) -> Finding:
    count = sum(1 for name in now if ADDRESS.fullmatch(name))
    found = f"{count} × address_N"
    if host.state is None:
        return unknown(Text("手动运行时不记录，无从比较。", "Run by hand, it keeps nothing to compare with."), found)
    before = kept(host.state)
    if before is None:
        if wrong := noted(host.state, now):
            return unknown(wrong, found)
        remedy = Text(
            "第一次看到，已记下；下次检查与它比较。", "Seen for the first time and noted: the next check compares."
        )
        return unknown(remedy, found)
    different = changes(before, now)
    if not different:
        return ok(found, found)
    remedy = Text(
        "与上次记下的不同，多机任务会连错：若是有意的改动，点按钮以现在的内容为准；否则用 hccn_tool 改回。",
        "It differs from what was noted, so other servers connect to the wrong place: if the change was meant, "
        "take it as it is now; else set it back with hccn_tool.",
    )
    more = f" … +{len(different) - SHOWN}" if len(different) > SHOWN else ""
    return warning(
        "; ".join(different[:SHOWN]) + more, "; ".join(f"{n}={v}" for n, v in list(before.items())[:SHOWN]), remedy,
        job=job("hccn_note"),
    )  # fmt: skip


def main() -> int:
    try:
        found = note(Host())
    except Trouble as trouble:
        found = failed("—", FILE, trouble.reason)
    from deployments.kinds.check_probes.__main__ import tell  # it lists this module's probe

    tell(item(Probe("hccn_conf", Text("hccn.conf", "hccn.conf"), lambda _host: found), found))
    return 0 if found.verdict == "ok" else 1


if __name__ == "__main__":
    sys.exit(main())
