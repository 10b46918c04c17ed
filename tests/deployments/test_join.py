"""The pasted command on another host, against a real console: join, repair, work, leave; and what is refused."""

import html
import json
import os
import re
import shutil
import signal
import subprocess
import tarfile
import time
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path

import pytest
import redis

from tests.deployments.joining import OLD_PYTHON, Browser, Host
from tests.waiting import until
from tests.whole import Whole


@pytest.fixture(scope="module")
def console(tmp_path_factory):
    whole = Whole(tmp_path_factory.mktemp("console"), demo_servers=0)
    yield whole
    whole.stop()


@pytest.fixture(scope="module")
def browser(console):
    return Browser(console)


@pytest.fixture
def host():
    made = Host()
    yield made
    made.close()


def test_the_pasted_command_brings_a_server_online_that_works_repairs_and_leaves(console, browser, host):
    page, command = browser.command("kp-07", rack="A1", labels="env=prod")
    assert "Command copied" in browser.words(page)
    began = time.monotonic()
    joined = host.run(command)
    assert joined.returncode == 0, joined.stdout + joined.stderr
    assert time.monotonic() - began < 60
    assert "has joined the console and is online" in joined.stdout
    until(lambda: "Open kp-07" in browser.words(page), 30)
    assert (host.agent / "etc/config.json").stat().st_mode & 0o777 == 0o600

    token = console.token()
    job = console.call("/jobs", token, {"kind": "check", "server": "kp-07"})
    until(lambda: console.call(f"/jobs/{job['id']}", token)["state"] in ("succeeded", "failed"), 60)

    # Run again it repairs: a broken environment, a killed keeper; the credentials stay.
    before = (host.agent / "etc/config.json").read_text()
    shutil.rmtree(host.agent / "venv")
    (host.agent / "current/lib/deployments/agent/link.py").write_text("broken")
    for pid in host.pids():
        os.kill(pid, signal.SIGKILL)
    again = host.run(command)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "credentials that are there are kept" in again.stdout
    assert (host.agent / "etc/config.json").read_text() == before
    assert sum("deployments.agent.worker" in line for line in host.pids().values()) == 1
    assert "runs" in host.ctl("status").stdout

    left = host.ctl("leave")
    assert left.returncode == 0, left.stdout + left.stderr
    assert "has left the console" in left.stdout
    assert not host.agent.exists()
    assert until(lambda: not host.pids(), 5)
    # Its credentials are gone with it.
    config = json.loads(before)
    with pytest.raises(redis.AuthenticationError):
        redis.Redis.from_url(config["redis_url"]).ping()
    # Its page says so until it joins again, and the history has both.
    page = "/servers/kp-07/"
    assert "has left the console" in browser.get(page)
    _page, command = browser.command("kp-07")
    assert host.run(command).returncode == 0
    assert "has left the console" not in browser.get(page)
    changes = console.call(f"{page}history", console.token())["changes"]
    assert [row["after"] for row in changes if row["field"] == "server"][:2] == ["rejoined", "left"]
    assert host.ctl("leave").returncode == 0


def test_the_console_decommissions_a_server_whose_agent_removes_itself(console, browser, host):
    _page, command = browser.command("kp-09")
    joined = host.run(command)
    assert joined.returncode == 0, joined.stdout + joined.stderr
    token = console.token()
    until(lambda: (console.call("/servers/kp-09", token)["facts"] or {}).get("install"), 30)
    told = console.call("/servers/kp-09", token)["facts"]["install"]
    assert told == {"prefix": str(host.agent), "removes_itself": True}
    config = json.loads((host.agent / "etc/config.json").read_text())
    path, _text = browser.send("/servers/kp-09/decommission", confirm="kp-09", reason="sold")
    assert path == "/servers/kp-09/decommission", "it waits for the goodbye"
    until(lambda: console.call("/servers/kp-09", token)["decommissioned_at"], 30)
    until(lambda: not host.agent.exists() and not host.pids(), 15)
    with pytest.raises(redis.AuthenticationError):
        redis.Redis.from_url(config["redis_url"]).ping()
    changes = console.call("/servers/kp-09/history", token)["changes"]
    assert ("agent_removed", "removed") in [(row["field"], row["after"]) for row in changes]
    assert "sold" in browser.get("/servers/gone/")
    # It can come back under its name, with its history.
    _page, command = browser.command("kp-09")
    assert host.run(command).returncode == 0
    assert console.call("/servers/kp-09", token)["decommissioned_at"] is None
    assert host.ctl("leave").returncode == 0


