"""The root helper with a real account and a real sudo: what it takes, what it refuses, and that nothing of it stays."""

import json
import os
import pwd
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from deployments.agent import as_root, config, root_install
from tests.deployments.agent_bench import PROGRAM, AgentServer, ended, events, texts
from tests.waiting import until

IN_CI = bool(os.environ.get("CI"))
READY = os.geteuid() == 0 and shutil.which("sudo") and shutil.which("visudo") and Path("/etc/sudoers.d").is_dir()
needs_sudo = pytest.mark.skipif(
    not READY and not (IN_CI and os.geteuid() == 0), reason="needs root, an account of its own and sudo"
)
PYTHON = "/usr/bin/python3"  # that of the tests may lie in a folder which the account must not enter
PATHS = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
ATTEMPT = "a42-1-0f3c5a7e"


# ---------- with a real account and sudo ----------


class Place:
    """An installation for an account made for this test. Its reboot is a program of ours: nothing here restarts."""

    def __init__(self):
        self.account = f"asc-{secrets.token_hex(3)}"
        subprocess.run(["useradd", "--system", "--no-create-home", "--shell", "/bin/sh", self.account], check=True)
        self.entry = pwd.getpwnam(self.account)
        self.prefix = Path(tempfile.mkdtemp(prefix="root-helper-", dir="/opt"))
        self.prefix.chmod(0o755)
        (self.prefix / "bin").mkdir()
        self.fake = self.prefix / "bin" / "shutdown"
        self.helper = self.prefix / "bin" / "root-helper"
        self.sudoers = Path(f"/etc/sudoers.d/ascend-console-{self.account}")
        self.log = self.prefix / "root.log"

    def install(self, program):
        """As joining does, but with a sudoers file of its own and a `shutdown` that is this Python text."""
        self.fake.write_text(f"#!{PYTHON} -I\n{program}")
        self.fake.chmod(0o755)
        root_install.put(self.prefix, self.account)
        self.refit()

    def refit(self):
        text = self.helper.read_text()
        assert 'SHUTDOWN = ("/usr/sbin/shutdown", "/sbin/shutdown")' in text
        text = text.replace('SHUTDOWN = ("/usr/sbin/shutdown", "/sbin/shutdown")', f'SHUTDOWN = ("{self.fake}",)')
        text = re.sub(r'LOG = "[^"]+"', f'LOG = "{self.log}"', text).replace("PATIENCE_S = 5.0", "PATIENCE_S = 0.5")
        self.helper.write_text(text)

    def sudo(self, *words, **env):
        command = ["sudo", "-n", str(self.helper), *words]
        return subprocess.run(
            command, user=self.entry.pw_uid, group=self.entry.pw_gid, extra_groups=[], cwd="/", capture_output=True,
            text=True, timeout=30, stdin=subprocess.DEVNULL, env={"PATH": os.environ["PATH"], **env},
        )  # fmt: skip

    def close(self):
        root_install.take_away(self.prefix)
        shutil.rmtree(self.prefix, ignore_errors=True)
        subprocess.run(["userdel", self.account], check=False, capture_output=True)


@pytest.fixture
def place(monkeypatch):
    made = Place()
    monkeypatch.setattr(root_install, "SUDOERS", made.sudoers)
    yield made
    made.close()


