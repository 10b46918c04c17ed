"""Pages and REST of gateways as each role."""

# ruff: noqa: F811 - fixtures of gateway_rows.py

import json
import re

import pytest
from django.utils import timezone

from console.models import ApiToken, User
from deployments.models import Deployment, Gateway, GatewayKey, Job, KeyUsage
from tests.answers import whole
from tests.deployments.gateway_rows import deployment, gateway, settled, tell  # noqa: F401

pytestmark = pytest.mark.django_db


def test_the_page_of_the_deployment_shows_its_gateway(client, gateway, operator):
    settled(gateway)
    client.force_login(operator)
    client.cookies["django_language"] = "en"
    page = client.get("/deployments/qwen/").content.decode()
    assert f"http://SERVER:{gateway.port}/v1" in page and "/gateways/qwen/" in page


def test_one_that_was_stopped_on_its_server_is_started_again(client, gateway, operator):
    settled(gateway)
    tell(gateway, state="stopped")
    Gateway.objects.update(port=19000)
    client.force_login(operator)
    client.post("/gateways/qwen/", {"do": "again"})
    gateway.refresh_from_db()
    assert (gateway.state, gateway.port, gateway.job.kind) == ("planned", 19000, "gateway")
    assert Job.objects.filter(kind="gateway").count() == 2


@pytest.mark.parametrize("who, makes", [("operator", True), ("viewer", False)])
def test_the_pages_as_each_role(client, gateway, request, who, makes):
    client.force_login(request.getfixturevalue(who))
    client.cookies["django_language"] = "en"
    settled(gateway)
    page = client.get("/gateways/").content.decode()
    assert "qwen" in page and ("New gateway" in page) is makes
    assert client.get("/gateways/qwen/").status_code == 200
    made = client.post("/gateways/keys/", {"name": "=team <u>", "rate": "60", "days": "30"})
    assert made.status_code == (200 if makes else 403)
    secret = re.search(r"<code>(sk-[\w-]{43})</code>", made.content.decode())
    assert (secret is not None) is makes and "<u>" not in made.content.decode()
    assert made["Cache-Control"].startswith("max-age=0")
    assert not re.search(r"sk-[\w-]{43}", client.get("/gateways/keys/").content.decode())
    assert client.get("/gateways/qwen/remove").status_code == (200 if makes else 403)
    if makes:
        key = GatewayKey.objects.get()
        assert "Revoke" in client.get(f"/gateways/keys/{key.pk}/revoke").content.decode()
        client.post(f"/gateways/keys/{key.pk}/revoke")
        key.refresh_from_db()
        assert key.revoked_at is not None
        KeyUsage.objects.create(key=key, deployment=gateway.deployment, day=timezone.localdate(), requests=3)
        table = whole(client.get("/gateways/keys/usage.csv")).decode()
        assert "'=team" in table and ",3,0,0,0" in table


@pytest.mark.parametrize(
    "path, body",
    [("/gateways/", {}), ("/gateways/", {"deployment": "qwen", "server": "nobody"}), ("/gateways/keys/", {"name": ""}),
     ("/gateways/", {"deployment": "other", "server": "kp-01", "port": "x" * 99}),
     ("/gateways/keys/", {"name": "k", "rate": "many"}), ("/gateways/keys/", {"name": "k", "days": "99999"})],
)  # fmt: skip
def test_what_a_person_types_wrong_is_answered_in_words(client, operator, gateway, path, body):
    Deployment.objects.create(name="other")
    client.force_login(operator)
    answer = client.post(path, body)
    assert 400 <= answer.status_code < 500 and 'role="alert"' in answer.content.decode()


@pytest.fixture
def api(client):
    made = {}
    for role in ("viewer", "operator"):
        made[role] = ApiToken.make(User.objects.create_user(f"the-{role}", role=role), role)[1]

    def call(method, path, body=None, *, role="operator", status=200):
        answer = client.generic(
            method, f"/api/v1{path}", json.dumps(body) if body is not None else "", content_type="application/json",
            HTTP_AUTHORIZATION=f"Bearer {made[role]}", HTTP_ACCEPT_LANGUAGE="en",
        )  # fmt: skip
        assert answer.status_code == status, answer.content
        return answer.json()

    return call


def test_rest_does_what_the_pages_do(api, deployment, server, valkey):
    wanted = {"deployment": "qwen", "server": "kp-01"}
    assert api("POST", "/gateways", wanted, role="viewer", status=403)["error"]["code"] == "not_allowed"
    made = api("POST", "/gateways", wanted, status=202)
    assert (made["state"], made["url"]) == ("planned", f"http://127.0.0.1:{Gateway.objects.get().port}/v1")
    settled(Gateway.objects.get())
    assert api("PATCH", "/gateways/qwen", {"policy": "round_robin"})["policy"] == "round_robin"
    assert api("PATCH", "/gateways/qwen", {"policy": "best"}, status=422)["error"]["code"] == "bad_policy"
    key = api("POST", "/gateway-keys", {"name": "k", "days": 3}, status=201)
    assert key["secret"].startswith(key["start"]) and key["state"] == "valid"
    assert "secret" not in json.dumps(api("GET", "/gateway-keys", role="viewer"))
    KeyUsage.objects.create(key_id=key["id"], deployment=deployment, day=timezone.localdate(), requests=2)
    assert api("GET", "/gateway-usage?deployment=qwen")["usage"][0]["requests"] == 2
    assert api("GET", "/gateway-keys")["keys"][0]["used"]["requests"] == 2
    assert api("DELETE", f"/gateway-keys/{key['id']}")["state"] == "revoked"
    assert api("DELETE", f"/gateway-keys/{key['id']}", status=409)["error"]["code"] == "already_revoked"
    assert api("DELETE", "/gateway-keys/99999999999999999999", status=404)
    assert api("POST", "/gateways/qwen/engines", {"engine": 77}, status=404)["error"]["code"] == "not_found"
    assert api("GET", "/gateways")["gateways"][0]["deployment"] == "qwen"
    assert api("DELETE", "/gateways/qwen", status=202)["job"]
    assert api("GET", "/gateways")["gateways"] == []
