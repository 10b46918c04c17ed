"""Where stacks lie on this server, and which of them is in use."""

import os
from pathlib import Path

from deployments.agent.config import Config
from deployments.stacks.installed import ROOT

UNKNOWN = {"stack_current": None, "stack_before": None}  # of a simulated server, whose folder is not here


def of(config: Config) -> str:
    """The common folder where this account may write there; else one below the agent's own state, as it is for the
    agent that runs beside a console."""
    if config.simulated or _is_ours(Path(ROOT)):
        return ROOT
    return str(config.state_dir / "stacks")


def _is_ours(folder: Path) -> bool:
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def links(folder: str) -> dict[str, str | None]:
    """The names behind `current` and `before`; '' where there is none."""
    return {"stack_current": _target(f"{folder}/current"), "stack_before": _target(f"{folder}/before")}


def _target(path: str) -> str:
    try:
        name = os.readlink(path)  # noqa: PTH115 - the text as it stands
    except OSError:
        return ""
    return name if "/" not in name and (Path(path).parent / name / "activate").is_file() else ""
