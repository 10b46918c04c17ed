import json
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from console import streams
from console.models import ApiToken
from deployments.models import Server

pytestmark = pytest.mark.django_db


def series(text):
    return {
        (s.name, *sorted(s.labels.values())): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }


def test_metrics_ask_for_a_token(client):
    answer = client.get("/metrics", headers={"Accept": "application/json"})
    assert answer.status_code == 401 and answer.json()["error"]["code"] == "not_signed_in"
    assert client.get("/metrics", headers={"Authorization": "Bearer nonsense"}).status_code == 401


def test_simulated_servers_are_marked_and_unknown_is_absent(client, viewer, valkey):
    Server.objects.create(name="real")
    simulated = Server.objects.create(name="sim", simulated=True)
    npus = [{"occ": "free", "health": "OK"}, {"occ": "foreign", "health": "Alarm"}]
    valkey.client().hset(streams.FLEET_NOW, str(simulated.pk), json.dumps({"seen": time.time(), "npus": npus}))
    _, token = ApiToken.make(viewer, "viewer")
    found = series(client.get("/metrics", headers={"Authorization": f"Bearer {token}"}).content.decode())
    assert found[("ascend_console_servers", "live", "true")] == 1
    assert found[("ascend_console_servers", "false", "never")] == 1
    assert found[("ascend_console_npus", "foreign", "true")] == 1
    assert found[("ascend_console_npus_faulty", "true")] == 1 and found[("ascend_console_npus_faulty", "false")] == 0
    assert ("ascend_console_ingest_lag_seconds",) not in found
