"""Locks on files, as supervisors, workers and runners hold them for life. Plain code, which kinds look at, too."""

import fcntl
import os
import time
from pathlib import Path


def try_lock(path: Path) -> int | None:
    """An open descriptor that holds the lock until it is closed, None where another process holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def take_lock(path: Path, patience_s: float = 0.5) -> int | None:
    """The same, with some patience: `is_locked` holds the lock for a moment."""
    until = time.monotonic() + patience_s
    while (descriptor := try_lock(path)) is None and time.monotonic() < until:
        time.sleep(0.01)
    return descriptor


def is_locked(path: Path) -> bool:
    """Whether a living process holds the lock; a file that is not there is not locked."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
