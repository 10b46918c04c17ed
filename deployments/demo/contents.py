"""What is installed on a simulated server by now, where jobs have changed it: `<state dir>/installed.json`.

A server without the file is as the fleet made it. Only the demo's own process writes it; its tools read it.
"""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from deployments.agent import spool
from deployments.demo.fleet import DemoServer
from deployments.stacks.installed import ROOT
from deployments.stacks.versions import at_least

FILE = "installed.json"
UNREADABLE = -8005  # what a driver whose modules are not loaded lets npu-smi say
WIDE = {"a2": "w26", "a3": "w26a3"}  # tables of npu-smi from 26 on
# The firmware that a driver accepts, by the oldest driver of the row.
ACCEPTS = (("26.0.X", "[7.0.0,9.9.99]"), ("25.0.X", "[7.0.0,7.9.99]"), ("24.0.X", "[7.0.0,7.5.99]"))
OLD_ACCEPTS = "[7.0.0,7.1.99]"


@dataclass(frozen=True)
class Contents:
    """`loaded` is the driver that answers since the last start, None for none. `files` are those beside the fleet's
    (path below the root -> text, as `root.files`), `gone` the folders and files of the fleet's that are no more."""

    driver: str | None
    loaded: str | None
    firmware: str | None
    accepts: str
    whole: bool
    user: bool
    files: Mapping[str, str] = field(default_factory=dict)
    gone: tuple[str, ...] = ()


def of(server: DemoServer) -> Contents:
    """What the fleet has made there."""
    has = server.stack
    loaded = None if "unreadable" in server.quirks else server.spec.version
    return Contents(has.driver, loaded, has.firmware, has.accepts, has.whole, has.user)


def read(server: DemoServer, state_dir: Path) -> Contents:
    """As the file tells; as the fleet made it where there is none, or one of another shape."""
    return _told(state_dir) or of(server)


def _told(state_dir: Path) -> Contents | None:
    try:
        told = json.loads((state_dir / FILE).read_bytes())
        made = Contents(**{**told, "gone": tuple(told["gone"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return made if _is_whole(made) else None


def _is_whole(has: Contents) -> bool:
    texts = (has.driver, has.loaded, has.firmware)
    return (
        all(text is None or isinstance(text, str) for text in texts)
        and isinstance(has.accepts, str)
        and isinstance(has.whole, bool)
        and isinstance(has.user, bool)
        and isinstance(has.files, dict)
        and all(isinstance(text, str) for pair in has.files.items() for text in pair)
        and all(isinstance(name, str) for name in has.gone)
    )


def write(state_dir: Path, has: Contents) -> None:
    spool.write_whole(state_dir / FILE, json.dumps(dataclasses.asdict(has)).encode())


def present(server: DemoServer, has: Contents) -> DemoServer:
    """The server with these contents; `server` is as the fleet makes it."""
    stack = replace(
        server.stack, driver=has.driver, firmware=has.firmware, accepts=has.accepts, whole=has.whole, user=has.user
    )
    quirks = {name: value for name, value in server.quirks.items() if name != "unreadable"}
    if has.driver is not None and has.loaded is None:
        quirks["unreadable"] = server.quirks.get("unreadable", UNREADABLE)
    version = has.loaded or has.driver or server.spec.version
    spec = replace(server.spec, version=version, layout=_layout(server.spec.layout, version))
    return replace(server, spec=spec, stack=stack, quirks=quirks, files=dict(has.files), gone=has.gone)


def now(server: DemoServer, state_dir: Path) -> DemoServer:
    """The server as jobs have left it; the very same where none has changed it."""
    return present(server, read(server, state_dir)) if (state_dir / FILE).exists() else server


def stacks(server: DemoServer) -> dict[str, str]:
    """The names of the stack in use and of the one before, '' for none, as facts have them."""
    links = {"stack_current": "current", "stack_before": "before"}
    return {key: server.files.get(f"{ROOT.strip('/')}/{name}", "").removeprefix("-> ") for key, name in links.items()}


def started(state_dir: Path) -> None:
    """It has started anew: the driver that is installed whole is the one that answers."""
    if has := _told(state_dir):
        write(state_dir, replace(has, loaded=has.driver if has.whole else None))


def accepts(driver: str) -> str:
    """The range of firmware that stands in the version file of a driver."""
    return next((told for least, told in ACCEPTS if at_least(driver, least)), OLD_ACCEPTS)


def _layout(layout: str, version: str) -> str:
    """The table that npu-smi of that version prints."""
    narrow = {wide: name for name, wide in WIDE.items()}.get(layout, layout)
    return WIDE.get(narrow, narrow) if at_least(version, "26.0.X") else narrow
