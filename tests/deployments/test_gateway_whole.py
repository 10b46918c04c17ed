"""From REST to a gateway that answers, with the whole console as `make up` starts it; then without any console.

The router's environment is put there before, as the job would find it the second time.
"""

import json
import os
import signal
import time
import urllib.error
import urllib.request

import pytest

from deployments.agent.gateways import folder as folders
from deployments.agent.gateways import making
from tests.deployments.gateway_bench import ENGINE_KEY, ROUTER, Engine, Load, needs_gateway
from tests.waiting import until
from tests.whole import Whole

pytestmark = needs_gateway

ROWS = """
import json
from deployments.models import Deployment, Replica, Revision, Server
from deployments.services import serving_hooks
server = Server.objects.get(is_local=True)
d = Deployment.objects.create(name="tiny", api_key={key!r}, replicas=2, paused=True)  # its rows are not looked after
d.revision = Revision.objects.create(deployment=d, n=1, settings=dict(served_model_name="m"))
d.save()
for n, port in enumerate({ports}, 1):
    Replica.objects.create(deployment=d, revision=d.revision, n=n, state="ready", server=server, port=port, path="/m")
print(json.dumps(server.name))
"""


@pytest.fixture
def console(tmp_path):
    made = Whole(tmp_path, demo_servers=0)
    yield made
    made.stop()
    for folder in (made.folder / "var").rglob("gateways/g*"):
        folders.set_wish(folder, "stop")
        for name in ("nginx", "router"):
            if (who := folders.identity(folder, name)) is not None:
                os.kill(who.pid, signal.SIGTERM)
        until(lambda folder=folder: not folders.is_kept(folder), timeout=30)


@pytest.fixture
def engines():
    made = [Engine().start(), Engine().start()]
    yield made
    for one in made:
        one.kill()


def delete(console, token, path):
    headers = {"Authorization": f"Bearer {token}", "Accept-Language": "en"}
    request = urllib.request.Request(f"{console.url}/api/v1{path}", headers=headers, method="DELETE")
    with console.open(request, timeout=10) as answer:
        return json.loads(answer.read())


def status(port, secret):
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/models", headers={"Authorization": f"Bearer {secret}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def over(console, token, number):
    job = until(
        lambda: (j := console.call(f"/jobs/{number}", token))["state"] in ("succeeded", "failed") and j, 60, 0.2
    )
    assert job["state"] == "succeeded", job


def used(console, token, key):
    (row,) = (one for one in console.call("/gateway-usage", token)["usage"] if one["key_id"] == key["id"])
    return [row[name] for name in ("requests", "failed", "prompt_tokens", "completion_tokens")]


def test_it_is_made_keyed_counted_and_goes_on_without_the_console(console, engines):
    token = console.token()
    ports = [one.port for one in engines]
    server = json.loads(console.command("shell", "-v", "0", "-c", ROWS.format(key=ENGINE_KEY, ports=ports)))
    (config,) = (path for path in (console.folder / "var").rglob("config.json") if "server_id" in path.read_text())
    from deployments.agent.config import load

    local = load(config)
    folders.root(local).mkdir(parents=True)
    making.environment(local).symlink_to(ROUTER.parent.parent)

    made = console.call("/gateways", token, {"deployment": "tiny", "server": server})
    over(console, token, made["job"])
    port = int(made["url"].rpartition(":")[2].partition("/")[0])
    gone = console.call("/gateway-keys", token, {"name": "to go"})
    key = console.call("/gateway-keys", token, {"name": "team", "deployments": ["tiny"]})
    until(lambda: [status(port, one["secret"]) for one in (gone, key)] == [200, 200], 15)
    shown = until(lambda: (g := console.call("/gateways/tiny", token))["state"] == "ready" and g, 15, 0.2)
    assert [one["healthy"] for one in shown["engines"]] == [True, True]

    delete(console, token, f"/gateway-keys/{gone['id']}")
    began = time.monotonic()
    until(lambda: status(port, gone["secret"]) == 401, 10)
    assert time.monotonic() - began < 10

    before = 1 + sum(1 for _ in range(4) if status(port, key["secret"]) == 200)  # GETs count as requests, too
    with Load(port, clients=4, key=key["secret"]) as old:
        until(lambda: old.count_reaches(20))
        console.stop()  # web, ingest, Redis, agent
        with Load(port, clients=2, key=key["secret"], fresh=True) as new:
            until(lambda: new.count_reaches(40))
        seen = len(old.results)
        until(lambda: old.count_reaches(seen + 40))
    assert not old.failed and not new.failed

    console.start()
    told = [a + b for a, b in zip(old.tokens, new.tokens, strict=True)]
    wanted = [told[0] + before, 0, told[1], told[2]]
    until(lambda: (found := used(console, token, key))[2:] == wanted[2:] and found[0] >= wanted[0] and found, 30, 0.3)
    removed = delete(console, token, "/gateways/tiny")
    over(console, token, removed["job"])
    assert not folders.is_kept(folders.of(local, 1))
