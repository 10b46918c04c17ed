"""`python -m deployments.kinds.check_probes GROUP [--deep]`: one item per finding.

Items are appended as JSON to the file that ASCEND_ITEMS names, as the runner expects them; by hand, without that
variable, each is a printed line with its remedy. The exit code is 0 however
bad the findings are, 1 when a probe itself broke (its item is `unknown` and holds the reason), 2 for a group
that does not exist.
"""

import importlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from deployments.kinds import check
from deployments.kinds.check_probes.finding import Finding, Probe, item, line, unknown
from deployments.kinds.check_probes.host import Host, Trouble
from deployments.steps import Text

GROUPS = tuple(name for name, _title in check.GROUPS)


def probes(group: str) -> list[Probe]:
    return list(importlib.import_module(f"deployments.kinds.check_probes.{group}").PROBES)


def ask(probe: Probe, host: Host) -> tuple[list[Finding], bool]:
    """The findings of one probe, none where it leaves itself out, and whether it broke."""
    try:
        found = probe.ask(host)
        return ([found] if isinstance(found, Finding) else list(found)), False
    except Trouble as trouble:
        zh, en = trouble.reason
        return [unknown(Text(f"{zh.rstrip('。')}。", f"{en.rstrip('.')}."))], False
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        remedy = Text(
            f"检查程序自身出错（{said}）。请把这一行报告给维护者。",
            f"The probe itself broke ({said}). Report this line to whoever maintains the console.",
        )
        return [unknown(remedy, found=said)], True


def run(group: str, host: Host, tell: Callable[[dict[str, Any]], None]) -> bool:
    """Ask every probe of a group and tell each item in order. True when none broke."""
    sound = True
    for probe in probes(group):
        findings, broke = ask(probe, host)
        sound = sound and not broke
        for finding in findings:
            tell(item(probe, finding))
    return sound


def tell(made: dict[str, Any]) -> None:
    path = os.environ.get("ASCEND_ITEMS")
    if path:
        with open(path, "a", encoding="utf-8") as items:  # noqa: PTH123
            items.write(json.dumps(made, ensure_ascii=False) + "\n")
        return  # the runner writes each item as a line of the log
    print(line(made), flush=True)


def main(arguments: list[str]) -> int:
    groups = [word for word in arguments if not word.startswith("--")]
    if len(groups) != 1 or groups[0] not in GROUPS:
        print(f"Name one group of probes: {', '.join(GROUPS)}.", file=sys.stderr)
        return 2
    return 0 if run(groups[0], Host(deep="--deep" in arguments), tell) else 1


if __name__ == "__main__":
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # a C locale must not stop a Chinese line
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)  # cancelled: the log says so, and a traceback would look like a fault
