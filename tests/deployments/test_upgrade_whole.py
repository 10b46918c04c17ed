"""From a page to a server and back: agents of a real console are upgraded by it, and one is sent elsewhere."""

import json
import os
from pathlib import Path

import pytest

from deployments.agent import VERSION
from tests.deployments.joining import Browser, Host
from tests.waiting import until
from tests.whole import Whole

OLD = "0" * 16


@pytest.fixture(scope="module")
def console(tmp_path_factory):
    whole = Whole(tmp_path_factory.mktemp("console"), demo_servers=1)
    yield whole
    whole.stop()


@pytest.fixture
def host():
    """As root where tests are, with the agent's account another: it may not write what joining installed."""
    made = Host(root=True)
    if os.geteuid() == 0:
        made.env["AGENT_USER"] = "nobody"
    yield made
    made.close()


def age(host):
    """Make the installed agent one of an older version, in a folder of another name, and start it."""
    assert host.ctl("stop").returncode == 0
    code = (host.agent / "current").resolve()
    code.rename(code.with_name(OLD))
    (host.agent / "current").unlink()
    (host.agent / "current").symlink_to(f"code/{OLD}")
    module = host.agent / "current/lib/deployments/agent/__init__.py"
    module.write_text(module.read_text().replace(f'VERSION = "{VERSION}"', 'VERSION = "0.0.9"'))
    assert host.ctl("start").returncode == 0


def test_an_agent_is_upgraded_from_the_console_and_leaves_nothing_behind(console, host):
    browser, token = Browser(console), console.token()

    def agent():
        return next(one for one in console.call("/agents", token)["agents"] if one["server"] == "kp-50")

    _page, command = browser.command("kp-50")
    joined = host.run(command)
    assert joined.returncode == 0, joined.stdout + joined.stderr
    until(lambda: agent()["state"] == "current", 30)
    wanted = console.call("/agents", token)["console"]
    age(host)
    until(lambda: agent()["state"] == "behind", 30)
    assert agent()["version"] == "0.0.9" and agent()["code"] == OLD
    assert "Upgrade 1 agent…" in browser.get("/servers/agents/")
    states = {one["server"]: one["state"] for one in console.call("/agents", token)["agents"]}
    assert sorted(states.values()) == ["behind", "own", "own"]

    batch = console.call("/agents/upgrade", token, {})
    until(lambda: console.call(f"/batches/{batch['id']}", token)["state"] != "running", 90)
    done = console.call(f"/batches/{batch['id']}", token)
    log = [console.call(f"/jobs/{one['id']}", token) for one in done["members"]]
    assert done["state"] == "succeeded", log
    until(lambda: agent()["state"] == "current", 30)
    assert agent() == {**agent(), "version": VERSION, "code": wanted["code"]}
    said = host.ctl("status").stdout
    assert VERSION in said and wanted["code"] in said and "sent by the console" in said
    sent = host.agent / "state/code" / wanted["code"]
    if os.geteuid() == 0:
        assert sent.stat().st_uid == 65534 and (host.agent / "code" / OLD).stat().st_uid == 0
        assert {Path(f"/proc/{pid}").stat().st_uid for pid in host.pids()} == {65534}
    job = console.call("/jobs", token, {"kind": "check", "server": "kp-50"})
    until(lambda: console.call(f"/jobs/{job['id']}", token)["state"] == "succeeded", 90)

    # The pasted command repairs: the console's copy is installed, and what was sent before does not stand in its way.
    again = host.run(command)
    assert again.returncode == 0, again.stdout + again.stderr
    said = host.ctl("status").stdout
    assert wanted["code"] in said and "as installed" in said
    assert sorted(entry.name for entry in (host.agent / "code").iterdir()) == sorted([OLD, wanted["code"]])

    # Another address of the same Redis: it goes there, with the old one behind it.
    config = json.loads((host.agent / "etc/config.json").read_text())
    port = config["redis_url"].rpartition(":")[2].partition("/")[0]
    other = f"redis://localhost:{port}/0"
    assert "It would hit 1." in console.command("repoint", other)
    assert "Sent to 1." in console.command("repoint", other, "--yes")
    until(lambda: "has gone there" in browser.get("/servers/agents/addresses"), 40)
    until(lambda: (host.agent / "state/address").read_text() == other, 20)
    job = console.call("/jobs", token, {"kind": "check", "server": "kp-50"})
    until(lambda: console.call(f"/jobs/{job['id']}", token)["state"] == "succeeded", 90)
    left = host.ctl("leave")
    assert left.returncode == 0 and "has left the console" in left.stdout, left.stdout + left.stderr
    assert not host.agent.exists() and until(lambda: not host.pids(), 10)