@needs_sudo
def test_sudo_lets_the_account_do_what_the_table_says_as_root_and_nothing_else(place):
    place.install("import os, sys; print(os.geteuid(), sys.argv[1:], sorted(os.environ), os.getcwd())")
    done = place.sudo("reboot", ATTEMPT, LD_PRELOAD="/tmp/x.so", PYTHONPATH="/tmp", BASH_ENV="/tmp/x")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "0 ['-r', 'now'] ['HOME', 'LANG', 'PATH'] /\n"
    assert place.sudo("sh", "-c", "id").returncode == 2
    assert "there is no such action; there are: apt-driver-tools, " in place.sudo("rm").stderr
    assert place.sudo("reboot", "x; id").returncode == 2
    told = place.log.read_text()
    assert f"uid {place.entry.pw_uid}: runs reboot {ATTEMPT}" in told and "ended reboot with 0" in told
    assert "refused ['sh', '-c', 'id']" in told
    other = subprocess.run(
        ["sudo", "-n", "/bin/sh", "-c", "id"], user=place.entry.pw_uid, group=place.entry.pw_gid, extra_groups=[],
        capture_output=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert other.returncode != 0
    assert place.helper.stat().st_mode & 0o777 == 0o755 and place.helper.stat().st_uid == 0
    assert place.sudoers.stat().st_mode & 0o777 == 0o440


@needs_sudo
def test_it_leaves_only_by_the_program_that_root_put_beside_it(place, monkeypatch):
    place.install("")
    program = place.prefix / "bin" / "leave"
    assert not program.exists() and place.sudo("leave").returncode == 69
    program.write_text("#!/bin/sh\nid -u\n")
    program.chmod(0o757)
    assert place.sudo("leave").returncode == 69
    program.chmod(0o755)
    assert place.sudo("leave", "/etc").returncode == 2
    assert place.sudo("leave").stdout == "0\n"
    for name in root_install.RUN_BY_LEAVE:
        (place.prefix / name).mkdir(exist_ok=True)
    for module in ("code/a.py", "venv/site-packages/b.pth"):
        strange = place.prefix / module
        monkeypatch.setattr(root_install, "_is_roots", lambda path, strange=strange: path != strange)
        strange.parent.mkdir(exist_ok=True)
        strange.touch()
        root_install.put_leave(place.prefix)
        assert not program.exists(), module
    monkeypatch.setattr(root_install, "_is_roots", lambda path: True)
    root_install.put_leave(place.prefix)
    assert f'exec "{place.prefix}/bin/ascend-console" leave' in program.read_text()
    root_install.take_away(place.prefix)
    assert not program.exists() and not place.helper.exists()


@needs_sudo
def test_a_sudoers_file_that_visudo_refuses_is_never_put_there(place, monkeypatch):
    monkeypatch.setattr(root_install, "sudoers", lambda account, path: "this is no rule\n")
    with pytest.raises(root_install.NotInstalled, match="visudo"):
        root_install.put(place.prefix, place.account)
    assert not place.sudoers.exists() and not place.helper.exists()
    assert [one.name for one in Path("/etc/sudoers.d").iterdir() if one.name.startswith(".ascend")] == []


@needs_sudo
def test_below_a_folder_that_others_may_write_no_helper_is_installed(place):
    place.prefix.chmod(0o777)
    with pytest.raises(root_install.NotInstalled, match="others may write there"):
        root_install.put(place.prefix, place.account)
    assert not place.sudoers.exists() and not place.helper.exists()


@needs_sudo
def test_taking_it_away_leaves_nothing_and_spares_that_of_another_installation(place):
    place.install("pass")
    root_install.take_away(place.prefix / "other")
    assert place.sudoers.exists()
    root_install.take_away(place.prefix)
    assert not place.sudoers.exists() and not place.helper.exists()
    assert place.sudo("reboot", ATTEMPT).returncode != 0


# A `shutdown` that obeys nobody and leaves a child; both are root's.
STUBBORN = """
import os, signal, sys, time
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, frame: print('got', number, flush=True))
if os.fork():
    print('up', os.getpid(), flush=True)
end = time.time() + 60
while time.time() < end:
    time.sleep(.05)
"""


@pytest.fixture
def agent(place, tmp_path):
    """The agent of the account: its runner is started as that account, as the agent would be."""
    folder = Path(tempfile.mkdtemp(prefix="state-", dir=place.prefix))
    (place.prefix / "etc").mkdir()
    made = AgentServer(folder, "redis://127.0.0.1:1/0")
    copy_code(place.prefix / "code")
    path = place.prefix / "etc" / "config.json"
    path.write_text(made.config.path.read_text())
    made.config = config.load(path)
    for one in (folder, *folder.rglob("*"), path):
        os.chown(one, place.entry.pw_uid, place.entry.pw_gid)
    yield made
    made.close()


def copy_code(folder):
    """Our code and the tests' kinds, where the account can read them; it may not look into the checkout."""
    root = PROGRAM.parents[2]
    cached = shutil.ignore_patterns("__pycache__")
    for name in ("deployments", "monitoring/parsers", "tests/deployments/agent_kinds"):
        shutil.copytree(root / name, folder / name, ignore=cached)
    for name in ("monitoring/__init__.py", "tests/deployments/agent_program.py"):
        shutil.copy(root / name, folder / name)


def start(agent, place, **params):
    """Claim a job that restarts by root, and run it as the account; (folder, process)."""
    body = json.loads(agent.payload(kind="try_reboot"))
    body["params"] = {"by": "root", "after": ["print('after')"], **params}
    folder = agent.config.attempts / body["attempt"]
    folder.mkdir()
    (folder / "spec.json").write_text(json.dumps(body))
    os.chown(folder, place.entry.pw_uid, place.entry.pw_gid)
    process = subprocess.Popen(
        [PYTHON, str(place.prefix / "code/tests/deployments/agent_program.py"), "runner", str(folder),
         "--config", str(agent.config.path)],
        user=place.entry.pw_uid, group=place.entry.pw_gid, extra_groups=[], start_new_session=True, cwd="/",
        env={"PATH": PATHS, "TEST_TELL_S": "0", "TEST_RUNG_S": "0.4"},
    )  # fmt: skip
    agent.processes.append(process)
    return folder, process


def alive(place):
    """Processes that run the fake shutdown or the helper of this place."""
    found = []
    for one in Path("/proc").iterdir():
        if one.name.isdecimal():
            try:
                line = (one / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if str(place.prefix / "bin") in line:
                found.append(int(one.name))
    return found


@needs_sudo
def test_a_step_of_the_account_runs_as_root_and_waits_for_the_restart(agent, place):
    place.install("import os; print('root is', os.geteuid())")
    folder, process = start(agent, place)
    process.wait(20)
    assert texts(folder) == ["root is 0"]
    assert [event["e"] for event in events(folder)] == ["started", "step", "waiting_reboot"]
    assert f"runs reboot {folder.name}" in place.log.read_text()


@needs_sudo
def test_a_cancel_reaches_what_root_runs_rung_by_rung(agent, place):
    place.install(STUBBORN)
    folder, process = start(agent, place)
    until(lambda: (folder / "lines").exists() and any(text.startswith("up") for text in texts(folder)))
    (folder / "cancel").touch()
    process.wait(20)
    assert ended(folder)["state"] == "cancelled"
    assert [event["rung"] for event in events(folder, "cancelling")] == ["interrupt", "terminate", "kill"]
    assert texts(folder).count("got 2") == 2 and texts(folder).count("got 15") == 2  # parent and child
    until(lambda: not alive(place))


@needs_sudo
def test_when_the_runner_is_killed_root_runs_nothing_of_it_any_more(agent, place):
    place.install(STUBBORN)
    folder, process = start(agent, place)
    until(lambda: (folder / "lines").exists() and any(text.startswith("up") for text in texts(folder)))
    assert len(alive(place)) >= 3
    os.kill(process.pid, signal.SIGKILL)
    began = time.monotonic()
    until(lambda: not alive(place))
    assert time.monotonic() - began < 5


@needs_sudo
def test_a_deadline_ends_what_root_runs(agent, place):
    place.install(STUBBORN)
    folder, process = start(agent, place, reboot_s=0.5)
    process.wait(20)
    assert ended(folder)["state"] == "failed"
    assert "did not end within its 0.5 s" in ended(folder)["reason"][1]
    until(lambda: not alive(place))


@needs_sudo
def test_the_facts_say_whether_it_works(agent, place):
    ask = (
        "import sys; from pathlib import Path; from deployments.agent import as_root, config\n"
        f"print(as_root.state(config.load(Path({str(agent.config.path)!r}))))"
    )

    def said():
        return subprocess.run(
            [PYTHON, "-c", ask], user=place.entry.pw_uid, group=place.entry.pw_gid, extra_groups=[],
            capture_output=True, text=True, cwd="/", env={"PATH": PATHS, "PYTHONPATH": str(place.prefix / "code")},
        ).stdout.strip()  # fmt: skip

    assert said() == "none"
    root_install.put(place.prefix, place.account)
    assert said() == "helper"
    place.helper.write_text(place.helper.read_text() + "# of another version\n")
    assert said() == "old"
    place.sudoers.unlink()
    assert said() == "refused"
    assert as_root.state(agent.config) == "root"


def test_without_a_helper_the_step_fails_in_words(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    made = AgentServer(tmp_path, "redis://127.0.0.1:1/0")
    with pytest.raises(as_root.NoRoot) as refused:
        as_root.command(made.config, ["reboot", "{attempt}"], ATTEMPT)
    assert "has no root helper" in refused.value.text.en
    helper = as_root.helper(made.config)
    helper.parent.mkdir(exist_ok=True, parents=True)
    helper.touch()
    assert as_root.command(made.config, ["reboot", "{attempt}"], ATTEMPT) == [
        "sudo",
        "-n",
        str(helper),
        "reboot",
        ATTEMPT,
    ]
    helper.unlink()
