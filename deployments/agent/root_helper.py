"""All that the agent's account may do as root. Joining installs this file; one line of sudo allows it, and no other.

    sudo -n …/bin/root-helper ACTION [ARGUMENT …]

It takes the actions of the table below, each with arguments of a fixed form, and runs their own programs, by whole
path, with an environment of its own. Nothing that the caller says becomes a program, a path or a shell's word.
A package of the vendor is named by its file in a folder that root alone can write, and by its SHA-256: it is copied
to where nobody else can look, the copy is read for its digest, and the copy is run.
Needs Python 3.6 and no file but this one.
"""

import errno
import fcntl
import hashlib
import json
import os
import pwd
import re
import select
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import tempfile
import time
import typing

# ruff: noqa: PTH100, PTH101, PTH102, PTH103, PTH105, PTH110, PTH115, PTH116, PTH118, PTH119, PTH120, PTH123, PTH202
# ruff: noqa: PTH108, PTH112, PTH208, SIM115 - as few modules as can be, and a lock that is kept open

LOG = "/var/log/ascend-console-root.log"
LOG_BYTES = 1024 * 1024
PACKAGES = "/opt/ascend-console/packages"  # root's own; packages of the vendor are put there by root
OWN = "/var/lib/ascend-console-root"  # nobody else can look in here
ASCEND = "/usr/local/Ascend"
DEVICES, PROC = "/dev/", "/proc"
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "HOME": "/root"}
PATIENCE_S = 5.0
DEAF_S = 60.0
DEAF = []  # type: typing.List[int]
SIGNALS = {b"interrupt": signal.SIGINT, b"terminate": signal.SIGTERM, b"kill": signal.SIGKILL}

# ---------- the table: action -> (forms of its arguments, programs of which the first that is there is run) ----------

ATTEMPT = r"a[0-9]{1,18}-[0-9]{1,6}-[0-9a-f]{8}"  # the run of a job that asks for it; it goes into the log
KERNEL = r"[A-Za-z0-9][A-Za-z0-9._+~-]{0,119}"
ACCOUNT = r"[a-z_][a-z0-9_-]{0,31}"
FILE = r"(?:Ascend|Atlas)-[A-Za-z0-9][A-Za-z0-9._+-]{0,180}\.run"
DIGEST = r"[0-9a-f]{64}"
NUMBER = r"[0-9]{1,3}"
DEVICE_LIST = NUMBER + "(?:," + NUMBER + "){0,127}"  # of /dev/davinci<number>
ENGINE = r"e[0-9]{1,10}"  # a replica's, as its folder below the agent's state is called
# A model's folder: no blank, no sign that a unit file or a shell reads, and no way up.
MODEL = r"/|(?!.*/\.\.?(?:/|$))(?:/[A-Za-z0-9._+@=,-]{1,255}){1,40}"
MOMENT, MEGABYTES = r"[0-9]{1,11}", r"[1-9][0-9]{0,3}"  # since when (epoch seconds), how much at most
NPU_SMI = ("/usr/local/bin/npu-smi", "/usr/local/sbin/npu-smi", "/usr/bin/npu-smi")
SHUTDOWN = ("/usr/sbin/shutdown", "/sbin/shutdown")
# Joining puts it beside this file where root alone decides what it runs: the agent removes itself from this server.
LEAVE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "leave")
USER = "HwHiAiUser"
MAKE_USER = f"getent passwd {USER} >/dev/null || useradd -g {USER} -d /home/{USER} -m {USER} -s /bin/bash"
TOOLS = ["make", "dkms", "gcc", "net-tools", "pciutils"]
# {1}: the first argument; {package}: the copy of the package that it names; {caller}: the account that asks.
PACKAGE = ["/bin/bash", "{package}"]
SET_ENV = ("/cann/set_env.sh", "/ascend-toolkit/set_env.sh")
WITH_TOOLKIT = (  # NNAL asks the environment for the toolkit that it is for
    f'for file in "$1"{SET_ENV[0]} "$1"{SET_ENV[1]}; do '
    'if [ -e "$file" ]; then . "$file"; break; fi; done; shift; exec /bin/bash "$@"'
)
NNAL = ["/bin/bash", "-c", WITH_TOOLKIT, "with-toolkit", ASCEND, "{package}"]

