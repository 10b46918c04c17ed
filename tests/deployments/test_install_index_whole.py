"""From a page to a server by an index of the site's own: HTTPS with its own authority, and a password that stands
nowhere but in the setting that the site wrote, and on the wire to the index.
"""

import contextlib
import re
import sqlite3

import pytest

from tests.deployments import tiny_wheels
from tests.deployments.joining import Browser, Host
from tests.deployments.package_index import PASSWORD, USER, Index
from tests.waiting import until
from tests.whole import Whole

STACK = "cpu-0.32.0"


@pytest.fixture
def index(tmp_path):
    made = Index(tmp_path / "index", tiny_wheels.make(tmp_path / "house"))
    yield made
    made.close()


@pytest.fixture
def console(tmp_path_factory, tmp_path, index):
    secret = tmp_path / "netrc"
    secret.write_text(f"machine 127.0.0.1 login {USER} password {PASSWORD}\n")
    settings = {"PACKAGE_INDEX": index.url, "PACKAGE_INDEX_CA": str(index.ca), "PACKAGE_PASSWORDS_FILE": str(secret)}
    whole = Whole(tmp_path_factory.mktemp("console"), demo_servers=0, PACKAGE_EXTRA_INDEX="", **settings)
    yield whole
    whole.stop()


@pytest.fixture
def host():
    made = Host()
    yield made
    made.close()


def holding(folder, secret):
    """Files below the folder in which the secret stands."""
    found = []
    for path in sorted(folder.rglob("*")):
        with contextlib.suppress(OSError):
            if path.is_file() and not path.is_symlink() and secret.encode() in path.read_bytes():
                found.append(path.relative_to(folder).as_posix())
    return found


def test_the_cpu_stack_comes_from_a_private_index(console, host, index):
    browser, token = Browser(console), console.token()
    _page, command = browser.command("kp-51")
    joined = host.run(command)
    assert joined.returncode == 0, joined.stdout + joined.stderr
    about = f"/servers/kp-51/stack-plan?stack={STACK}"
    until(lambda: not console.call(about, token)["refusals"], 120, 0.2)
    plan = console.call(about, token)
    assert plan["addresses"] == [index.url]
    assert any("no password stands" in (step["note"] or {}).get("en", "") for step in plan["steps"])

    def install(server):
        shown = browser.get(f"/stacks/{STACK}/install/{server}/")
        seen = re.search(r'name="seen" value="([0-9a-f]+)"', shown)[1]
        path, _after = browser.send(f"/stacks/{STACK}/install/{server}/", seen=seen)
        number = int(re.fullmatch(r"/jobs/(\d+)/", path)[1])

        def job():
            found = console.call(f"/jobs/{number}", token)
            return found if found["state"] in ("succeeded", "failed", "lost") else None

        return until(job, 600, 0.3)

    made = install("kp-51")
    log = browser.get(f"/jobs/{made['id']}/raw")
    assert made["state"] == "succeeded", log
    assert index.refused == 0 and {f"/files/{name}" for name in index.wheels} <= set(index.asked)
    assert (host.agent / "state/stacks/current").readlink().name == STACK

    # On the console's own machine the same, by the file that only its agent may read.
    own = next(one["name"] for one in console.call("/servers", token)["servers"] if one["name"] != "kp-51")
    near = install(own)
    assert near["state"] == "succeeded", browser.get(f"/jobs/{near['id']}/raw")

    var = console.folder / "var"
    assert holding(var, PASSWORD) == ["agent/indexes.json"]
    assert (var / "agent/indexes.json").stat().st_mode & 0o777 == 0o600
    assert holding(host.folder, PASSWORD) == []
    pages = [f"/jobs/{made['id']}/", f"/jobs/{made['id']}/raw", f"/stacks/{STACK}/plan/kp-51/", "/stacks/"]
    assert all(PASSWORD not in browser.get(path) for path in pages)
    with sqlite3.connect(f"file:{var / 'console.sqlite3'}?mode=ro", uri=True) as rows:
        assert not any(PASSWORD in line for line in rows.iterdump())
