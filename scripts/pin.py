#!/usr/bin/env python3
"""Write requirements.txt and requirements-dev.txt: what the two .in files resolve to, each package pinned.

Usage: make pins. Needs a package index. Exits with pip's own code and message when it finds no answer.
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEAD = "# Made by `make pins` from {source}; change that file, not this one.\n"


def resolve(*sources: str) -> dict[str, str]:
    """Name to version of everything that the named .in files pull in."""
    asked = [word for source in sources for word in ("-r", str(ROOT / source))]
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--dry-run",
        "--ignore-installed",
        "--report",
        "-",
        *asked,
    ]
    answer = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    found = [entry["metadata"] for entry in json.loads(answer.stdout)["install"]]
    return {package["name"].lower().replace("_", "-"): package["version"] for package in found}


def lines(packages: dict[str, str]) -> str:
    return "".join(f"{name}=={version}\n" for name, version in sorted(packages.items()))


def main() -> None:
    base = resolve("requirements.in")
    everything = resolve("requirements.in", "requirements-dev.in")
    changed = [name for name, version in base.items() if everything[name] != version]
    if changed:
        sys.exit(f"The tests would change {', '.join(changed)}. Pin a common version in requirements.in.")
    more = {name: version for name, version in everything.items() if name not in base}
    (ROOT / "requirements.txt").write_text(HEAD.format(source="requirements.in") + lines(base))
    (ROOT / "requirements-dev.txt").write_text(
        HEAD.format(source="requirements-dev.in") + "-r requirements.txt\n" + lines(more)
    )


if __name__ == "__main__":
    main()