ACTIONS = {
    "leave": ([], [[LEAVE]]),
    "reboot": ([ATTEMPT], [[path, "-r", "now"] for path in SHUTDOWN]),
    "apt-driver-tools": ([KERNEL], [["/usr/bin/apt-get", "install", "-y", *TOOLS, "linux-headers-{1}"]]),
    "yum-driver-tools": (
        [KERNEL],
        [
            [path, "install", "-y", *TOOLS, "kernel-headers-{1}", "kernel-devel-{1}"]
            for path in ("/usr/bin/yum", "/usr/bin/dnf")
        ],
    ),
    "run-group": ([], [["/usr/sbin/groupadd", "-f", USER]]),
    "run-user": ([], [["/bin/sh", "-c", MAKE_USER]]),
    "join-run-group": ([], [["/usr/sbin/usermod", "-aG", USER, "{caller}"]]),
    "uninstall-driver": ([], [["/bin/bash", ASCEND + "/driver/script/uninstall.sh"]]),
    "uninstall-firmware": ([], [["/bin/bash", ASCEND + "/firmware/script/uninstall.sh"]]),
    "package-driver-first": (
        [FILE, DIGEST],
        [[*PACKAGE, "--nox11", "--full", "--quiet", "--install-for-all"]],
    ),
    "package-firmware-first": ([FILE, DIGEST], [[*PACKAGE, "--nox11", "--full", "--quiet"]]),
    "package-upgrade": ([FILE, DIGEST], [[*PACKAGE, "--nox11", "--upgrade", "--quiet"]]),
    "package-toolkit-first": ([FILE, DIGEST], [[*PACKAGE, "--full", "--quiet"]]),
    "package-part-first": ([FILE, DIGEST], [[*PACKAGE, "--install", "--quiet"]]),
    "package-part-upgrade": ([FILE, DIGEST], [[*PACKAGE, "--upgrade", "--quiet"]]),
    "package-part-uninstall": ([FILE, DIGEST], [[*PACKAGE, "--uninstall", "--quiet"]]),
    "package-nnal-first": ([FILE, DIGEST], [[*NNAL, "--install", "--quiet"]]),
    "package-nnal-upgrade": ([FILE, DIGEST], [[*NNAL, "--upgrade", "--quiet"]]),
    "npu-reset": ([NUMBER, DEVICE_LIST], [[path, "set", "-t", "reset", "-i", "{1}", "-m", "1"] for path in NPU_SMI]),
    "npu-holders": ([], []),
    "stop-exporters": ([], []),
    "start-exporters": ([], []),
    "engine-unit": ([ENGINE, MODEL], []),
    "engine-start": ([ENGINE], []),
    "engine-tidy": ([ENGINE], []),
    "engine-remove": ([ENGINE], []),
    "support-dmesg": ([ATTEMPT], [[path, "-T"] for path in ("/usr/bin/dmesg", "/bin/dmesg")]),
    "support-hccn": ([ATTEMPT, MOMENT, MEGABYTES], []),
    "support-seclog": ([ATTEMPT, MOMENT, MEGABYTES], []),
    "support-plog": ([ATTEMPT, MOMENT, MEGABYTES], []),
    "support-device": ([ATTEMPT, MOMENT, MEGABYTES], []),
}
# What changes driver or firmware: not while anybody holds an NPU, and it ends by itself, whoever goes away.
HOST = (
    "uninstall-driver",
    "uninstall-firmware",
    "package-driver-first",
    "package-firmware-first",
    "package-upgrade",
)
ANSWERS = {"npu-reset": b"Y\n"}
MORE = {"apt-driver-tools": {"DEBIAN_FRONTEND": "noninteractive"}}

# ---------- the rest knows no action by its name ----------

BUSY, NO_INPUT, NO_ROOM, NOT_OURS = 75, 66, 73, 77  # codes of sysexits.h


class Refused(Exception):
    """Why an action is not begun; `code` is ours to end with."""

    def __init__(self, why: str, code: int) -> None:
        super().__init__(why)
        self.code = code


