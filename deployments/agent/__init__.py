"""The console's software on a server: plain Python, at least 3.10, with no Django and no database."""

from pathlib import Path

VERSION = "0.1.0"

ROOT = Path(__file__).resolve().parent.parent.parent
"""The folder that holds the packages `deployments` and `monitoring`; child processes find them by PYTHONPATH."""
