"""Folders of the agent that runs a program of ours, as its environment names them."""

import os
from pathlib import Path


def folder() -> Path:
    """Where the agent keeps what it knows. Raises KeyError outside a job."""
    return Path(os.environ["ASCEND_STATE"])


def stacks() -> Path:
    """Where stacks lie; `current` in it is the one in use. Raises KeyError outside a job."""
    return Path(os.environ["ASCEND_STACKS"])
