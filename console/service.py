"""The console as a systemd unit: it starts with the machine, as an account of its own, and comes back when it ends."""

import grp
import os
import pwd
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from console import valkey
from console.environment import BadSetting

UNIT = Path("/etc/systemd/system/ascend-console.service")
ENVIRONMENT = Path("/etc/ascend-console.env")
ACCOUNT = "ascend-console"
NPU_GROUP = "HwHiAiUser"  # who is in it may use the NPUs
SYSTEMD = Path("/run/systemd/system")
# What a site may set, as the README lists it; each may be <NAME>_FILE as well. VAR_DIR is always written.
NAMES = (
    "PORT", "BIND", "ALLOWED_HOSTS", "CSRF_TRUSTED_ORIGINS", "FORWARDED_ALLOW_IPS", "PUBLIC_URL", "PUBLIC_REDIS_URL",
    "PUBLIC_CERTIFICATE", "ALLOW_PLAINTEXT", "TLS", "TLS_CERTIFICATE", "TLS_KEY", "TLS_CA", "TLS_FRONT",
    "REDIRECT_PORT", "REDIS_BIND", "REDIS_TLS_PORT", "REDIS_CA", "DEMO_SERVERS", "DATABASE_URL", "REDIS_URL",
    "REDIS_PORT", "SECRET_KEY", "LANGUAGE", "TIME_ZONE", "LOG_LEVEL", "STACKS_FILE", "SERVER_QUOTA_MB", "DOUBT_SHARE",
    "SITE_DIAGNOSES", "MODELS_FILE", "MODELS_ROOT", "PACKAGE_INDEX", "PACKAGE_EXTRA_INDEX", "PACKAGE_INDEX_CA",
    "PACKAGE_PASSWORDS", "MODEL_HUB", "MODELSCOPE_HUB", "MODEL_HUB_CA", "MODEL_TOKENS", "MODEL_UPLOAD_GB",
    "MODEL_COPY_PORT", "GATE_BUDGET", "GATE_AGREEMENT", "ENGINE_PORTS", "ENGINE_RAY_PORTS", "ENGINE_DP_PORTS",
    "ENGINE_HCCL_PORTS", "GATEWAY_PORTS", "ACCEPTED_FAULT_CODES", "PLAYGROUND_VIEWERS", "ENGINE_LOG_DAYS",
    "REPLICA_DAYS", "LOG_SHARE", "HISTORY_RAW_HOURS", "HISTORY_5MIN_DAYS", "HISTORY_HOUR_DAYS",
    "LOG_DAYS", "LOG_DAYS_FAILED", "LOG_DAYS_LOOKS", "LOG_MAX_GB", "JOB_DAYS", "SUPPORT_BUNDLE_DAYS",
    "SUPPORT_BUNDLES_GB",
)  # fmt: skip
FILES = ("PUBLIC_CERTIFICATE", "TLS_CERTIFICATE", "TLS_KEY", "TLS_CA", "REDIS_CA", "PACKAGE_INDEX_CA", "MODEL_HUB_CA")


@dataclass(frozen=True)
class Service:
    """`environment` is what the site has set, now or when the service was installed before."""

    base: Path
    python: Path
    var: Path
    account: str
    environment: dict[str, str] = field(default_factory=dict)


def given(kept: dict[str, str], now: dict[str, str]) -> dict[str, str]:
    """The settings of now over those kept from before; a name that is set to nothing is left out from then on."""
    names = [*NAMES, *(f"{name}_FILE" for name in NAMES)]
    both = {**kept, **{name: now[name] for name in names if name in now}}
    # LANGUAGE is also a variable of gettext (`en_GB:en`), which a login may set to more than a language.
    if ":" in both.get("LANGUAGE", ""):
        del both["LANGUAGE"]
    return {name: both[name] for name in names if both.get(name, "").strip()}


def unit(service: Service) -> str:
    """The unit's text. KillMode=process: job runners live on when the console is started anew, and are adopted."""
    words = [_word(str(path)).replace("$", "$$") for path in (service.python, service.base / "manage.py")]
    ports = [service.environment.get(name, "") for name in ("PORT", "REDIRECT_PORT", "REDIS_TLS_PORT")]
    is_low = any(port.isdigit() and int(port) < 1024 for port in ports)
    low = "AmbientCapabilities=CAP_NET_BIND_SERVICE\n" if is_low else ""
    return f"""\
[Unit]
Description=Ascend Console
Wants=network-online.target
After=network-online.target postgresql.service redis.service redis-server.service
StartLimitIntervalSec=0

[Service]
User={service.account}
WorkingDirectory={_path(service.base)}
EnvironmentFile={ENVIRONMENT}
ExecStart={" ".join(words)} up
Restart=always
RestartSec=2
KillMode=process
TimeoutStopSec=90
UMask=0027
LimitNOFILE=1048576
LimitMEMLOCK=infinity
TasksMax=infinity
NoNewPrivileges=yes
{low}ProtectSystem=full
ReadWritePaths={_word(str(service.var))}
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectControlGroups=yes
RestrictSUIDSGID=yes
LockPersonality=yes

[Install]
WantedBy=multi-user.target
"""


def _path(path: Path) -> str:
    """A path in a setting that takes one only, blanks included."""
    return str(path).replace("%", "%%")


def _word(text: str) -> str:
    """One word of a line that takes several."""
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{text}"' if any(char in text for char in " '\t") else text


