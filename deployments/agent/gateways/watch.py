"""What the agent does for gateways: sees that each has its keeper, and tells the console how they are."""

import json
import logging
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from deployments.agent import ROOT
from deployments.agent.config import Config
from deployments.agent.gateways import folder as folders

log = logging.getLogger("gateways")

MOST_TOLD = 50
KEPT_S = 3 * 86400.0  # a stopped one's folder, so that all of its usage was told
MOST_NOW = 256 * 1024

_spawned: dict[Path, "subprocess.Popen[bytes]"] = {}


def sweep(config: Config) -> int:
    """Start a keeper for each gateway that is wished and has none; returns how many. After a reboot, too."""
    started = 0
    for folder in folders.all_of(config):
        if (child := _spawned.get(folder)) is not None and child.poll() is not None:
            del _spawned[folder]
        if folders.wish(folder) == "run":
            if folder not in _spawned and not folders.is_kept(folder):
                spawn(folder, config)
                started += 1
        elif not folders.is_kept(folder) and _age_s(folder / "wish") > KEPT_S:
            shutil.rmtree(folder, ignore_errors=True)
    return started


def spawn(folder: Path, config: Config) -> "subprocess.Popen[bytes]":
    """In a session of its own, with nothing of ours but its environment. Raises OSError."""
    output = os.open(folder / "keeper.out", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    argv = [sys.executable, "-m", "deployments.agent.gateways.keeper", str(folder), "--config", str(config.path)]
    try:
        child = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=config.state_dir,
            env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True, close_fds=True,
        )  # fmt: skip
    finally:
        os.close(output)
    _spawned[folder] = child
    return child


def told(config: Config) -> dict[str, Any]:
    """What a sample says of gateways: {"gateways": [now.json, …]}, {} where there are none."""
    found = []
    for folder in folders.all_of(config)[:MOST_TOLD]:
        now = folders.now(folder)
        if now and len(json.dumps(now)) <= MOST_NOW:
            found.append({**now, "kept": folders.is_kept(folder)})
    return {"gateways": found} if found else {}


def _age_s(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0