def main(arguments: "list[str]") -> int:
    """The exit code of the program; 2 for what is not in the table, 69 where no program is there."""
    if os.geteuid() != 0:
        return refuse("it runs as root only")
    command = choose(arguments)
    if isinstance(command, str):
        note("refused " + repr(arguments)[:300])
        return refuse(command)
    inside = INSIDE.get(arguments[0])
    if not command and inside is None:
        return refuse("this server has none of its programs", 69)
    note("runs " + " ".join(arguments))
    os.umask(0o022)
    try:
        code = inside(*arguments[1:]) if inside else do(arguments[0], arguments[1:], command)
    except Refused as refused:
        note("refused " + arguments[0] + ": " + str(refused))
        return refuse(str(refused), refused.code)
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
    found = next((command for command in commands if is_program(command[0])), [])
    return [word.replace("{1}", rest[0]) if rest else word for word in found]


def is_program(path: str) -> bool:
    """Whether root alone decides what runs there."""
    try:
        found = os.stat(os.path.realpath(path))
    except OSError:
        return False
    mine = found.st_uid == 0 and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISREG(found.st_mode) and mine and bool(found.st_mode & stat.S_IXUSR)


def do(action: str, rest: "list[str]", command: "list[str]") -> int:
    """Run an action's command, with all that it needs before. Raises Refused."""
    files = [ASCEND + name for name in SET_ENV if os.path.exists(ASCEND + name)] if ASCEND in command else []
    for word in files + [word for word in command[1:] if word.startswith(ASCEND + "/")]:
        must_be_roots(word)
    if "{caller}" in command:
        caller = os.environ.get("SUDO_USER", "")
        if not re.fullmatch(ACCOUNT, caller):
            return 0  # root itself asks, who needs no group
        command = [word.replace("{caller}", caller) for word in command]
    more = dict(MORE.get(action, {}))
    if "{package}" not in command:
        whole = action in HOST or action in ANSWERS
        if whole:
            must_be_roots(command[0])
            wait_until_free(["davinci" + number for number in rest[1].split(",")] if rest else None)
        return run(command, more, to_its_end=whole, answer=ANSWERS.get(action, b""))
    with only_one():
        copy = copied(rest[0], rest[1])
        try:
            if action in HOST:
                wait_until_free()
            more["TMPDIR"] = os.path.dirname(copy)
            return run([copy if word == "{package}" else word for word in command], more, to_its_end=True)
        finally:
            shutil.rmtree(os.path.dirname(copy), ignore_errors=True)


# ---------- packages ----------


def must_be_roots(path: str) -> None:
    """Raises Refused where somebody else can change what stands there, or a folder on the way to it."""
    real = os.path.realpath(path)
    ways = [path, real]
    for way in list(ways):
        while way != "/":
            way = os.path.dirname(way)
            ways.append(way)
    for way in ways:
        try:
            found = os.stat(way)
        except OSError:
            raise Refused("there is no " + path, NO_INPUT) from None
        if found.st_uid != 0 or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise Refused("others than root can change " + way, NOT_OURS)


def only_one(name: str = "lock", busy: str = "another package is being installed") -> "typing.IO[str]":
    """A lock as a context, by default that of packages, which go on one after the other. Raises Refused."""
    try:
        os.makedirs(OWN, 0o700, exist_ok=True)
        os.chmod(OWN, 0o700)
        must_be_roots(OWN)
        file = open(OWN + "/" + name, "a")
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Refused(busy, BUSY) from None
    except OSError as error:
        raise Refused(OWN + " cannot be used: " + str(error), NO_ROOM) from None
    return file


