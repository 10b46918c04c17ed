"""All that the agent's account may do as root. Joining installs this file; one line of sudo allows it, and no other.

    sudo -n …/bin/root-helper ACTION [ARGUMENT …]

It takes the actions of the table below, each with arguments of a fixed form, and runs their own programs, by whole
path, with an environment of its own. Nothing that the caller says becomes a program, a path or a shell's word.
Needs Python 3.6 and no file but this one.
"""

import os
import re
import select
import signal
import stat
import subprocess
import sys
import time

# ruff: noqa: PTH100, PTH105, PTH110, PTH116, PTH118, PTH120, PTH123, PTH202, PTH208 - as few modules as can be

LOG = "/var/log/ascend-console-root.log"
LOG_BYTES = 1024 * 1024
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "HOME": "/root"}
PATIENCE_S = 5.0
SIGNALS = {b"interrupt": signal.SIGINT, b"terminate": signal.SIGTERM, b"kill": signal.SIGKILL}

# ---------- the table: action -> (forms of its arguments, programs of which the first that is there is run) ----------

ATTEMPT = r"a[0-9]{1,18}-[0-9]{1,6}-[0-9a-f]{8}"  # the run of a job that asks for it; it goes into the log
SHUTDOWN = ("/usr/sbin/shutdown", "/sbin/shutdown")
# Joining puts it beside this file where root alone decides what it runs: the agent removes itself from this server.
LEAVE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "leave")

ACTIONS = {
    "leave": ([], [[LEAVE]]),
    "reboot": ([ATTEMPT], [[path, "-r", "now"] for path in SHUTDOWN]),
}

# ---------- the rest knows no action by its name ----------


def main(arguments: "list[str]") -> int:
    """The exit code of the program; 2 for what is not in the table, 69 where no program is there."""
    if os.geteuid() != 0:
        return refuse("it runs as root only")
    command = choose(arguments)
    if isinstance(command, str):
        note("refused " + repr(arguments)[:300])
        return refuse(command)
    if not command:
        return refuse("this server has none of its programs", 69)
    note("runs " + " ".join(arguments))
    code = run(command)
    note("ended " + arguments[0] + " with " + str(code))
    return code


def choose(arguments: "list[str]") -> "str | list[str]":
    """The command for these words, [] where no program is there; why they are refused otherwise."""
    action, rest = arguments[:1], arguments[1:]
    if not action or action[0] not in ACTIONS:
        return "there is no such action; there are: " + ", ".join(sorted(ACTIONS))
    forms, commands = ACTIONS[action[0]]
    if len(rest) != len(forms) or not all(re.fullmatch(form, word) for form, word in zip(forms, rest)):  # noqa: B905
        return action[0] + " takes: " + (" ".join(forms) or "nothing")
    return next((command for command in commands if is_program(command[0])), [])


def is_program(path: str) -> bool:
    """Whether root alone decides what runs there."""
    try:
        found = os.stat(os.path.realpath(path))
    except OSError:
        return False
    mine = found.st_uid == 0 and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISREG(found.st_mode) and mine and bool(found.st_mode & stat.S_IXUSR)


def run(command: "list[str]") -> int:
    """Run it in a session of its own until it ends; the caller ends it by words on our input, or by going away."""
    os.umask(0o022)
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, env=ENVIRONMENT, cwd="/", start_new_session=True, close_fds=True
    )
    watched, kill_at = is_pipe(0), float("inf")
    by_words = watched  # then the same rung may come from sudo as a signal, too
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: None if by_words else tell(process.pid, number))
    while process.poll() is None:
        words = listen(0.05) if watched else None
        if not watched:
            time.sleep(0.05)
        if words == b"":  # who asked is gone
            watched, kill_at = False, time.monotonic() + PATIENCE_S
            tell(process.pid, signal.SIGTERM)
        for word in words.split() if words else ():
            tell(process.pid, SIGNALS.get(word, signal.SIGTERM))
        if time.monotonic() >= kill_at:
            tell(process.pid, signal.SIGKILL)
    end_rest(process.pid)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def is_pipe(descriptor: int) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    except OSError:
        return False


def listen(timeout_s: float) -> "bytes | None":
    """What the caller says; None when nothing, b"" when it is gone."""
    return os.read(0, 4096) if select.select([0], [], [], timeout_s)[0] else None


def tell(session: int, number: int) -> int:
    """Send a signal to every process of a session; how many there were."""
    count = 0
    for name in os.listdir("/proc"):
        if name.isdigit() and session_of(name) == session:
            count += 1
            try:
                os.kill(int(name), number)
            except OSError:
                pass  # it has ended
    return count


def session_of(pid: str) -> int:
    """The session of a living process, -1 for a dead one."""
    try:
        with open("/proc/" + pid + "/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return -1
    return -1 if fields[0] in (b"Z", b"X") else int(fields[3])


def end_rest(session: int) -> None:
    """Nothing that it started stays."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        until = time.monotonic() + PATIENCE_S
        if not tell(session, number):
            return
        while tell(session, 0) and time.monotonic() < until:
            time.sleep(0.02)


def refuse(why: str, code: int = 2) -> int:
    print("root-helper: " + why, file=sys.stderr)
    return code


def note(text: str) -> None:
    """One line into our own log; without room for it the work is done all the same."""
    line = "%s uid %s: %s\n" % (time.strftime("%Y-%m-%dT%H:%M:%S%z"), os.environ.get("SUDO_UID", "0"), text)  # noqa: UP031
    try:
        if os.path.exists(LOG) and os.path.getsize(LOG) > LOG_BYTES:
            os.replace(LOG, LOG + ".1")
        descriptor = os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640)
        with os.fdopen(descriptor, "w") as file:
            file.write(line)
    except OSError as error:
        print("root-helper: its log " + LOG + " takes nothing (" + str(error) + ")", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
