"""From a page to a server and back: a joined agent installs the CPU stack from a bundle that the console hands out,
with every index unreachable, goes back to the stack before, and loses it again. The wheels are tiny, the rest is real.
"""

import platform
import re

import pytest

from deployments.stacks import bundles
from tests.deployments import tiny_wheels
from tests.deployments.joining import Browser, Host
from tests.waiting import until
from tests.whole import Whole

STACK = "cpu-0.32.0"


@pytest.fixture
def console(tmp_path_factory):
    whole = Whole(tmp_path_factory.mktemp("console"), demo_servers=0)
    yield whole
    whole.stop()


@pytest.fixture
def host():
    made = Host()
    made.env |= {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "http_proxy": "", "https_proxy": ""}
    yield made
    made.close()


def packed(folder, python):
    house, bundle = folder / "wheels", folder / "bundle"
    tiny_wheels.make(house)
    bundle.mkdir()
    about = {"stack": STACK, "arch": platform.machine(), "python": python, "vendor": []}
    bundles.pack(list(house.iterdir()), bundle, 64 << 10, about)
    return bundle


def test_the_cpu_stack_comes_from_a_bundle_and_goes_again(console, host, tmp_path):
    browser, token = Browser(console), console.token()
    _page, command = browser.command("kp-50")
    joined = host.run(command)
    assert joined.returncode == 0, joined.stdout + joined.stderr
    about = f"/servers/kp-50/stack-plan?stack={STACK}"
    until(lambda: not console.call(about, token)["refusals"], 60, 0.2)
    facts = console.call("/servers/kp-50", token)["facts"]
    root = host.agent / "state" / "stacks"
    assert facts["stacks_root"] == str(root) and facts["stack_current"] == ""
    bundle = packed(tmp_path, ".".join(facts["python"].split(".")[:2]))
    console.command("bundle", "import", str(bundle))
    (kept,) = console.call("/bundles", token)["bundles"]

    def ended(path):
        number = int(re.fullmatch(r"/jobs/(\d+)/", path)[1])

        def job():
            found = console.call(f"/jobs/{number}", token)
            return found if found["state"] in ("succeeded", "failed", "lost") else None

        return until(job, 240, 0.3)

    def page(kind, stack=STACK, **fields):
        """Ask for it on its page, as an operator does: look, then confirm."""
        query = "?" + "&".join(f"{name}={value}" for name, value in fields.items()) if fields else ""
        shown = browser.get(f"/stacks/{stack}/{kind}/kp-50/{query}")
        seen = re.search(r'name="seen" value="([0-9a-f]+)"', shown)
        more = {"seen": seen[1]} if seen else {}
        return browser.send(f"/stacks/{stack}/{kind}/kp-50/{query}", **fields, **more)[0]

    made = ended(page("install", bundle=kept["name"]))
    log = browser.get(f"/jobs/{made['id']}/raw")
    assert made["state"] == "succeeded", log
    assert "4 of 4 files" in log and "0.32.0 2.13.0+cpu" in log and "usage: msmodelslim" in log
    assert (root / "current").readlink().name == STACK and not (root / STACK / "wheels").exists()

    # The agent tells at once, so the plan is satisfied; a second run skips every step.
    until(lambda: all(s["state"] == "satisfied" for s in console.call(about, token)["steps"]), 30, 0.2)
    again = ended(page("install"))
    assert [step["state"] for step in again["attempt"]["steps"]] == ["skipped"] * 2

    # An older stack lies beside: back to it, and the new one away.
    older = root / "cpu-0.1"
    (older / "venv/bin").mkdir(parents=True)
    (older / "venv/bin/python3.11").symlink_to(root / STACK / "venv/bin/python")
    (older / "activate").write_text((root / STACK / "activate").read_text())
    for path in (older, *older.rglob("*")):
        path.chmod(0o777) if not path.is_symlink() else None
    assert ended(page("install"))["state"] == "succeeded"  # and the agent tells of what lies there
    until(lambda: "cpu-0.1" in browser.get(f"/stacks/{STACK}/plan/kp-50/"), 30, 0.2)
    assert ended(page("rollback", "cpu-0.1"))["state"] == "succeeded"
    assert (root / "current").readlink().name == "cpu-0.1"
    until(lambda: "the one before" in browser.get(f"/stacks/{STACK}/plan/kp-50/"), 30, 0.2)
    gone = ended(page("uninstall"))
    assert gone["state"] == "succeeded", browser.get(f"/jobs/{gone['id']}/raw")
    assert not (root / STACK).exists() and (root / "current").readlink().name == "cpu-0.1"
