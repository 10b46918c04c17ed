"""`python -m deployments.stacks.pip_for ARCH PYTHON ARGUMENT …`: pip as it would decide on another machine.

With --platform and --python-version pip takes the right wheels, but still asks this machine which of their
requirements count: torch on x86_64 wants CUDA, and would want it for aarch64 as well. Here the markers
(`platform_machine == "x86_64"`) are answered as the other machine answers them.
"""

import sys
from typing import Any

from pip._internal.cli.main import main as pip
from pip._vendor.packaging import markers


def answers(arch: str, python: str, own: dict[str, Any]) -> dict[str, Any]:
    """What markers are answered with: Linux and CPython of that version on that machine."""
    return {
        **own,
        "platform_machine": arch,
        "python_version": python,
        "python_full_version": f"{python}.0",
        "implementation_version": f"{python}.0",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "os_name": "posix",
        "sys_platform": "linux",
        "platform_system": "Linux",
    }


def main(arguments: list[str]) -> int:
    if len(arguments) < 3:
        print("It takes ARCH, PYTHON and pip's own arguments.", file=sys.stderr)
        return 2
    arch, python, *rest = arguments
    made = answers(arch, python, dict(markers.default_environment()))
    markers.default_environment = lambda: made
    return pip(rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
