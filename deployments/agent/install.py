"""Where an agent that joined by the console's command lies, and how it is started, stopped and removed.

Everything is below one folder; `etc/install.json` there says what else was made.
"""

import dataclasses
import json
import os
import pwd
import shutil
import signal
import subprocess
import time
from pathlib import Path

from deployments import locks
from deployments.agent import adopt, as_root, processes, reboots, root_install, spool, warily
from deployments.agent.config import Config
from deployments.agent.engines import folder, watch

UNIT = Path("/etc/systemd/system/ascend-console-agent.service")
# What we put below the folder; nothing else there is ever removed.
OURS = ("bin", "code", "current", "etc", "log", "run", "runtime", "state", "venv", ".joining")
STOP_S = 15.0


@dataclasses.dataclass(frozen=True)
class Install:
    """`user` is the agent's account where that is not ours; `made_user` says that we made it.

    `joined` is another at each joining: what the console sent to the agent before that is of no use any more.
    """

    prefix: Path
    console: str
    pin: str
    server_id: int
    user: str | None = None
    made_user: bool = False
    systemd: bool = False
    joined: str = ""
    root_helper: bool = False

    @property
    def config(self) -> Path:
        return self.prefix / "etc" / "config.json"

    @property
    def state(self) -> Path:
        return self.prefix / "state"

    @property
    def python(self) -> Path:
        return self.prefix / "venv" / "bin" / "python"

    @property
    def pid_file(self) -> Path:
        return self.prefix / "run" / "keeper"

    @property
    def agent(self) -> list[str]:
        """The agent's argument list."""
        logs = str(self.prefix / "log")
        return [str(self.python), "-m", "deployments.agent", "--config", str(self.config), "--logs", logs]

    def save(self) -> None:
        data = {**dataclasses.asdict(self), "prefix": str(self.prefix)}
        spool.write_whole(self.prefix / "etc" / "install.json", json.dumps(data, indent=1).encode())
        (self.prefix / "etc" / "install.json").chmod(0o644)


def read(prefix: Path) -> Install:
    """What was installed at `prefix`. Raises OSError, ValueError where nothing was."""
    data = json.loads((prefix / "etc" / "install.json").read_text())
    names = {field.name for field in dataclasses.fields(Install)}
    return Install(**{name: value for name, value in data.items() if name in names} | {"prefix": prefix})


def environment(install: Install) -> dict[str, str]:
    """What the agent starts with: nothing of the terminal that it was joined from but its language and folders."""
    kept = {name: os.environ[name] for name in ("LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH") if name in os.environ}
    path = os.environ.get("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin")
    lib = install.prefix / "current" / "lib"
    return {**kept, "PATH": path, "HOME": str(install.prefix), "PYTHONPATH": str(lib), "PYTHONUNBUFFERED": "1"}


# All of these keep sudo from becoming root, each by itself, or the root helper from writing where it has to.
HARDENING = """\
NoNewPrivileges=yes
ProtectSystem=full
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectControlGroups=yes
RestrictSUIDSGID=yes
LockPersonality=yes
"""


def unit(install: Install) -> str:
    """The systemd unit. Restarting the agent ends its own processes only.

    KillMode=process, and no scope for each runner: the agent's account may not ask systemd for one. A scope of the
    system needs polkit or root, one of the user a manager that lingers, which old systemd lacks for an account
    without login. Runners stay in the unit's group instead; OOMPolicy keeps the agent up when a job eats the memory.
    """
    env = environment(install)
    lines = "".join(f'Environment="{name}={env[name]}"\n' for name in ("PYTHONPATH", "PYTHONUNBUFFERED", "HOME"))
    return f"""\
[Unit]
Description=Ascend Console agent
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
User={install.user}
{lines}ExecStart={" ".join(install.agent)}
Restart=always
RestartSec=2
KillMode=process
SendSIGHUP=no
OOMPolicy=continue
TimeoutStopSec=60
UMask=0027
LimitNOFILE=1048576
LimitMEMLOCK=infinity
TasksMax=infinity
{"" if install.root_helper else HARDENING}
[Install]
WantedBy=multi-user.target
"""


def has_systemd() -> bool:
    return os.geteuid() == 0 and Path("/run/systemd/system").is_dir()


KEEP = """\
#!/bin/sh
# Keeps the agent running where there is no systemd: keep PYTHON ARGUMENT…
stop= child=
trap 'stop=1; [ -z "$child" ] || kill "$child" 2>/dev/null' TERM INT HUP
while [ -z "$stop" ]; do
    "$@" &
    child=$!
    wait "$child"
    [ -n "$stop" ] || sleep 2
done
wait "$child" 2>/dev/null
"""


def start(install: Install) -> None:
    """Start the agent anew. Raises OSError, subprocess.SubprocessError."""
    if install.systemd:
        UNIT.write_text(unit(install))
        subprocess.run(["systemctl", "daemon-reload"], check=True, timeout=60)
        subprocess.run(["systemctl", "enable", "--quiet", UNIT.name], check=True, timeout=60)
        subprocess.run(["systemctl", "restart", UNIT.name], check=True, timeout=90)
        return
    stop(install)
    keep = install.prefix / "bin" / "keep"
    account = pwd.getpwnam(install.user) if install.user else None
    log = warily.open_log(install.prefix / "log" / "keep.log")
    try:
        process = subprocess.Popen(
            ["/bin/sh", str(keep), *install.agent],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=install.state, env=environment(install),
            start_new_session=True, umask=0o027,
            user=account.pw_uid if account else None,
            group=account.pw_gid if account else None,
            extra_groups=os.getgrouplist(account.pw_name, account.pw_gid) if account else None,
        )  # fmt: skip
    finally:
        os.close(log)
    found = processes.identity(process.pid)
    if found:
        spool.write_whole(install.pid_file, json.dumps(found._asdict()).encode())


