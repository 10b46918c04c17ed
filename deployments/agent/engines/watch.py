"""Sees to it that each engine that is to run has a keeper, after a keeper's death and after a restart of the server;
and ends them all where the agent itself goes."""

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

from deployments.agent import ROOT
from deployments.agent.config import Config
from deployments.agent.engines import folder
from deployments.agent.engines.folder import Folder

log = logging.getLogger("worker")

KEEPER = "deployments.agent.engines.keeper"
AGAIN_S = 5.0
ROUTES = ("process", "podman", "docker")  # systemd looks after the others itself
END_S = 45.0  # a keeper gives its engine 30 s

_children: dict[str, "subprocess.Popen[bytes]"] = {}
_tried: dict[str, float] = {}


def sweep(config: Config) -> list[str]:
    """Start the keepers that are missing; returns the names of their engines. Cheap where nothing is to be done."""
    for name, child in list(_children.items()):
        if child.poll() is not None:
            del _children[name]
    if config.simulated:
        return []
    return [place.name for place in folder.every(config) if _is_due(place) and _spawn(place, config)]


def _is_due(place: Folder) -> bool:
    if place.name in _children or time.monotonic() - _tried.get(str(place.path), float("-inf")) < AGAIN_S:
        return False
    if place.is_kept or (place.spec or {}).get("route") not in ROUTES:
        return False
    # What a killed keeper left is looked after, also where it is to stop.
    return place.has_engine or (place.wish == "run" and place.failed is None)


def _spawn(place: Folder, config: Config) -> bool:
    _tried[str(place.path)] = time.monotonic()
    try:
        _children[place.name] = spawn(place, config)
    except OSError as error:
        log.warning("no keeper could be started for %s (%s); trying again", place.name, error)
        return False
    return True


def spawn(place: Folder, config: Config) -> "subprocess.Popen[bytes]":
    """A keeper in a session of its own, with nothing of ours but its environment."""
    own = os.open(place.path / "keeper.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(
            [sys.executable, "-m", KEEPER, str(place.path), "--config", str(config.path)],
            stdin=subprocess.DEVNULL, stdout=own, stderr=own, cwd=config.state_dir,
            env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True, close_fds=True,
        )  # fmt: skip
    finally:
        os.close(own)


def end(places: Sequence[Folder], *, for_good: bool) -> list[Folder]:
    """End engines and their keepers; returns those that had to be killed. Only `for_good` the wish ends as well: else
    they are started again with the agent."""
    for place in places:
        if for_good:
            place.ask("stop")
        if (pid := place.keeper) is not None:
            _signal(pid, signal.SIGTERM)
    until, left = time.monotonic() + END_S, list(places)
    while left and time.monotonic() < until:
        left = [place for place in left if place.is_kept]
        time.sleep(0.05)
    for place in left:
        if (pid := place.keeper) is not None:
            _signal(pid, signal.SIGKILL)
    unkept = [place for place in places if place.has_engine]
    from deployments.agent.engines.engine import Members  # the worker, which sweeps, need not pay for it

    for place in unkept:  # nobody keeps it who could end it gently
        if (who := place.engine) is not None:
            Members(who, place.path).kill()
    return [place for place in places if place in left or place in unkept]


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass
