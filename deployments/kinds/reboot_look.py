"""What the kind `reboot` looks at: `python -m deployments.kinds.reboot_look before [--force] [--changed]`,
`… note`, or `… after [--settle S] --patience S`.

`before` ends with code 1 where the server is in use and nobody forces it, and keeps the NPUs that it saw in
`npus-before.json` of the attempt's folder; `after` waits until they answer again, and ends with code 1 where they
do not.
"""

import argparse
import json
import sys
import time
from pathlib import Path

from deployments import locks
from deployments.kinds.check_probes.__main__ import tell
from deployments.kinds.check_probes.finding import Finding, Probe, failed, item, ok, unknown, warning
from deployments.kinds.check_probes.host import Host, Trouble
from deployments.kinds.check_probes.pci import npu_devices
from deployments.steps import Text
from monitoring.parsers.failures import Unreadable

KEPT = "npus-before.json"
AGAIN_S = 5.0
PROCESSES = Text("NPU 上的进程", "Processes on NPUs")
JOBS = Text("其他作业", "Other jobs")
NPUS = Text("NPU 恢复", "NPUs that answer")


def say(key: str, title: Text, finding: Finding) -> None:
    tell(item(Probe(key, title, lambda _host: finding), finding))


# ---------- before ----------


def in_use(host: Host, *, changed: bool = False) -> Finding:
    """Whether processes hold NPUs; unknown where npu-smi does not tell, which it need not where the driver was
    `changed` and the restart is what it waits for."""
    answer = host.npu_smi
    if isinstance(answer, (Trouble, Unreadable)):
        if changed:
            return ok("—", "0")
        return unknown(
            Text(
                "npu-smi 读不出，不知道谁在使用。确认无人使用后勾选“有进程占用也重启”。",
                "npu-smi cannot be read, so who uses the NPUs is not known. When nobody does, tick "
                "“Restart although it is in use”.",
            ),
            wanted="0",
        )
    if not host.processes:
        return ok("0", "0")
    held = ", ".join(f"NPU {one.npu}.{one.chip}: {one.pid} {one.name or '?'}" for one in host.processes)
    return failed(
        f"{len(host.processes)}: {held}",
        "0",
        Text(
            "先停止这些进程，或勾选“有进程占用也重启”。",
            "Stop these processes first, or tick “Restart although it is in use”.",
        ),
    )


def other_jobs(attempt: Path) -> Finding:
    """Whether other attempts run here; a runner holds its folder's lock for life."""
    running = [one.name for one in sorted(attempt.parent.iterdir()) if one != attempt and locks.is_locked(one / "lock")]
    if not running:
        return ok("0", "0")
    numbers = ", ".join(f"#{name[1:].split('-')[0]}" for name in running)
    return failed(
        numbers,
        "0",
        Text(
            "重启会中断这些作业：等其结束或取消，或勾选“有进程占用也重启”。",
            "A restart would cut these jobs off: wait for them, cancel them, or tick “Restart although it is in use”.",
        ),
    )


def names(host: Host) -> list[str]:
    """One name for each NPU that npu-smi shows; bus ids stay the same when the numbers do not."""
    return sorted(f"{npu.bus_id or npu.npu}/{npu.chip}" for npu in host.npus)


def before(host: Host, attempt: Path, *, force: bool, changed: bool = False) -> bool:
    """Whether the server may be restarted."""
    found = [("npu_processes", PROCESSES, in_use(host, changed=changed)), ("other_jobs", JOBS, other_jobs(attempt))]
    for key, title, finding in found:
        say(key, title, _forced(finding) if force else finding)
    if names(host) or not changed:
        (attempt / KEPT).write_text(json.dumps(names(host)), encoding="utf-8")
    return force or all(finding.verdict == "ok" for _key, _title, finding in found)


def _forced(finding: Finding) -> Finding:
    if finding.verdict == "ok":
        return finding
    return warning(finding.found, finding.wanted, Text("按要求仍然重启。", "It is restarted all the same, as asked."))


# ---------- after ----------


def note(host: Host, attempt: Path) -> bool:
    """Keep the NPUs that are there, whoever uses them."""
    (attempt / KEPT).write_text(json.dumps(names(host)), encoding="utf-8")
    return True


def after(attempt: Path, patience_s: float, settle_s: float = 0.0) -> bool:
    """Whether every NPU from before answers; asks again until it does or the patience is over. For `settle_s` nothing
    is asked of them."""
    time.sleep(settle_s)
    wanted, until = _kept(attempt), time.monotonic() + patience_s
    while True:
        host = Host()
        lacking = sorted(set(wanted) - set(names(host)))
        answers = _answers(host)
        if (answers and not lacking) or time.monotonic() >= until:
            break
        print(f"{len(wanted) - len(lacking)} / {len(wanted)}", flush=True)
        time.sleep(min(AGAIN_S, max(0.0, until - time.monotonic())))
    say("npus_back", NPUS, _back(host, wanted, lacking, answers=answers))
    return answers and not lacking


def _answers(host: Host) -> bool:
    """Whether npu-smi tells something, or there is nothing that it could tell of."""
    if host.npu_smi is None:
        return not npu_devices(host)
    return not isinstance(host.npu_smi, (Trouble, Unreadable))


def _kept(attempt: Path) -> list[str]:
    try:
        return [str(name) for name in json.loads((attempt / KEPT).read_text(encoding="utf-8"))]
    except (OSError, ValueError):
        return []


def _back(host: Host, wanted: list[str], lacking: list[str], *, answers: bool) -> Finding:
    seen = f"{len(host.npus)}"
    if not answers:
        return failed(
            "—",
            f"{len(wanted)}",
            Text(
                "重启后 npu-smi 没有应答：查看 dmesg 与 /var/log/ascend_seclog，再运行检查。",
                "npu-smi does not answer after the restart: see dmesg and /var/log/ascend_seclog, then run a check.",
            ),
            job={"kind": "check", "params": {}},
        )
    if lacking:
        return failed(
            seen,
            f"{len(wanted)}",
            Text(
                f"重启后缺少：{'、'.join(lacking)}。查看 dmesg 与 BMC 日志；仍缺则更换该卡。",
                f"Missing after the restart: {', '.join(lacking)}. See dmesg and the BMC's log; "
                "if they stay away, replace the card.",
            ),
            job={"kind": "check", "params": {}},
        )
    return ok(seen, f"{len(wanted)}")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="deployments.kinds.reboot_look")
    parser.add_argument("what", choices=("before", "after", "note"))
    parser.add_argument("--force", action="store_true")
    parser.add_argument("--changed", action="store_true")
    parser.add_argument("--settle", type=float, default=0.0)
    parser.add_argument("--patience", type=float, default=0.0)
    asked = parser.parse_args(arguments)
    attempt = Path.cwd()
    if asked.what == "note":
        done = note(Host(), attempt)
    elif asked.what == "before":
        done = before(Host(), attempt, force=asked.force, changed=asked.changed)
    else:
        done = after(attempt, asked.patience, asked.settle)
    return 0 if done else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