def keeper(install: Install) -> int | None:
    """The pid of the process that keeps the agent running, None where there is none."""
    try:
        kept = processes.Identity(**json.loads(install.pid_file.read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return kept.pid if processes.lives(kept) else None


def stop(install: Install) -> None:
    """End the agent; job runners, which have sessions of their own, live on."""
    if install.systemd:
        subprocess.run(["systemctl", "stop", UNIT.name], check=False, timeout=90)
        return
    pid = keeper(install)
    if pid is not None:
        os.kill(pid, signal.SIGTERM)
        _wait_gone(pid)
    warily.as_account(install.user, lambda: _stop_unkept(install.state / "agent.lock"))
    install.pid_file.unlink(missing_ok=True)


def _stop_unkept(lock: Path) -> None:
    """End an agent whose keeper was killed."""
    if not locks.is_locked(lock):
        return
    agent = lock.read_text()[:20].strip()
    if agent.isdecimal():
        os.kill(int(agent), signal.SIGTERM)
        _wait_gone(int(agent))


def _wait_gone(pid: int) -> None:
    """Wait for a process that is not our child to end; kill it and its session when it does not."""
    until = time.monotonic() + STOP_S
    while time.monotonic() < until:
        found = processes.stat(pid)
        if found is None or found.state in "ZX":
            return
        time.sleep(0.05)
    processes.signal_session(pid, signal.SIGKILL)


def is_running(install: Install) -> bool:
    return locks.is_locked(install.state / "agent.lock")


def runners(install: Install) -> list[Path]:
    """The attempts whose runner lives."""
    return [attempt for attempt in spool.folders(install.state / "attempts") if spool.is_alive(attempt)]


def waiting(install: Install) -> list[Path]:
    """The attempts that wait for this server to start anew."""
    found = spool.folders(install.state / "attempts")
    return [one for one in found if reboots.is_left(one) and not spool.is_alive(one) and not spool.has_ended(one)]


def engines(install: Install) -> list[folder.Folder]:
    """The engines that run here."""
    return folder.alive(install.state)


def end_runners(install: Install) -> None:
    """End jobs and engines, for good."""
    warily.as_account(install.user, lambda: _end_runners(install))
    warily.as_account(install.user, lambda: _end_engines(install))


def _end_engines(install: Install) -> None:
    watch.end(engines(install), for_good=True)


def _end_runners(install: Install) -> None:
    for attempt in runners(install):
        who = spool.runner_identity(attempt)
        if who:
            adopt.end_session(who)


def engine_units(install: Install) -> list[Path]:
    """Units of this installation's engines, which the root helper has put there."""
    ours = f"WorkingDirectory={install.state}/engines/"
    found = sorted(UNIT.parent.glob("ascend-console-e[0-9]*.service"))
    return [one for one in found if ours in one.read_text(encoding="utf-8", errors="replace")]


def remove(install: Install) -> None:
    """Take away all that joining made, the folder itself only when nothing else is in it."""
    if install.systemd:
        subprocess.run(["systemctl", "disable", "--quiet", UNIT.name], check=False, timeout=60)
        UNIT.unlink(missing_ok=True)
        for left in engine_units(install):
            subprocess.run(["systemctl", "disable", "--now", "--quiet", left.name], check=False, timeout=120)
            left.unlink(missing_ok=True)
        subprocess.run(["systemctl", "daemon-reload"], check=False, timeout=60)
    root_install.take_away(install.prefix)
    for name in OURS:
        path = install.prefix / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    try:
        install.prefix.rmdir()
    except OSError:
        pass  # somebody keeps something there, or may not remove it from the folder above
    if install.made_user and install.user:
        subprocess.run(["userdel", install.user], check=False, timeout=60, capture_output=True)


def at(config: Config) -> Install | None:
    """The installation that this config belongs to; None for an agent that was not joined by the command."""
    try:
        found = read(config.path.parent.parent)
    except (OSError, ValueError, TypeError):
        return None
    return found if found.config == config.path else None


def removable(config: Config) -> Path | None:
    """The folder of this agent where it can remove itself: what its own account has installed, or root with a helper
    that does it."""
    found = at(config)
    if found is None:
        return None
    own = found.user is None and not found.systemd and os.access(found.prefix / "etc", os.W_OK)
    # The program stands there only beside a helper that has the action, of whatever version.
    by_helper = (found.prefix / "bin" / "leave").exists() and as_root.state(config) in ("helper", "old")
    return found.prefix if own or by_helper else None


def start_leaving(prefix: Path) -> None:
    """Run `ascend-console leave` in a session of its own, in a second: the worker's answer goes out first."""
    command = [str(prefix / "bin" / "ascend-console"), "leave", "--after", "1"]
    if not os.access(prefix / "etc", os.W_OK):
        command = ["sudo", "-n", str(prefix / "bin" / "root-helper"), "leave"]
    subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
        start_new_session=True,
    )  # fmt: skip
