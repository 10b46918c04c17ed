"""The bundled Valkey: who may do what in it, and what it leaves on the disk."""

import dataclasses
import socket
import stat
import subprocess
import time

import pytest
import redis

from console import parts, streams, valkey
from console.environment import BadSetting


@pytest.fixture
def start(tmp_path):
    """Starts what `prepare` wrote; ends it by its id."""
    started = []

    def go(users=()):
        bundled = valkey.prepare(tmp_path, users, servers=3)
        started.append(subprocess.Popen(bundled.argv, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT))
        client = redis.Redis.from_url(bundled.url)
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            try:
                client.ping()
                return bundled, client
            except redis.ConnectionError:
                time.sleep(0.02)
        raise AssertionError("Valkey did not start")

    yield go
    for process in started:
        process.kill()
        process.wait()


def as_user(bundled, name, password):
    return redis.Redis.from_url(valkey.url_for(bundled.url, name, password))


def test_only_named_users_get_in_and_each_server_sees_its_own_keys(start):
    lines = [valkey.user_line(streams.user(pk), streams.acl_rules(pk, f"pw-{pk}")) for pk in (7, 8)]
    bundled, console = start(lines)
    seven = as_user(bundled, "h7", "pw-7")
    assert seven.xadd("h:7:telemetry", {"d": "{}"})
    assert console.xlen("h:7:telemetry") == 1
    with pytest.raises(redis.exceptions.NoPermissionError):
        seven.xadd("h:8:telemetry", {"d": "{}"})
    with pytest.raises(redis.AuthenticationError):
        as_user(bundled, "h8", "pw-7").ping()
    with pytest.raises(redis.AuthenticationError):
        redis.Redis(port=bundled.port).ping()


def test_the_demo_user_reaches_servers_but_nothing_of_the_console(start):
    bundled, _ = start([valkey.user_line(streams.DEMO_USER, streams.demo_acl_rules("pw"))])
    demo = as_user(bundled, "demo", "pw")
    assert demo.set("h:3:acked", 1)
    for refused in (lambda: demo.get("fleet:now"), lambda: demo.execute_command("ACL", "LIST"), demo.flushall):
        with pytest.raises(redis.exceptions.NoPermissionError):
            refused()


def test_a_new_users_rights_are_kept_by_acl_save(start):
    _, console = start()
    console.execute_command("ACL", "SETUSER", "h9", *streams.acl_rules(9, "pw-9"))
    assert console.acl_save()
    assert "h9" in console.acl_users()


def test_there_is_one_database_and_a_limit_of_memory(start):
    _, console = start()
    assert console.config_get("databases") == {"databases": "1"}
    assert int(console.config_get("maxmemory")["maxmemory"]) >= 128 * 2**20
    assert console.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"


def test_what_holds_secrets_is_private_and_holds_no_password_of_a_server(tmp_path):
    line = valkey.user_line("h7", streams.acl_rules(7, "a-servers-password"))
    valkey.prepare(tmp_path, [line], servers=1)
    for name in ("redis_url", "valkey/users.acl", "valkey/valkey.conf", "valkey/password"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600, name
    assert "a-servers-password" not in (tmp_path / "valkey/users.acl").read_text()


def test_port_and_password_stay_the_same(tmp_path):
    first = valkey.prepare(tmp_path, [], servers=1)
    assert valkey.prepare(tmp_path, [], servers=1) == first


def test_a_port_that_was_taken_meanwhile_is_given_up(tmp_path):
    first = valkey.prepare(tmp_path, [], servers=1)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", first.port))
        other.listen()
        assert valkey.prepare(tmp_path, [], servers=1).port != first.port


def test_a_taken_redis_port_is_refused_in_a_sentence(tmp_path, monkeypatch):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        monkeypatch.setenv("REDIS_PORT", str(port))
        with pytest.raises(BadSetting, match=f"REDIS_PORT={port} is used by another program"):
            valkey.prepare(tmp_path, [], servers=1)


def test_another_consoles_valkey_on_the_same_port_is_not_taken_for_ours(start, tmp_path):
    bundled, _client = start()
    other = valkey.prepare(tmp_path / "other", [], servers=3)
    part = parts.Part("valkey", bundled.argv, listens=("127.0.0.1", bundled.port), greet=bundled.greet)
    assert parts.readiness(part)()
    assert not parts.readiness(dataclasses.replace(part, greet=other.greet))()
    assert not parts.readiness(dataclasses.replace(part, listens=("127.0.0.1", other.port)))()
