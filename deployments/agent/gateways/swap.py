"""Another router in the place of one that answers, without a request refused: it starts beside on other ports, takes
the engines, then nginx is told of it, and the old one ends when no connection to it is left."""

import shutil
import signal
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from deployments.agent.gateways import balancer
from deployments.agent.gateways import folder as folders
from deployments.agent.gateways.program import Program

NEXT, NOW, OLD = "router_next", "router", "router_old"
READY_S = 30.0  # for the new one to have the engines that the old one has
DRAIN_S = 600.0  # as long as a replica is drained
END_S = 5.0
ESTABLISHED = "01"


class Ports(NamedTuple):
    """Where a router listens on loopback: for requests, and for its own metrics."""

    requests: int
    metrics: int


def of(folder: Path, name: str) -> Ports | None:
    """Those of a router that lives, as noted when it was started."""
    at = folders.noted(folder, name).get("at")
    return Ports(*at) if folders.identity(folder, name) is not None and isinstance(at, list) and len(at) == 2 else None


def free() -> Ports:
    """Two that nobody has now."""
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        return Ports(one.getsockname()[1], other.getsockname()[1])


class Swap:
    """One router on its way in, and one on its way out. What a keeper that was killed left of either is taken up."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.coming: Program | None = None
        self.at = Ports(0, 0)
        self.until = 0.0
        self.joining = balancer.Joining()
        self.going: Program | None = Program(folder, OLD) if folders.identity(folder, OLD) else None
        self.gone_by = time.monotonic() + DRAIN_S
        Program(folder, NEXT).end(signal.SIGTERM, END_S)

    def begin(self, at: Ports, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self.give_up()
        self.at, self.until, self.joining = at, time.monotonic() + READY_S, balancer.Joining()
        self.coming = Program(self.folder, NEXT, about={"at": list(at)})
        self.coming.keep(argv, env)

    def give_up(self) -> None:
        if self.coming is not None:
            self.coming.end(signal.SIGTERM, END_S)
            self.coming = None

    def look(self, wished: Iterable[str], well: set[str], *, apart: bool) -> str:
        """ "" for nothing to do, "ready" where the new one may take over, "failed" where it does not answer. `wished`
        are the engines it is to have, `well` those that answer to the old one."""
        if self.coming is None:
            return ""
        late = time.monotonic() > self.until
        try:
            has = balancer.engines(self.at.requests)
        except balancer.Away:
            return "failed" if late or not self.coming.is_alive() else ""
        wished = list(wished)
        if not apart:
            self.joining.begin(self.at.requests, [url for url in wished if url not in has])
        missing = {url for url in wished if url in well and not has.get(url, {}).get("healthy")}
        return "ready" if late or not missing else ""

    def take_over(self, now: Program) -> Program:
        """The new one, under the name of the one that answered; that begins to go. With the one rename a keeper that is
        killed here leaves either the one or the other as the router."""
        coming = self.coming
        assert coming is not None
        self.end_old()
        shutil.copyfile(self.folder / NOW, self.folder / OLD)
        _move(self.folder / f"{NOW}.out", self.folder / f"{OLD}.out")
        _move(self.folder / f"{NEXT}.out", self.folder / f"{NOW}.out")
        (self.folder / NEXT).replace(self.folder / NOW)
        self.going, self.gone_by = Program(self.folder, OLD, child=now.child), time.monotonic() + DRAIN_S
        coming.name, coming.restarts, self.coming = NOW, now.restarts, None
        return coming

    def drain(self) -> None:
        """End the old one when nobody is connected to it any more, or DRAIN_S have passed."""
        if self.going is None:
            return
        at = of(self.folder, OLD)
        if at is None or time.monotonic() > self.gone_by or not connected(at.requests):
            self.end_old()

    def end_old(self) -> None:
        if self.going is not None:
            self.going.end(signal.SIGTERM, END_S)
            self.going = None
            (self.folder / OLD).unlink(missing_ok=True)

    def stop(self) -> None:
        self.give_up()
        self.end_old()


def connected(port: int) -> bool:
    """Whether somebody has a connection to this port of loopback."""
    wanted = f":{port:04X}"
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1].endswith(wanted) and fields[3] == ESTABLISHED:
            return True
    return False


def _move(path: Path, to: Path) -> None:
    if path.exists():
        path.replace(to)
