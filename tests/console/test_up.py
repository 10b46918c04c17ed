"""`manage.py up` and `down` as an operator meets them: real processes, real Valkey, a folder of their own."""

import contextlib
import http.cookiejar
import json
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
import redis

from console import runners
from tests.conftest import free_port

ROOT = Path(__file__).resolve().parent.parent.parent
pytestmark = pytest.mark.slow
# Says as a runner does who it is, lives in a session of its own, and ends when it is asked to cancel.
RUNNER = """
    import fcntl, json, os, sys, time
    from pathlib import Path
    from deployments.agent import processes
    folder = Path(sys.argv[1])
    lock = open(folder / "lock", "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    (folder / "pid").write_text(json.dumps(processes.identity(os.getpid())._asdict()))
    while not (folder / "cancel").exists() or "--deaf" in sys.argv:
        time.sleep(0.05)
"""


class Console:
    """One VAR_DIR and PORT. `up()` starts a process; `end()` kills what is left."""

    def __init__(self, var):
        self.var = var
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/"
        self.started = []

    def environment(self, **variables):
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name not in ("DATABASE_URL", "REDIS_URL", "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PYTHON")
        }
        mine = {"VAR_DIR": str(self.var), "PORT": str(self.port), "DEMO_SERVERS": "2", "REDIS_PORT": "", "BIND": ""}
        return inherited | mine | variables

    def up(self, command=(sys.executable, "manage.py", "up"), **variables):
        self.output = self.var.parent / f"up-{len(self.started)}.txt"
        with self.output.open("w") as file:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=self.environment(**variables),
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def manage(self, *arguments, **variables):
        """Exit code and everything said by one command that ends."""
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=self.environment(**variables),
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done.returncode, done.stdout + done.stderr

    def said(self):
        return self.output.read_text()

    def get(self, path):
        """(status, body), 0 while nothing answers."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=5) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def until(self, is_so, within_s=60.0):
        """Seconds until `is_so` gives something true; fails with what was said."""
        began = time.monotonic()
        while not is_so():
            if time.monotonic() - began > within_s:
                raise AssertionError(f"not so within {within_s} s:\n{self.said()}")
            time.sleep(0.05)
        return time.monotonic() - began

    def processes(self):
        """Pids of all that lives with this VAR_DIR in its environment or its arguments."""
        mark = str(self.var).encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                known = (folder / "environ").read_bytes() + (folder / "cmdline").read_bytes()
                if mark in known and "Z" not in state_of(folder):
                    found.append(int(folder.name))
        return found

    def end(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.wait()
        deadline = time.monotonic() + 5
        while (left := self.processes()) and time.monotonic() < deadline:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)


def state_of(folder):
    return (folder / "stat").read_text().rpartition(")")[2].split()[0]


@pytest.fixture
def console(tmp_path):
    made = Console(tmp_path / "var")
    yield made
    made.end()


@pytest.fixture
def runner(console):
    """Starts what holds an attempt as a runner does; gives its process."""

    def start(attempt="a12-1-0f3c5a7e", *words):
        folder = console.var / "agent" / "attempts" / attempt
        folder.mkdir(parents=True)
        (folder / "spec.json").write_text("{}")
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(RUNNER), folder, *words],
            cwd=ROOT,
            env=console.environment(),
            start_new_session=True,
        )
        console.started.append(process)
        console.until(lambda: runners.alive(console.var), 10)
        return process

    console.output = Path("/dev/null")
    return start


def sign_in(console, password):
    """Where a browser ends that signs in as admin."""
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
    page = opener.open(console.url + "login/", timeout=10).read().decode()
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)[1]
    form = {"username": "admin", "password": password, "csrfmiddlewaretoken": token}
    return opener.open(console.url + "login/", urllib.parse.urlencode(form).encode(), timeout=10).geturl()


def is_ready(console):
    return console.get("readyz")[0] == 200


def test_one_command_starts_everything_one_signal_ends_it_and_state_survives(console):
    process = console.up()
    console.until(lambda: is_ready(console))
    assert console.url in console.said()
    password = re.search(r"admin .*?password: (\S+)", console.said())[1]
    assert sign_in(console, password) == console.url

    connection = redis.Redis.from_url((console.var / "redis_url").read_text())
    console.until(lambda: connection.hlen("fleet:now") == 3)
    now = [json.loads(value) for value in connection.hvals("fleet:now")]
    assert sorted(entry["simulated"] for entry in now) == [False, True, True]
    console.until(lambda: all(json.loads(value)["state"] == "live" for value in connection.hvals("fleet:now")))
    logs = {path.stem for path in (console.var / "log").glob("*.log")}
    assert logs >= {"valkey", "web", "ingest", "scheduler", "worker", "agent", "demo"}

    code, words = console.manage("up")
    assert code == 1
    assert words.strip().startswith(f"The console of {console.var} runs already (process {process.pid}, {console.url})")
    assert len(words.strip().splitlines()) == 1

    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    assert console.processes() == []
    assert "job runner" not in console.said()

    again = console.up()
    console.until(lambda: console.get("login/")[0] == 200)  # how fast: tests/benchmarks/bench_whole.py
    assert "password" not in console.said()
    console.until(lambda: is_ready(console))
    assert sign_in(console, password) == console.url
    code, words = console.manage("down")
    assert (code, words) == (0, "The console has ended.\n")
    assert again.wait(5) == 0
    assert console.processes() == []


def test_a_killed_console_takes_its_parts_along(console):
    process = console.up()
    console.until(lambda: "Ready" in console.said())
    console.until(lambda: len(console.processes()) >= 10)
    process.kill()
    process.wait()
    assert console.until(lambda: console.processes() == [], 10) < 10


def test_runners_go_on_and_are_named_until_all_are_ended(console, runner):
    job = runner()
    process = console.up()
    console.until(lambda: "Ready" in console.said())
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0
    assert console.processes() == [job.pid]
    assert "make down ALL=1" in console.said()
    name = json.loads((console.var / "agent" / "config.json").read_text())["name"]
    assert f"job 12  attempt a12-1-0f3c5a7e  on {name}  pid {job.pid}" in console.said()

    code, words = console.manage("down")
    assert code == 0
    assert "No console runs" in words
    assert f"pid {job.pid}" in words
    assert job.poll() is None

    code, words = console.manage("down", "--all")
    assert code == 0
    assert "Ending 1 job runner" in words
    assert job.wait(5) == 0
    assert console.processes() == []


def test_a_runner_that_does_not_end_is_killed(console, runner, monkeypatch):
    job = runner("a7-2-00000001", "--deaf")
    monkeypatch.setattr(runners, "CANCEL_S", 0.3)
    (left,) = runners.end(runners.alive(console.var))
    assert (left.attempt, left.job, left.pid) == ("a7-2-00000001", "7", job.pid)
    assert job.wait(5) == -signal.SIGKILL


REMOVE = """
from console.models import User
from deployments.services import enrol
enrol.remove_demo(by=User.objects.get(username="admin"))
"""


def demo_processes(console):
    lines = (Path(f"/proc/{pid}/cmdline") for pid in console.processes())
    return [path.parent.name for path in lines if b"deployments.demo" in path.read_bytes()]


def test_a_removed_demo_ends_at_once_and_stays_away(console):
    process = console.up()
    console.until(lambda: demo_processes(console))
    connection = redis.Redis.from_url((console.var / "redis_url").read_text())
    console.until(lambda: connection.hlen("fleet:now") == 3)
    code, words = console.manage("shell", "-c", REMOVE)
    assert code == 0, words
    console.until(lambda: not demo_processes(console), 10)
    console.until(lambda: connection.hlen("fleet:now") == 1, 10)
    time.sleep(1.5)  # longer than the pause after which a part is started again
    assert not demo_processes(console)
    assert process.poll() is None
    assert set(connection.acl_users()) == {"console", "default", "h1"}
    process.terminate()
    assert process.wait(20) == 0

    console.up()
    console.until(lambda: is_ready(console))
    assert connection.hlen("fleet:now") == 1
    assert not demo_processes(console)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_make_up_ends_with_everything_whatever_ends_make(console, number):
    venv = Path(sys.prefix)
    make = console.up(["make", "up", f"VENV={venv}"], DEMO_SERVERS="0")
    console.until(lambda: "Ready" in console.said(), 60)
    assert not (console.var / "log" / "demo.log").exists()
    if number == signal.SIGINT:
        os.killpg(make.pid, number)  # as a terminal does
    else:
        make.send_signal(number)
    make.wait(20)
    console.until(lambda: console.processes() == [], 15)


def check_refused(console, *said, **variables):
    """`make up` with these variables is answered in one sentence that holds each of `said`; the sentence."""
    code, words = console.manage("up", **variables)
    assert code == 1
    assert len(words.strip().splitlines()) == 1, words
    for part in said:
        assert part in words
    assert not (console.var / "run" / "plan.json").exists()
    return words


def test_a_port_in_use_is_said_before_anything_starts(console):
    with socket.socket() as other:
        other.bind(("127.0.0.1", console.port))
        other.listen()
        check_refused(console, f"PORT={console.port} is in use", "make up PORT=")


def test_an_address_of_another_machine_is_refused(console):
    check_refused(console, "BIND=192.0.2.7 is not an address of this machine", BIND="192.0.2.7")


def test_a_folder_that_cannot_be_written_is_refused(console, tmp_path):
    (tmp_path / "file").write_text("")
    check_refused(console, "Set VAR_DIR to a folder of this user", VAR_DIR=str(tmp_path / "file" / "var"))


def test_a_redis_that_does_not_answer_is_refused(console):
    port = free_port()
    check_refused(console, "REDIS_URL: no Redis answers", f"127.0.0.1:{port}", REDIS_URL=f"redis://127.0.0.1:{port}/0")


def test_a_wrong_password_of_redis_is_refused_and_not_repeated(console, own_valkey):
    url = f"redis://default:geheim@127.0.0.1:{own_valkey.port}/0"
    assert "geheim" not in check_refused(console, "refuses the user or password", REDIS_URL=url)


def test_a_redis_user_without_the_right_is_refused(console, own_valkey):
    own_valkey.client().execute_command("ACL", "SETUSER", "weak", "on", ">pw", "~*", "&*", "+@all", "-acl")
    url = f"redis://weak:pw@127.0.0.1:{own_valkey.port}/0"
    check_refused(console, "may not manage users", REDIS_URL=url)


def test_a_database_that_does_not_answer_is_refused(console):
    url = f"postgres://u:geheim@127.0.0.1:{free_port()}/console"
    assert "geheim" not in check_refused(console, "DATABASE_URL: the database at 127.0.0.1:", DATABASE_URL=url)


def test_a_file_that_is_no_database_is_refused(console, tmp_path):
    (tmp_path / "notes.txt").write_text("not a database, but long enough to be taken for one" * 100)
    check_refused(console, "DATABASE_URL: the database at", DATABASE_URL=f"sqlite:///{tmp_path / 'notes.txt'}")


def test_a_redis_of_the_site_is_used_as_it_is(console, own_valkey):
    process = console.up(REDIS_URL=own_valkey.url)
    console.until(lambda: is_ready(console))
    connection = own_valkey.client()
    console.until(lambda: connection.hlen("fleet:now") == 3)
    assert {"h1", "demo"} <= set(connection.acl_users())
    assert not (console.var / "valkey").exists()
    process.terminate()
    assert process.wait(20) == 0
    assert connection.ping()