def copied(name: str, digest: str) -> str:
    """The copy of a package in a folder of its own. Raises Refused where it is another file, or not root's alone."""
    must_be_roots(PACKAGES)
    folder = OWN + "/package"
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was cut off
    try:
        descriptor = os.open(PACKAGES + "/" + name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Refused(name + " is a link; put the file itself into " + PACKAGES, NOT_OURS) from None
        raise Refused("there is no package " + name + " in " + PACKAGES, NO_INPUT) from None
    found = os.fstat(descriptor)
    if stat.S_ISDIR(found.st_mode):
        os.close(descriptor)
        raise Refused(name + " in " + PACKAGES + " is a folder", NOT_OURS)
    with os.fdopen(descriptor, "rb") as source:
        if not stat.S_ISREG(found.st_mode) or found.st_uid != 0 or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise Refused("others than root can change " + PACKAGES + "/" + name, NOT_OURS)
        try:
            os.mkdir(folder, 0o700)
            has = copy_of(source, folder + "/" + name)
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise Refused("there is no room for a copy of " + name + ": " + str(error), NO_ROOM) from None
    if has != digest:
        shutil.rmtree(folder, ignore_errors=True)
        raise Refused(name + " is another file than planned: its SHA-256 is " + has, NO_INPUT)
    return folder + "/" + name


def copy_of(source: "typing.IO[bytes]", path: str) -> str:
    """Write the copy; the SHA-256 of what was written. Raises OSError."""
    digest = hashlib.sha256()
    with open(path, "xb") as target:
        os.fchmod(target.fileno(), 0o500)
        while True:
            part = source.read(1024 * 1024)
            if not part:
                return digest.hexdigest()
            digest.update(part)
            target.write(part)


# ---------- who holds NPUs ----------

HOLDS = re.compile(r"(?:davinci[0-9]+|davinci_manager|devmm_svm|hisi_hdc)")
CONTAINER = re.compile(r"(?<![0-9a-f])([0-9a-f]{64})(?![0-9a-f])")
UNIT = re.compile(r"/([A-Za-z0-9@_.\\-]{1,100}\.service)(?=/|$)", re.MULTILINE)
EXPORTERS = ("npu-exporter", "npu_exporter", "ascend-exporter", "noded")  # as programs, and as their units
STOPPED = "/exporters.json"  # in OWN: what was stopped and is to be started again
ENGINES = {"docker": ["/usr/bin/docker", "/usr/local/bin/docker"], "podman": ["/usr/bin/podman"]}
FREE_S = 20.0  # the agent's own npu-smi holds them for a moment, again and again


def holders() -> "list[dict[str, typing.Any]]":
    """Every process that has a device of the NPUs open."""
    found = []
    for pid in os.listdir(PROC):
        if pid.isdigit() and int(pid) != os.getpid():
            devices = sorted(set(held_by(pid)))
            if devices:
                found.append(told(pid, devices))
    return sorted(found, key=lambda one: one["pid"])


def held_by(pid: str) -> "list[str]":
    """The devices of the NPUs that a process has open; those of a container by their numbers, too."""
    try:
        names = os.listdir(PROC + "/" + pid + "/fd")
    except OSError:
        return []  # it has ended
    devices = []
    for name in names:
        try:
            path = os.readlink(PROC + "/" + pid + "/fd/" + name)
        except OSError:
            continue
        if path.startswith(DEVICES) and HOLDS.fullmatch(path[len(DEVICES) :]):
            devices.append(path[len(DEVICES) :])
    return devices


def told(pid: str, devices: "list[str]") -> "dict[str, typing.Any]":
    """What an operator wants to know of a process."""
    group, command = text_of(pid, "cgroup"), text_of(pid, "cmdline").replace("\0", " ").strip()
    try:
        uid = os.stat(PROC + "/" + pid).st_uid
        user = pwd.getpwuid(uid).pw_name
    except OSError:
        uid, user = -1, "?"
    except KeyError:
        user = str(uid)
    container, units = CONTAINER.search(group), UNIT.findall(group)
    name = text_of(pid, "comm").strip()
    program = os.path.basename(command.split(" ")[0]) if command else name
    return {
        "pid": int(pid),
        "user": user,
        "name": name,
        "command": command[:300],
        "devices": devices[:40],
        "container": container.group(1) if container else "",
        "unit": units[-1] if units else "",
        "kubernetes": "kubepods" in group,
        "exporter": (name in EXPORTERS or program in EXPORTERS) and "kubepods" not in group,
    }


def text_of(pid: str, name: str) -> str:
    try:
        with open(PROC + "/" + pid + "/" + name, "rb") as file:
            return file.read(65536).decode("utf-8", "replace")
    except OSError:
        return ""


def wait_until_free(only: "list[str] | None" = None) -> None:
    """Raises Refused that names who holds NPUs, or one of these devices, still."""
    until = time.monotonic() + FREE_S
    while True:
        there = [one for one in holders() if only is None or set(only) & set(one["devices"])]
        if not there:
            return
        if time.monotonic() >= until:
            named = ["%(pid)s (%(user)s) %(name)s" % one for one in there[:20]]  # noqa: UP031
            raise Refused("NPUs are held by " + ", ".join(named), BUSY)
        time.sleep(0.2)


def say_holders() -> int:
    for one in holders():
        print(json.dumps(one))
    return 0


def stop_exporters() -> int:
    """Stop the exporters that hold NPUs, and note them first, so that they are started again whatever happens."""
    with only_one():
        stopped = kept()
        wanted = [how for how in (how_to_stop(one) for one in holders() if one["exporter"]) if how]
        keep(stopped + [how for how in wanted if how not in stopped])
        codes = [run(words("stop", how), {}) for how in wanted if words("stop", how)]
    return max(codes) if codes else 0


def start_exporters() -> int:
    """Start again what was stopped; what does not start stays noted."""
    with only_one():
        left = [how for how in kept() if not words("start", how) or run(words("start", how), {})]
        keep(left)
    if left:
        raise Refused("not started again: " + ", ".join(how[1] for how in left), 1)
    return 0


def how_to_stop(one: "dict[str, typing.Any]") -> "list[str]":
    """[what manages it, its name there]; [] for one that nothing of ours can start again."""
    if one["container"]:
        return ["container", one["container"]]
    return ["unit", one["unit"]] if one["unit"] in [name + ".service" for name in EXPORTERS] else []


def words(verb: str, how: "list[str]") -> "list[str]":
    """The command that stops or starts it; [] where there is no program for it."""
    if how[0] == "unit":
        programs = [["/usr/bin/systemctl", verb, how[1]], ["/bin/systemctl", verb, how[1]]]
        return next((command for command in programs if is_program(command[0])), [])
    for paths in ENGINES.values():
        for path in paths:
            if is_program(path) and run([path, "inspect", how[1]], {}, quiet=True) == 0:
                return [path, verb, how[1]]
    return []


def kept() -> "list[list[str]]":
    try:
        with open(OWN + STOPPED) as file:
            return [[str(one[0]), str(one[1])] for one in json.load(file)]
    except (OSError, ValueError, LookupError, TypeError):
        return []


def keep(stopped: "list[list[str]]") -> None:
    """Raises Refused where it cannot be noted: then nothing may be stopped."""
    try:
        with open(OWN + STOPPED + ".part", "w") as file:
            json.dump(stopped, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(OWN + STOPPED + ".part", OWN + STOPPED)
    except OSError as error:
        raise Refused(OWN + " takes nothing: " + str(error), NO_ROOM) from None


# ---------- units of engines ----------

UNITS = "/etc/systemd/system/"
SYSTEMD = "/run/systemd/system"
SYSTEMCTL = ("/usr/bin/systemctl", "/bin/systemctl")
# The same text stands in deployments/serving/unit.py, and a test holds the two together. All that runs by it runs as
# the agent's account, with the agent's own Python and code.
UNIT_TEXT = """\
[Unit]
Description=Ascend Console engine {name}
Wants=network-online.target
After=network-online.target
RequiresMountsFor={model} {state}
StartLimitIntervalSec=600
StartLimitBurst=5

[Service]
User={account}
Environment="PYTHONPATH={prefix}/current/lib"
Environment="PYTHONUNBUFFERED=1"
Environment="HOME={prefix}"
WorkingDirectory={state}/engines/{name}
ExecStartPre={python} -m deployments.agent.serving.await_npus {state}/engines/{name}
ExecStart={python} -m deployments.agent.engines.keeper {state}/engines/{name} --config {prefix}/etc/config.json --once
TimeoutStartSec=660
Restart=on-failure
RestartSec=10
KillMode=mixed
TimeoutStopSec=90
SendSIGHUP=no
OOMPolicy=continue
UMask=0077
LimitNOFILE=1048576
LimitMEMLOCK=infinity
TasksMax=infinity

[Install]
WantedBy=multi-user.target
"""
FOLDER = re.compile(r"(?:/[A-Za-z0-9._+@=,-]{1,255}){1,40}")


def unit_name(engine: str) -> str:
    return "ascend-console-" + engine + ".service"


def place() -> str:
    """The folder of the installation that this helper belongs to. Raises Refused."""
    own = os.path.realpath(__file__)
    prefix = os.path.dirname(os.path.dirname(own))
    if own != prefix + "/bin/root-helper" or not FOLDER.fullmatch(prefix):
        raise Refused("this agent was not installed by joining, so its engines get no units", 69)
    return prefix


def unit_text(engine: str, model: str) -> str:
    """Raises Refused where nobody but root asks: its engines would run as root."""
    prefix, account = place(), os.environ.get("SUDO_USER", "")
    if not re.fullmatch(ACCOUNT, account) or account == "root":
        raise Refused("an engine runs as the agent's own account, and root alone has asked", NOT_OURS)
    return UNIT_TEXT.format(
        name=engine, model=model, prefix=prefix, state=prefix + "/state", python=prefix + "/venv/bin/python",
        account=account,
    )  # fmt: skip


def put_unit(engine: str, model: str) -> int:
    """Write the unit anew and have systemd read it; it begins with the server from then on."""
    text, path = unit_text(engine, model), UNITS + unit_name(engine)
    must_be_roots(UNITS.rstrip("/"))
    try:
        descriptor = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(path + ".new", path)
    except OSError as error:
        raise Refused(path + " cannot be written: " + str(error), NO_ROOM) from None
    return systemd("daemon-reload") or systemd("enable", "--quiet", unit_name(engine))


def start_unit(engine: str) -> int:
    """Start it; that it failed often before does not count any more. --no-block: the way to its NPUs may be long."""
    systemd("reset-failed", unit_name(engine), quiet=True)
    return systemd("restart", "--no-block", unit_name(engine))


def tidy_unit(engine: str) -> int:
    """Remove the unit where it neither runs nor begins."""
    if os.path.lexists(UNITS + unit_name(engine)) and says(engine) in ("active", "activating", "reloading"):
        return 0
    return remove_unit(engine)


def says(engine: str) -> str:
    """The state of the unit in systemd's own word, '' where it has none."""
    asked = subprocess.run(
        [program(), "is-active", unit_name(engine)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, env=ENVIRONMENT, cwd="/", timeout=DEAF_S,
    )  # fmt: skip
    return asked.stdout.decode("utf-8", "replace").strip()


def remove_unit(engine: str) -> int:
    """Stop what is left of it and take it away; nothing to do where there is none."""
    path = UNITS + unit_name(engine)
    if not os.path.lexists(path):
        return 0
    code = systemd("disable", "--now", "--quiet", unit_name(engine))
    try:
        os.unlink(path)
    except OSError as error:
        raise Refused(path + " cannot be removed: " + str(error), NO_ROOM) from None
    systemd("reset-failed", unit_name(engine), quiet=True)
    return systemd("daemon-reload") or code


def program() -> str:
    """Raises Refused where systemd does not run this server."""
    found = next((path for path in SYSTEMCTL if is_program(path)), "")
    if not found or not os.path.isdir(SYSTEMD):
        raise Refused("systemd does not run this server", 69)
    return found


def systemd(*words: str, **how: bool) -> int:
    return run([program(), *words], {}, quiet=how.get("quiet", False))


# ---------- logs for a support bundle: a tar on our output, for whoever listens ----------

SUPPORT_FILE = 32 * 1024 * 1024  # of one file; of a longer one its end
SUPPORT_FILES, SUPPORT_DEEP = 4000, 8
SUPPORT_ROOM = 4 * 1024**3  # bytes that have to be free for what msnpureport writes
DEVICE_S = 900.0
MSNPUREPORT = (
    "/usr/local/Ascend/driver/tools/msnpureport", "/usr/local/bin/msnpureport", "/usr/local/sbin/msnpureport",
    "/usr/bin/msnpureport",
)  # fmt: skip
SUPPORT = {
    "hccn": ["/etc/hccn.conf"],
    "seclog": ["/var/log/ascend_seclog"],
    "plog": ["/root/ascend/log", "/home/" + USER + "/ascend/log"],
}  # fmt: skip


def support(what: str) -> "typing.Callable[..., int]":
    """An action that hands out the files of fixed places."""

    def give(_attempt: str, since: str, mb: str) -> int:
        with tarfile.open(fileobj=sys.stdout.buffer, mode="w|", format=tarfile.PAX_FORMAT) as tar:
            return give_files(tar, SUPPORT[what], 0 if what in ("hccn", "seclog") else int(since), int(mb))

    return give


def give_files(tar: "tarfile.TarFile", places: "list[str]", since: int, mb: int) -> int:
    """Newest first, until so much was given; 69 where no place is there."""
    found = []  # type: typing.List[typing.Tuple[float, str, typing.List[str]]]
    there = False
    for place in places:
        try:
            descriptor = open_way(place.strip("/").split("/"))
        except OSError:
            continue
        there = True
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            found += [(mtime, place, way) for mtime, way in files_below(descriptor, [], 0) if mtime >= since]
        else:
            found.append((0.0, place, []))
        os.close(descriptor)
    left = mb * 1024 * 1024
    for _mtime, place, way in sorted(found, key=lambda one: -one[0])[:SUPPORT_FILES]:
        if left <= 0:
            break
        left -= give_file(tar, place, way, left)
    return 0 if there else 69


def open_way(parts: "list[str]") -> int:
    """A descriptor of what lies there, no part of the way being a link. Raises OSError."""
    at = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for n, part in enumerate(parts, start=1):
        more = os.O_NONBLOCK if n == len(parts) else os.O_DIRECTORY
        try:
            inner = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | more, dir_fd=at)
        finally:
            os.close(at)
        at = inner
    return at


def files_below(folder: int, way: "list[str]", depth: int) -> "typing.Iterator[tuple[float, list[str]]]":
    for name in sorted(os.listdir(folder)):
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
                yield found.st_mtime, [*way, name]
            elif stat.S_ISDIR(found.st_mode) and depth < SUPPORT_DEEP:
                inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
                try:
                    yield from files_below(inner, [*way, name], depth + 1)
                finally:
                    os.close(inner)
        except OSError:
            continue


def give_file(tar: "tarfile.TarFile", place: str, way: "list[str]", most: int) -> int:
    """Put the end of a file into the tar; how many bytes. What has gone or is no plain file by now is left out: a
    second name might be another's file."""
    try:
        descriptor = open_way(place.strip("/").split("/") + way)
    except OSError:
        return 0
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            return 0
        size = min(found.st_size, most, SUPPORT_FILE)
        file.seek(found.st_size - size)
        told = tarfile.TarInfo("/".join(place.strip("/").split("/") + way).encode("utf-8", "replace").decode())
        told.size, told.mtime = size, int(found.st_mtime)
        told.pax_headers = {"cut": str(found.st_size - size)}
        tar.addfile(told, Exactly(file, size))
    return size


class Exactly:
    """Reads just so many bytes, whatever becomes of the file meanwhile: zeros stand for what has gone."""

    def __init__(self, file: "typing.IO[bytes]", size: int) -> None:
        self.file, self.left = file, size

    def read(self, n: int = -1) -> bytes:
        wanted = self.left if n < 0 else min(n, self.left)
        data = self.file.read(wanted)
        self.left -= wanted
        return data + b"\0" * (wanted - len(data))


def give_device(_attempt: str, since: str, mb: str) -> int:
    """Export the logs of the devices into a folder of our own, hand them out, and take the folder away."""
    program = next((path for path in MSNPUREPORT if is_program(path)), "")
    if not program:
        raise Refused("this server has no msnpureport", 69)
    must_be_roots(program)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: sys.exit(128 + number))  # so that the folder goes
    with only_one("support.lock", "device logs are being exported for another bundle"):
        for name in os.listdir(OWN):  # of a run that was cut off
            if name.startswith("support-"):
                shutil.rmtree(OWN + "/" + name, ignore_errors=True)
        if shutil.disk_usage(OWN).free < SUPPORT_ROOM:
            raise Refused("the disk has less than 4 GiB free, and device logs are large", NO_ROOM)
        folder = tempfile.mkdtemp(prefix="support-", dir=OWN)
        try:
            problem = exported(program, folder)
            with tarfile.open(fileobj=sys.stdout.buffer, mode="w|", format=tarfile.PAX_FORMAT) as tar:
                code = give_files(tar, [folder], 0, int(mb))
            if problem:
                raise Refused(problem, 1)
            return code
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def exported(program: str, folder: str) -> str:
    """Run it there; what went wrong, '' for nothing. Ended where it takes too long, or who asked has gone."""
    process = subprocess.Popen(
        [program], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT,
        cwd=folder, start_new_session=True,
    )  # fmt: skip
    until, problem = time.monotonic() + DEVICE_S, ""
    try:
        while process.poll() is None and not problem:
            time.sleep(0.1)
            if time.monotonic() > until:
                problem = "msnpureport did not end in " + str(int(DEVICE_S)) + " s"
            elif is_pipe(0) and select.select([0], [], [], 0)[0] and os.read(0, 4096) == b"":
                problem = "nobody waits for it any more"
            elif shutil.disk_usage(folder).free < SUPPORT_ROOM // 4:
                problem = "msnpureport was ended, for it filled the disk"
    finally:
        end_rest(process.pid)
    code = process.wait() if not problem else 0
    return problem or ("msnpureport ended with code " + str(code) if code else "")


INSIDE = {
    "npu-holders": say_holders,
    "stop-exporters": stop_exporters,
    "start-exporters": start_exporters,
    "engine-unit": put_unit,
    "engine-start": start_unit,
    "engine-tidy": tidy_unit,
    "engine-remove": remove_unit,
    "support-hccn": support("hccn"),
    "support-seclog": support("seclog"),
    "support-plog": support("plog"),
    "support-device": give_device,
}  # type: typing.Dict[str, typing.Callable[..., int]]

# ---------- running ----------


def run(
    command: "list[str]", more: "dict[str, str]", to_its_end: bool = False, quiet: bool = False, answer: bytes = b""
) -> int:
    """Run it in a session of its own until it ends; the caller ends it by words on our input, or by going away: that
    alone does not end what is to run `to_its_end`, for half a firmware is worse than one that nobody waits for."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE if answer else subprocess.DEVNULL,
        stdout=subprocess.PIPE if to_its_end else subprocess.DEVNULL if quiet else None,
        stderr=subprocess.STDOUT if to_its_end or quiet else None,
        env=dict(ENVIRONMENT, **more),
        cwd="/",
        start_new_session=True,
        close_fds=True,
    )
    if process.stdin:
        try:
            process.stdin.write(answer)
            process.stdin.close()
        except BrokenPipeError:
            pass  # it asked nothing and is over
    output, watched, kill_at = process.stdout, is_pipe(0) and not quiet, float("inf")
    by_words = watched or to_its_end  # then the same rung may come from sudo as a signal, too
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: None if by_words else tell(process.pid, number))
    while process.poll() is None:
        ready = select.select([0] * watched + ([output] if output else []), [], [], 0.05)[0]
        if output in ready and not pass_on(output):
            output = None  # it has closed it
        heard = os.read(0, 4096) if 0 in ready else None
        if heard == b"":  # who asked is gone
            watched = False
            if not to_its_end:
                kill_at = time.monotonic() + PATIENCE_S
                tell(process.pid, signal.SIGTERM)
        for word in heard.split() if heard else ():
            tell(process.pid, SIGNALS.get(word, signal.SIGTERM))
        if time.monotonic() >= kill_at:
            tell(process.pid, signal.SIGKILL)
    end_rest(process.pid)
    while output and select.select([output], [], [], 0)[0] and pass_on(output):
        pass
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def pass_on(output: "typing.IO[bytes]") -> bool:
    """Print what the program has printed, where somebody listens still; False when it will print no more."""
    data = left = os.read(output.fileno(), 65536)
    try:
        while left and not DEAF:
            if not select.select([], [1], [], DEAF_S)[1]:
                DEAF.append(1)  # who listens has stopped to: half a firmware must not wait for that
                break
            left = left[os.write(1, left[: select.PIPE_BUF]) :]
    except OSError:
        pass  # nobody listens any more: it goes on all the same
    return bool(data)


def is_pipe(descriptor: int) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    except OSError:
        return False


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
