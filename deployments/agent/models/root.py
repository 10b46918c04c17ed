"""Where models lie on this server when nobody names another place."""

import os
from pathlib import Path

from deployments.agent import install
from deployments.agent.config import Config

ROOT = "/opt/ascend-console/models"


def of(config: Config) -> str:
    """The common folder where it is there for this account, or the agent itself lies beside it; else one below the
    agent's own state, as it is for the agent that runs beside a console."""
    if config.simulated or _is_ours(Path(ROOT)):
        return ROOT
    place = install.at(config)
    if place and place.prefix == Path(ROOT).parent and not Path(ROOT).exists() and _is_ours(place.prefix):
        return ROOT
    return str(config.state_dir / "models")


def _is_ours(folder: Path) -> bool:
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)
