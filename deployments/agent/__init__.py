"""The console's software on a server: plain Python, at least 3.10, with no Django and no database."""

from pathlib import Path

VERSION = "0.1.0"

PROTOCOL = 2
"""What agent and console say to each other: 1 had no number in it. Both work with one more and one less than theirs."""

ROOT = Path(__file__).resolve().parent.parent.parent
"""The folder that holds the packages `deployments` and `monitoring`; child processes find them by PYTHONPATH."""


def code(root: Path = ROOT) -> str:
    """Which code this is: the first 16 digits of its bundle's digest, '' where it is the console's own checkout."""
    folder = root.parent
    return folder.name if root.name == "lib" and folder.parent.name == "code" and len(folder.name) == 16 else ""
