"""What docker or podman says of a container with somebody else's engine: its image, and where its ports are outside."""

import json
from typing import Any, NamedTuple

from deployments.agent.environment import passed_on
from deployments.agent.tools import Run, run_tool

TOOLS = ("docker", "podman")
WITHIN_S = 3.0


class Container(NamedTuple):
    """`ports`: {port inside: port of this server}."""

    image: str | None = None
    ports: dict[int, int] = {}


def inspect(name: str, run: Run = run_tool) -> Container:
    """Of a container's id; empty where no tool knows it, or we may not ask."""
    for tool in TOOLS:
        said = run([tool, "inspect", "--type", "container", name], env=passed_on(), timeout_s=WITHIN_S)
        if said.code == 0:
            return read(said.text)
    return Container()


def read(text: str) -> Container:
    """Of what `inspect` prints, a list of one."""
    try:
        one = json.loads(text)[0]
        image, bound = one["Config"]["Image"], (one.get("NetworkSettings") or {}).get("Ports") or {}
        ports = {int(name.partition("/")[0]): port for name, told in bound.items() if (port := _outside(told))}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return Container()
    return Container(image if isinstance(image, str) else None, ports)


def _outside(told: Any) -> int | None:
    """The first port of the server that is bound, where one is."""
    words = [str(one.get("HostPort")) for one in told or ()]
    return next((int(word) for word in words if word.isdecimal() and 0 < int(word) < 65536), None)