def environment_file(service: Service) -> str:
    """The settings as systemd reads them, and as `kept` does again."""
    lines = {"VAR_DIR": str(service.var), **service.environment}
    for name, value in lines.items():
        if "\n" in value:
            raise BadSetting(
                f"{name} holds a line break, which a service cannot be told. Put it into a file: {name}_FILE"
            )
    quoted = {name: value.replace("\\", "\\\\").replace('"', '\\"') for name, value in lines.items()}
    return "".join(f'{name}="{value}"\n' for name, value in quoted.items())


def kept() -> dict[str, str]:
    """The settings of the service that is installed; empty where there is none."""
    try:
        text = ENVIRONMENT.read_text()
    except OSError:
        return {}
    found = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals:
            found[name] = re.sub(r"\\(.)", r"\1", value[1:-1])
    return found


# ---------- as root ----------


def install(service: Service) -> None:
    """Make the account, hand VAR_DIR to it, write the unit and start it. Raises BadSetting, OSError."""
    must_be_root()
    if not SYSTEMD.is_dir():
        raise BadSetting(
            "There is no systemd here. Let what starts this machine's programs run “make up” as an account of its own; "
            "“manage.py service --print” shows what a unit would say."
        )
    _check_folder(service.var)
    make_account(service.account)
    check_account(service)
    hand_over(service.var, service.account)
    valkey.write_private(ENVIRONMENT, environment_file(service))
    UNIT.write_text(unit(service))
    for words in (["daemon-reload"], ["enable", "--quiet", UNIT.name], ["restart", UNIT.name]):
        _systemctl(*words)


def remove() -> bool:
    """Take the unit away; data, account and job runners stay. Whether there was one."""
    must_be_root()
    if not UNIT.exists():
        return False
    _systemctl("disable", "--now", "--quiet", UNIT.name)
    UNIT.unlink()
    ENVIRONMENT.unlink(missing_ok=True)
    _systemctl("daemon-reload")
    return True


def must_be_root() -> None:
    if os.geteuid() != 0:
        raise BadSetting("A service is installed by root. Run: sudo make service")


def _systemctl(*words: str) -> None:
    done = subprocess.run(["systemctl", *words], capture_output=True, text=True, timeout=120)
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())[:300]
        raise BadSetting(f"systemctl {words[0]} failed: {said} See: journalctl -u {UNIT.stem}")


def _check_folder(var: Path) -> None:
    """What is handed over must be a console's own, lest VAR_DIR=/home gives homes away.

    Reading the settings has made a secret key there; a start makes the lock.
    """
    others = {path.name for path in var.iterdir()} - {"secret_key"} if var.exists() else set()
    if others and not (var / "up.lock").exists():
        raise BadSetting(f"VAR_DIR={var} holds other files. Set it to a folder for the console alone.")


def make_account(name: str) -> None:
    """See that the account exists, is not root, and may use the NPUs. Raises BadSetting."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        shell = next((path for path in ("/usr/sbin/nologin", "/sbin/nologin") if Path(path).exists()), "/bin/false")
        _run("useradd", "--system", "--no-create-home", "--home-dir", "/nonexistent", "--shell", shell, name)
        entry = pwd.getpwnam(name)
    if entry.pw_uid == 0:
        raise BadSetting("The console does not run as root. Name another account with SERVICE_USER, or leave it out.")
    if any(group.gr_name == NPU_GROUP for group in grp.getgrall()):
        _run("usermod", "--append", "--groups", NPU_GROUP, name)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode:
        said = " ".join(done.stderr.split())[:300]
        raise BadSetting(f"{command[0]} failed: {said} Make the account yourself, then name it with SERVICE_USER=.")


def check_account(service: Service) -> None:
    """Raises BadSetting where the account cannot run the console from where it lies, or read what the site names."""
    said = _fails_as(service.account, [str(service.python), "-c", "import django, console.parts"], service.base)
    if said:
        raise BadSetting(
            f"The account {service.account} cannot run the console in {service.base}: {said} "
            "Put it where every account may read it, for example into /opt."
        )
    for name, path in service.environment.items():
        named = name in FILES or name.endswith("_FILE")
        if named and _fails_as(service.account, ["test", "-r", path], service.base):
            raise BadSetting(
                f"{name}={path}: the account {service.account} cannot read it. Let it: setfacl, or a copy."
            )


def _fails_as(account: str, command: list[str], folder: Path) -> str:
    """Why the command does not work as that account, "" where it does."""
    entry = pwd.getpwnam(account)
    # By a shell: Popen itself could not say whether the folder or the program is out of reach.
    words = ["/bin/sh", "-c", 'cd "$0" && exec "$@"', str(folder), *command]
    try:
        done = subprocess.run(
            words, user=entry.pw_uid, group=entry.pw_gid, extra_groups=os.getgrouplist(account, entry.pw_gid), cwd="/",
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}, capture_output=True,
            text=True, timeout=60,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return " ".join(done.stderr.split())[-300:] or f"exit code {done.returncode}" if done.returncode else ""


def hand_over(var: Path, account: str) -> None:
    """Give the folder and all in it to the account; links are not followed."""
    entry = pwd.getpwnam(account)
    var.mkdir(parents=True, exist_ok=True)
    os.lchown(var, entry.pw_uid, entry.pw_gid)
    for folder, folders, files in os.walk(var):
        for name in (*folders, *files):
            path = os.path.join(folder, name)  # noqa: PTH118 - a hundred thousand of them
            if os.lstat(path).st_uid != entry.pw_uid:
                os.lchown(path, entry.pw_uid, entry.pw_gid)


def runs(pid: int) -> bool:
    """Whether systemd runs this process as our service."""
    try:
        return UNIT.name in Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return False