def test_the_keeper_starts_a_killed_agent_again_and_stop_ends_it(browser, host):
    _page, command = browser.command("kp-08")
    assert host.run(command).returncode == 0
    agent = int((host.agent / "state/agent.lock").read_text())
    os.kill(agent, signal.SIGKILL)
    until(lambda: int((host.agent / "state/agent.lock").read_text() or 0) not in (0, agent), 30)
    until(lambda: host.ctl("status").returncode == 0, 30)
    assert host.ctl("stop").returncode == 0
    assert not host.pids()
    assert host.ctl("status").returncode == 3
    assert host.ctl("start").returncode == 0
    until(lambda: host.ctl("status").returncode == 0, 30)
    assert host.ctl("leave").returncode == 0


def test_credentials_are_handed_out_once_and_a_new_command_makes_new_ones(browser, host):
    _page, command = browser.command("kp-09")
    assert host.run(command).returncode == 0
    first = json.loads((host.agent / "etc/config.json").read_text())
    thief = Host()
    try:
        stolen = thief.run(command)
        assert stolen.returncode == 1
        assert "handed out only once" in stolen.stderr
        assert not thief.pids()
    finally:
        thief.close()
    (host.agent / "etc/config.json").unlink()
    _page, command = browser.command("kp-09")
    again = host.run(command)
    assert again.returncode == 0, again.stderr
    second = json.loads((host.agent / "etc/config.json").read_text())
    assert second["server_id"] == first["server_id"]
    assert second["redis_url"] != first["redis_url"] and second["key"] != first["key"]


def test_a_forged_token_and_an_altered_script_run_nothing(browser, host):
    _page, command = browser.command("kp-10")
    token = command.split("/join/")[1].split()[0]
    forged = host.run(command.replace(token, "x" + token[1:]))
    assert "knows no such command" in forged.stdout
    digest = command.split("echo '")[1][:64]
    altered = host.run(command.replace(digest, sha256(b"another").hexdigest()))
    assert altered.stdout.startswith("#!/bin/sh")  # shown, not run
    assert not host.agent.exists()


def test_an_altered_bundle_is_thrown_away(browser, host):
    page, command = browser.command("kp-11")
    script = host.run(command.split("&& if")[0] + '&& cat "$f"').stdout
    line = next(line for line in script.splitlines() if line.startswith("BUNDLE_SHA256="))
    (host.folder / "join.sh").write_text(script.replace(line, f"BUNDLE_SHA256={'0' * 64}"))
    stopped = host.run(f"sh {host.folder}/join.sh")
    assert stopped.returncode == 1
    assert "does not have the digest" in stopped.stderr
    assert not (host.agent / "code").exists() or not list((host.agent / "code").iterdir())
    assert "Digest" in browser.words(page)


def test_each_thing_in_the_way_is_a_sentence(browser, host):
    page, command = browser.command("kp-12")
    unusable = host.run(command, PYTHON="/bin/true2")
    assert unusable.returncode == 1
    assert "no working Python 3.10" in unusable.stderr
    assert "PYTHON=/bin/true2" in browser.words(page)
    for prefix in ("/etc", "relative", "/tmp/a b", "/proc/none"):
        refused = host.run(command, PREFIX=prefix)
        assert refused.returncode == 1
        assert "PREFIX" in refused.stderr
    assert "Permission" in browser.words(page)
    chinese = host.run(command, PYTHON="/bin/true2", LANG="zh_CN.UTF-8")
    assert "不是可用的 Python" in chinese.stderr


@pytest.mark.parametrize("way", ["wget", "python3"])
def test_without_curl_there_are_other_ways(browser, host, way):
    page, _first = browser.command("kp-17")
    found = [
        html.unescape(text) for text in re.findall(r'<pre class="command"[^>]*>(.*?)</pre>', browser.get(page), re.S)
    ]
    command = next(text for text in found if f"&& {way}" in text)
    path = bin_without_python(host.folder / "bin", ("curl",) if way == "wget" else ("curl", "wget"))
    (host.folder / "bin" / "python3").symlink_to("/usr/bin/python3")
    joined = host.run(command, PATH=path)
    assert joined.returncode == 0, joined.stdout + joined.stderr


def test_nothing_is_imported_from_where_the_operator_stands(browser, host):
    trap = f"open('{host.folder}/trapped', 'w')\n"
    for name in ("ctypes", "ssl", "redis", "deployments", "urllib", "venv", "argparse"):
        (host.folder / f"{name}.py").write_text(trap)
    _page, command = browser.command("kp-18")
    joined = host.run(command)
    assert joined.returncode == 0, joined.stdout + joined.stderr
    assert host.ctl("status").returncode == 0
    assert host.ctl("leave").returncode == 0
    assert not (host.folder / "trapped").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="as root only it can become nobody")
def test_without_root_and_sudo_it_says_what_to_do(browser, host):
    page, command = browser.command("kp-19")
    stopped = host.run(command, PREFIX="", PATH=bin_without_python(host.folder / "bin", ("sudo",)))
    assert stopped.returncode == 1
    assert "there is no sudo here" in stopped.stderr
    assert "no sudo" in browser.words(page)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small disk")
