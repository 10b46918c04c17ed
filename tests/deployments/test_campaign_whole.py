"""A campaign from REST to two joined agents that really install the CPU stack, over a restart of the console.

The wheels are tiny, the rest is real.
"""

import pytest

from tests.deployments.joining import Browser, Host
from tests.deployments.test_install_whole import STACK, packed
from tests.waiting import until
from tests.whole import Whole

NAMES = ("kp-51", "kp-52")


@pytest.fixture
def console(tmp_path_factory):
    whole = Whole(tmp_path_factory.mktemp("console"), demo_servers=0)
    yield whole
    whole.stop()


@pytest.fixture
def hosts():
    made = {name: Host() for name in NAMES}
    for host in made.values():
        host.env |= {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "http_proxy": "", "https_proxy": ""}
    yield made
    for host in made.values():
        host.close()


def test_two_servers_get_the_stack_one_after_the_other_over_a_restart(console, hosts, tmp_path):
    browser, asks = Browser(console), console.token()
    make = "from console.models import User; User.objects.create_user('wang', role='operator')"
    console.command("shell", "-c", make)
    approves = console.command("token", "create", "wang", "--role", "operator").split()[-1]
    for name, host in hosts.items():
        _page, command = browser.command(name)
        joined = host.run(command)
        assert joined.returncode == 0, joined.stdout + joined.stderr
        plan = f"/servers/{name}/stack-plan?stack={STACK}"
        until(lambda plan=plan: not console.call(plan, asks)["refusals"], 60, 0.2)
    python = ".".join(console.call(f"/servers/{NAMES[0]}", asks)["facts"]["python"].split(".")[:2])
    console.command("bundle", "import", str(packed(tmp_path, python)))
    (kept,) = console.call("/bundles", asks)["bundles"]

    body = {
        "stack": STACK, "params": {"bundle": kept["name"]}, "select": {"names": list(NAMES)},
        "rings": {"canary": 1, "soak_min": 0, "spread": False},
    }  # fmt: skip
    made = console.call("/campaigns", asks, body)
    assert {one["does"] for one in made["servers"]} == {"runs"} and made["state"] == "waiting_approval"
    path = f"/campaigns/{made['id']}"
    console.call(f"{path}/approve", approves, {"seen": made["digest"], "note": "go"})

    def states():
        return {one["server"]: one["state"] for one in console.call(path, asks)["servers"]}

    until(lambda: "running" in states().values(), 60, 0.1)
    assert sorted(states().values()) == ["draft", "running"]
    console.stop()
    console.start()
    done = until(lambda: (c := console.call(path, asks))["state"] in ("succeeded", "failed", "stopped") and c, 400, 0.5)
    assert done["state"] == "succeeded", done
    for one in done["servers"]:
        assert one["before"]["stack"] == "" and one["after"]["stack"] == STACK and one["after"]["matches"] is True
    assert done["rings"][0]["passed_at"]
    for host in hosts.values():
        assert (host.agent / "state" / "stacks" / "current").readlink().name == STACK
