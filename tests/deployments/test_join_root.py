"""Joining as root: the root helper is installed, works for the agent's account, is repaired, and goes with it."""

import json
import os
import re
import secrets
import shutil
import subprocess
import tempfile
import urllib.error
from pathlib import Path

import pytest

from deployments.agent import root_install
from tests.deployments.joining import Browser, Host
from tests.waiting import until
from tests.whole import Whole

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it makes an account and a sudoers file")
SHUTDOWN = 'SHUTDOWN = ("/usr/sbin/shutdown", "/sbin/shutdown")'


@pytest.fixture(scope="module")
def console(tmp_path_factory):
    whole = Whole(tmp_path_factory.mktemp("console"), demo_servers=0)
    yield whole
    whole.stop()


@pytest.fixture
def host():
    """A host whose folder root alone can change, with an account of its own."""
    assert shutil.which("sudo") and shutil.which("visudo"), "install sudo"
    assert not root_install.SUDOERS.exists(), "a real agent has joined this machine"
    made = Host(root=True)
    shutil.rmtree(made.folder)
    made.folder = Path(tempfile.mkdtemp(prefix="joined-", dir="/opt"))
    made.folder.chmod(0o755)
    made.agent = made.folder / "agent"
    account = f"asc-{secrets.token_hex(3)}"
    made.env |= {"HOME": "/nonexistent", "PREFIX": str(made.agent), "AGENT_USER": account}
    yield made
    made.close()
    root_install.take_away(made.agent)
    subprocess.run(["userdel", account], check=False, capture_output=True)


def fact(console, token, name):
    return console.call(f"/servers/{name}", token)["facts"].get("root")


def state(console, token, job):
    return console.call(f"/jobs/{job['id']}", token)["state"]


def test_root_goes_through_the_helper_which_is_repaired_can_be_left_out_and_leaves(console, host):
    token, browser = console.token(), Browser(console)
    _page, command = browser.command("kp-31")
    joined = host.run(command)
    assert joined.returncode == 0, joined.stdout + joined.stderr
    assert "The root helper is installed" in joined.stdout
    helper = host.agent / "bin" / "root-helper"
    assert (
        str(helper) in root_install.SUDOERS.read_text() and host.env["AGENT_USER"] in root_install.SUDOERS.read_text()
    )
    until(lambda: fact(console, token, "kp-31") == "helper", 30)
    for pid in host.pids():
        assert Path(f"/proc/{pid}").stat().st_uid != 0, "nothing of the agent runs as root"

    # A restart that restarts nothing: the table's program is replaced before any job may ask for it.
    fake = host.agent / "bin" / "fake"
    fake.write_text("#!/bin/sh\nid -u\n")
    fake.chmod(0o755)
    whole = helper.read_text()
    assert SHUTDOWN in whole
    helper.write_text(whole.replace(SHUTDOWN, f'SHUTDOWN = ("{fake}",)'))
    job = console.call("/jobs", token, {"kind": "reboot", "server": "kp-31", "params": {"force": True}})
    until(lambda: state(console, token, job) in ("waiting_reboot", "failed"), 60)
    assert state(console, token, job) == "waiting_reboot"
    until(lambda: "waits for a restart" in host.ctl("status").stdout)
    assert host.ctl("leave").returncode == 1  # not while a job waits
    console.call(f"/jobs/{job['id']}/cancel", token, {})
    until(lambda: state(console, token, job) == "cancelled", 30)

    # Run again it repairs, also what somebody took away.
    root_install.SUDOERS.unlink()
    assert host.run(command).returncode == 0
    assert SHUTDOWN in helper.read_text() and root_install.SUDOERS.exists()

    # Without it everything else works, and the kinds that need root are refused in words.
    assert host.run(command, NO_ROOT_HELPER="1").returncode == 0
    assert not helper.exists() and not root_install.SUDOERS.exists()
    until(lambda: fact(console, token, "kp-31") == "none", 30)
    with pytest.raises(urllib.error.HTTPError) as refused:
        console.call("/jobs", token, {"kind": "reboot", "server": "kp-31"})
    error = json.loads(refused.value.read())["error"]
    assert refused.value.code == 409 and error["code"] == "no_root" and "kp-31" in error["what"]
    assert "Missing here, since they need root" in browser.get("/servers/kp-31/")
    by_hand = console.call(
        "/jobs", token, {"kind": "reboot", "server": "kp-31", "params": {"by_hand": True, "force": True}}
    )
    until(lambda: state(console, token, by_hand) == "waiting_reboot", 30)
    console.call(f"/jobs/{by_hand['id']}/cancel", token, {})
    until(lambda: state(console, token, by_hand) == "cancelled", 30)

    assert host.run(command).returncode == 0 and root_install.SUDOERS.exists()
    left = host.ctl("leave")
    assert left.returncode == 0, left.stdout + left.stderr
    assert not root_install.SUDOERS.exists() and not host.agent.exists()


def test_an_agent_that_root_installed_removes_itself_when_its_server_is_decommissioned(console, host):
    token, browser = console.token(role="administrator"), Browser(console)
    _page, command = browser.command("kp-34")
    assert host.run(command).returncode == 0
    for path in (host.agent, *host.agent.rglob("*")):  # root runs what lies here
        if not {"state", "log"} & set(path.relative_to(host.agent).parts) and path.name != "config.json":
            assert root_install.owned_by_root(path), path
    until(lambda: told(console, token, "kp-34").get("removes_itself"), 30)
    assert "removes its files and processes by itself" in browser.get("/servers/kp-34/decommission")
    console.call("/servers/kp-34/decommission", token, {"confirm": "kp-34"})
    until(lambda: console.call("/servers/kp-34", token)["decommissioned_at"], 40)
    fields = [one["field"] for one in console.call("/servers/kp-34/history", token)["changes"]]
    assert "agent_removed" in fields, "it said goodbye"
    until(lambda: not host.agent.exists() and not host.pids(), 30)
    assert not root_install.SUDOERS.exists()
    account = host.env["AGENT_USER"]
    until(lambda: subprocess.run(["id", account], capture_output=True, check=False).returncode != 0, 20)


def told(console, token, name):
    return console.call(f"/servers/{name}", token)["facts"].get("install") or {}


def test_the_pages_show_both_texts_before_and_the_tick_leaves_the_helper_out(console, host):
    browser = Browser(console)
    form = browser.get("/servers/join/")
    assert "NOPASSWD: /opt/ascend-console/bin/root-helper" in form
    assert "All that the agent&#x27;s account may do as root" in form
    page, command = browser.command("kp-32", no_root="1")
    assert "installs no root helper" in browser.get(page) and "NOPASSWD" not in browser.get(page)
    joined = host.run(command)
    assert joined.returncode == 0, joined.stdout + joined.stderr
    assert not (host.agent / "bin" / "root-helper").exists() and not root_install.SUDOERS.exists()
    assert re.search(r"online", joined.stdout)
    assert host.ctl("leave").returncode == 0


def test_below_a_folder_of_others_the_server_joins_without_it_and_says_so(console, host):
    host.folder.chmod(0o777)
    _page, command = Browser(console).command("kp-33")
    joined = host.run(command)
    assert joined.returncode == 0, joined.stdout + joined.stderr
    assert "no root helper was installed" in joined.stdout and "others may write there" in joined.stdout
    assert not root_install.SUDOERS.exists()
    assert host.ctl("leave").returncode == 0
