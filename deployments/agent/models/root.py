"""Where models lie on this server when nobody names another place."""

import os
from pathlib import Path

from deployments.agent.config import Config

ROOT = "/opt/ascend-console/models"


def of(config: Config) -> str:
    """The common folder where this account may write there, or make it; else one below the agent's own state."""
    folder = Path(ROOT)
    ours = folder if folder.is_dir() else folder.parent
    if config.simulated or (ours.is_dir() and os.access(ours, os.W_OK | os.X_OK)):
        return ROOT
    return str(config.state_dir / "models")
