"""This machine and the demo fleet join and leave."""

import json
import socket

import pytest
from auditlog.models import LogEntry
from django.utils import timezone

from console import streams
from console.models import User
from deployments.agent import config as agent_config
from deployments.demo import fleet
from deployments.models import Artifact, ArtifactPlace, Server
from deployments.services import enrol

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def var(settings, tmp_path):
    settings.VAR_DIR = tmp_path
    return tmp_path


@pytest.fixture
def administrator():
    return User.objects.create_user("root", password="only-for-this-test", role="administrator")


def test_this_machine_is_enrolled_once_and_keeps_its_name(monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "KP_East-07.dc.example")
    first = enrol.enrol_local()
    assert (first.name, first.hostname, first.simulated) == ("kp_east-07", "KP_East-07.dc.example", False)
    monkeypatch.setattr(socket, "gethostname", lambda: "renamed")
    assert enrol.enrol_local() == first
    assert Server.objects.count() == 1


@pytest.mark.parametrize(("hostname", "name"), [("kp-01", "kp-01-2"), ("主机", "this-machine"), ("", "this-machine")])
def test_a_name_that_is_taken_or_none_is_replaced(monkeypatch, hostname, name):
    Server.objects.create(name="kp-01")
    monkeypatch.setattr(socket, "gethostname", lambda: hostname)
    assert enrol.enrol_local().name == name


def test_the_demo_fleet_matches_the_number_asked_for():
    real = enrol.enrol_local()
    four = enrol.enlist_demo(4)
    assert [server.name for server in four] == [entry["name"] for entry in fleet.enlist(4)]
    assert all(server.simulated and server.rack and server.family for server in four)
    assert [server.pk for server in enrol.enlist_demo(2)] == [server.pk for server in four[:2]]
    assert enrol.enlist_demo(0) == []
    assert list(Server.objects.all()) == [real]


def test_simulated_servers_have_models_from_the_start_and_take_them_along(administrator):
    enrol.enlist_demo(4)
    assert (
        enrol.enlist_demo(4) and ArtifactPlace.objects.count() == 4 + 2 * 2 + 1 + 1
    )  # each has one, each third some more
    quantized = Artifact.objects.get(format="quantized")
    assert quantized.parent.name == "Qwen3-30B-A3B" and quantized.simulated and quantized.made_by is None
    assert {row.whole for row in ArtifactPlace.objects.filter(artifact__name="Qwen2.5-72B-Instruct")} == {False}
    ArtifactPlace.objects.update(gone_at=timezone.now())
    enrol.enlist_demo(4)
    assert not ArtifactPlace.objects.filter(gone_at=None).exists()  # what was deleted does not come back
    real = Artifact.objects.create(name="real", fingerprint="a" * 64, format="hf")
    enrol.remove_demo(by=administrator)
    assert list(Artifact.objects.all()) == [real]


def test_a_thousand_servers_are_few_queries(django_assert_max_num_queries):
    with django_assert_max_num_queries(80):  # SQLite takes 999 values at a time
        assert len(enrol.enlist_demo(1000)) == 1000


def test_a_real_server_keeps_its_name_from_the_demo():
    name = fleet.enlist(1)[0]["name"]
    real = Server.objects.create(name=name)
    assert name not in [server.name for server in enrol.enlist_demo(3)]
    real.refresh_from_db()
    assert not real.simulated


def test_configs_are_what_agent_and_demo_read_and_hold_one_servers_secrets_each(var):
    local, demo = enrol.enrol_local(), enrol.enlist_demo(2)
    enrol.write_configs(local, demo, "redis://console:geheim@127.0.0.1:16379/0")
    own = agent_config.load(var / "agent" / "config.json")
    assert (own.server_id, own.prefix, own.simulated) == (local.pk, f"h:{local.pk}", False)
    assert own.redis_url == f"redis://h{local.pk}:{local.redis_password}@127.0.0.1:16379/0"
    text = (var / "demo" / "config.json").read_text()
    assert [entry["name"] for entry in json.loads(text)["servers"]] == [server.name for server in demo]
    assert local.key not in text
    for path in ("agent/config.json", "demo/config.json"):
        assert "geheim" not in (var / path).read_text()
        assert (var / path).stat().st_mode & 0o077 == 0


def test_rights_are_one_user_for_each_server_and_one_for_the_demo(valkey):
    local, demo = enrol.enrol_local(), enrol.enlist_demo(2)
    connection = valkey.client()
    enrol.grant(connection)
    expected = {streams.user(server.pk) for server in (local, *demo)} | {streams.DEMO_USER}
    assert set(connection.acl_users()) - {"default"} == expected
    for name in expected:
        connection.acl_deluser(name)


def test_a_removed_demo_leaves_nothing_and_does_not_come_back(
    valkey, administrator, django_capture_on_commit_callbacks
):
    connection = valkey.client()
    local, demo = enrol.enrol_local(), enrol.enlist_demo(3)
    enrol.grant(connection)
    connection.xadd(streams.telemetry(demo[0].pk), {"d": "{}"})
    connection.xadd(streams.telemetry(local.pk), {"d": "{}"})
    connection.hset(streams.FLEET_NOW, mapping={server.pk: "{}" for server in (local, *demo)})
    with django_capture_on_commit_callbacks(execute=True):
        assert enrol.remove_demo(by=administrator) == 3
    assert list(Server.objects.all()) == [local]
    assert connection.keys("h:*") == [streams.telemetry(local.pk).encode()]
    assert connection.hkeys(streams.FLEET_NOW) == [str(local.pk).encode()]
    assert set(connection.acl_users()) == {"default", streams.user(local.pk)}
    assert LogEntry.objects.filter(additional_data__verb="demo.removed", additional_data__servers=3).exists()
    assert enrol.enlist_demo(3) == []
    connection.acl_deluser(streams.user(local.pk))


def test_the_sweep_forgets_servers_that_are_no_more(valkey):
    connection = valkey.client()
    local = enrol.enrol_local()
    enrol.grant(connection)
    gone = local.pk + 100
    connection.execute_command("ACL", "SETUSER", streams.user(gone), *streams.acl_rules(gone, "pw"))
    connection.mset({f"h:{gone}:acked": 1, f"h:{gone + 1}:acked": 1, f"h:{local.pk}:acked": 1, "h:odd": 1})
    connection.hset(streams.FLEET_NOW, mapping={local.pk: "{}", gone + 2: "{}"})
    assert enrol.forget_gone() == [gone, gone + 1, gone + 2]
    assert set(connection.keys("*")) == {f"h:{local.pk}:acked".encode(), b"h:odd", b"fleet:now"}
    assert connection.hkeys(streams.FLEET_NOW) == [str(local.pk).encode()]
    assert set(connection.acl_users()) == {"default", streams.user(local.pk)}
    connection.acl_deluser(streams.user(local.pk))


def test_files_of_simulated_servers_that_are_no_more_go(var):
    demo = enrol.enlist_demo(1)
    for name in (demo[0].name, "kp-99"):
        (var / "demo" / name / "root").mkdir(parents=True)
    (var / "demo" / "bin").mkdir()
    assert enrol.tidy_demo(demo) == ["kp-99"]
    assert sorted(path.name for path in (var / "demo").iterdir()) == sorted([demo[0].name, "bin"])
