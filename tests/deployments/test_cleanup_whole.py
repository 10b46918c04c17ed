"""From the page to a joined agent and back: look, tick, confirm; what was ticked is gone and the rest is not."""

import os
import re
import time

import pytest

from tests.deployments.joining import Browser, Host
from tests.waiting import until
from tests.whole import Whole

PAGE = "/servers/kp-50/cleanup"
OLD = time.time() - 40 * 24 * 3600


@pytest.fixture
def console(tmp_path_factory):
    whole = Whole(tmp_path_factory.mktemp("console"), demo_servers=0)
    yield whole
    whole.stop()


@pytest.fixture
def host():
    made = Host()
    yield made
    made.close()


def stack(root, name):
    """As an installation leaves it, long ago. The agent's account is another one than ours."""
    folder = root / name
    (folder / "venv").mkdir(parents=True)
    for file in ("activate", "venv/pyvenv.cfg"):
        (folder / file).write_text("x" * 50_000)
    owner = root.parent.stat()
    for path in (folder, *folder.rglob("*")):
        os.chown(path, owner.st_uid, owner.st_gid)
        os.utime(path, (OLD, OLD))
    return folder


def test_an_old_stack_goes_and_the_one_in_use_stays(console, host):
    browser, token = Browser(console), console.token()
    joined = host.run(browser.command("kp-50")[1])
    assert joined.returncode == 0, joined.stdout + joined.stderr
    until(lambda: console.call("/servers/kp-50", token)["facts"].get("stacks_root"), 60, 0.2)
    root = host.agent / "state" / "stacks"
    root.mkdir(exist_ok=True)
    os.chown(root, root.parent.stat().st_uid, root.parent.stat().st_gid)
    old, used = stack(root, "cpu-0.1"), stack(root, "cpu-0.2")
    (root / "current").symlink_to("cpu-0.2")

    assert browser.send(PAGE, do="look")[0] == PAGE
    told = until(lambda: (found := console.call("/servers/kp-50/cleanup", token))["look"] and found, 60, 0.3)
    stacks = [one for one in told["found"] if one["category"] == "stacks"]
    assert [one["path"] for one in stacks] == [str(old)] and stacks[0]["bytes"] >= 100_000
    page = browser.get(PAGE)
    assert str(old) in page and str(used) not in page

    look = re.search(r'name="look" value="(\d+)"', page)[1]
    _path, asked = browser.send(PAGE, do="ask", look=look, target=f"stacks:{old}")
    assert str(old) in asked and "Delete 1 thing" in asked and old.exists()
    path, _page = browser.send(PAGE, do="clean", look=look, target=f"stacks:{old}")
    number = int(re.fullmatch(r"/jobs/(\d+)/", path)[1])
    until(lambda: console.call(f"/jobs/{number}", token)["state"] in ("succeeded", "failed", "lost"), 60, 0.3)
    log = browser.get(f"/jobs/{number}/raw")
    assert console.call(f"/jobs/{number}", token)["state"] == "succeeded", log
    assert "Freed" in log and not old.exists() and (used / "activate").exists()
    assert sorted(entry.name for entry in root.iterdir()) == ["cpu-0.2", "current"]