def test_a_full_disk_is_a_sentence(browser, host):
    host.agent.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m,mode=777", "none", host.agent]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        page, command = browser.command("kp-21")
        stopped = host.run(command)
        assert stopped.returncode == 1
        assert "less than 300 MB free" in stopped.stderr
        assert "Disk" in browser.words(page)
    finally:
        subprocess.run(["umount", host.agent], check=True)


def bin_without_python(folder, other=()):
    """A PATH with every program of this machine but Python."""
    folder.mkdir()
    for place in ("/usr/bin", "/bin", "/usr/sbin"):
        for program in Path(place).iterdir():
            unwanted = "python" in program.name or program.name in other
            if not unwanted and not (folder / program.name).is_symlink():
                (folder / program.name).symlink_to(program)
    return str(folder)


def test_without_a_python_it_says_what_to_do(browser, host):
    page, command = browser.command("kp-13")
    stopped = host.run(command, PATH=bin_without_python(host.folder / "bin"))
    assert stopped.returncode == 1
    assert "manage.py runtimes add" in stopped.stderr
    assert "Python: there is none" in browser.words(page)


@pytest.mark.skipif(not OLD_PYTHON.is_dir(), reason="needs a Python 3.10 of pyenv")
def test_a_server_with_python_3_10_joins(browser, host):
    own = host.folder / "python"
    shutil.copytree(OLD_PYTHON, own, ignore=shutil.ignore_patterns(*UNNEEDED), symlinks=True)
    _page, command = browser.command("kp-16")
    # This build looks for its library where it was made, which only root may read.
    joined = host.run(command, PYTHON=f"{own}/bin/python3.10", LD_LIBRARY_PATH=f"{own}/lib")
    assert joined.returncode == 0, joined.stdout + joined.stderr
    assert "Using Python 3.10" in joined.stdout


@pytest.mark.skipif(not Path("/usr/lib/python3.11/os.py").is_file(), reason="needs a Python that can be moved")
def test_a_server_without_python_gets_one_from_the_console(console, browser, host, tmp_path):
    archive = tmp_path / "cpython-3.11.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add("/usr/bin/python3.11", "python/bin/python3.11")
        link = tarfile.TarInfo("python/bin/python3")
        link.type, link.linkname = tarfile.SYMTYPE, "python3.11"
        tar.addfile(link)
        tar.add("/usr/lib/python3.11", "python/lib/python3.11", filter=needed)
    digest = sha256(archive.read_bytes()).hexdigest()
    assert "Python 3.11 for" in console.command("runtimes", "add", str(archive), "--sha256", digest)
    try:
        assert archive.name in browser.get("/servers/join/")
        _page, command = browser.command("kp-14")
        joined = host.run(command, PATH=bin_without_python(host.folder / "bin"))
        assert joined.returncode == 0, joined.stdout + joined.stderr
        assert "Using Python 3.11" in joined.stdout
        assert all(str(host.folder) in line.split()[0] or "/bin/sh" in line for line in host.pids().values())
    finally:
        console.command("runtimes", "remove", os.uname().machine)


UNNEEDED = ("test", "site-packages", "dist-packages", "__pycache__", "idlelib", "tkinter", "config-3.*", "*.a", "share")


def needed(entry):
    name = Path(entry.name).name
    return None if any(fnmatch(name, pattern) for pattern in UNNEEDED) else entry


def test_leave_waits_for_jobs_unless_told_otherwise(console, browser, host):
    _page, command = browser.command("kp-15")
    assert host.run(command).returncode == 0
    attempt = host.agent / "state/attempts/a9-1-00000001"
    # A runner is whoever holds the attempt's lock; this one is a plain process in a session of its own.
    code = (
        "import fcntl,json,os,sys,time; from deployments.agent import processes, spool; from pathlib import Path; "
        f"f=Path('{attempt}'); f.mkdir(parents=True); h=open(f/'lock','w'); fcntl.flock(h,fcntl.LOCK_EX); "
        "(f/'pid').write_text(json.dumps(processes.identity(os.getpid())._asdict())); (f/'lines').write_text(''); "
        "time.sleep(60)"
    )
    host.run(f'PYTHONPATH={host.agent}/current/lib setsid {host.agent}/venv/bin/python -c "{code}" >/dev/null 2>&1 &')
    until(lambda: (attempt / "lines").exists(), 30)
    refused = host.ctl("leave")
    assert refused.returncode == 1
    assert "1 jobs run here" in refused.stdout
    assert host.ctl("status").returncode == 0
    assert host.ctl("leave --now").returncode == 0
    assert until(lambda: not host.pids(), 5)
