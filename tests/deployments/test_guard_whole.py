"""The whole console as `make up` starts it: this machine's keys change, and a restart goes on with the new ones."""

import json

import pytest

from tests.waiting import until
from tests.whole import Whole

LOCAL = "from deployments.models import *; s = Server.objects.get(is_local=True); "


@pytest.fixture
def whole(tmp_path):
    made = Whole(tmp_path, demo_servers=2)
    yield made
    made.stop()


def ask(whole, code):
    return json.loads(whole.command("shell", "-v", "0", "-c", f"import json; {LOCAL}{code}"))


def state(whole):
    return ask(
        whole,
        "print(json.dumps({'name': s.name, 'key': s.key, 'refused': s.refused, 'online': not s.is_silent, "
        "'rotating': Rotation.objects.exists()}))",
    )


def run_check(whole, token, name):
    job = whole.call("/jobs", token, {"server": name, "kind": "check", "params": {}})["id"]
    until(lambda: whole.call(f"/jobs/{job}", token)["state"] in ("succeeded", "failed"), timeout=90, every=0.5)


def test_keys_of_this_machine_change_and_a_restart_goes_on_with_them(whole):
    token = whole.token()
    before = until(lambda: (found := state(whole))["online"] and found, timeout=60, every=1)
    ask(
        whole,
        "from deployments.services import rotation; from console.models import User; "
        "rotation.start(s, by=User.objects.get(username='admin')); print('1')",
    )
    after = until(lambda: not (found := state(whole))["rotating"] and found, timeout=60, every=1)
    assert after["key"] != before["key"] and after["online"]
    run_check(whole, token, after["name"])
    assert state(whole)["refused"] == 0
    whole.stop()
    whole.start()
    run_check(whole, token, after["name"])
    assert state(whole) == {**after, "online": True}
