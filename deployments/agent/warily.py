"""What root does with the agent's own folders: the account that they belong to may have put anything there."""

import errno
import os
import pwd
import stat
from collections.abc import Callable
from pathlib import Path


def open_log(path: Path) -> int:
    """A descriptor to append by. Raises OSError for anything but a plain file: a link may lead to one of root's."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    log = os.open(path, flags, 0o640)
    found = os.fstat(log)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        os.close(log)
        raise OSError(errno.EPERM, "this is no plain file; remove it", str(path))
    return log


def as_account(name: str | None, work: Callable[[], None]) -> None:
    """Do it with the rights of that account, None for our own: whom its files say to end must be one of its own."""
    try:
        account = pwd.getpwnam(name) if name else None
    except KeyError:
        return  # nobody can run by that name
    if account is None or os.geteuid() != 0:
        work()
        return
    child = os.fork()
    if child == 0:
        try:
            os.initgroups(account.pw_name, account.pw_gid)
            os.setgid(account.pw_gid)
            os.setuid(account.pw_uid)
            work()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
