"""The agent's side of gateways: steps of the jobs, the order, the sweep, usage, and what a spec may hold."""

import argparse
import base64
import json
import time
import zlib

import pytest

from deployments.agent import signing
from deployments.agent.gateways import balancer, front, making, obey, program, usage, watch
from deployments.agent.gateways import folder as folders
from deployments.agent.orders import CannotObey
from deployments.agent.pages import Stopped
from deployments.serving import gateway_conf
from tests.deployments.agent_bench import KEY, AgentServer
from tests.deployments.gateway_bench import ENGINE_KEY, ROUTER, Engine, free_port, key_row, needs_gateway
from tests.waiting import until


@pytest.fixture
def agent(tmp_path):
    made = AgentServer(tmp_path, "redis://127.0.0.1:1/0")
    yield made
    for folder in folders.all_of(made.config):
        making.stop(made.config, argparse.Namespace(gateway=int(folder.name[1:])))


def spec(**more):
    return {
        "gateway": 7, "deployment": 3, "version": 1, "port": free_port(), "router_port": free_port(),
        "metrics_port": free_port(), "engine_key": ENGINE_KEY, "engines": [], "keys": [],
    } | more  # fmt: skip


def seal(content, key=KEY):
    return base64.b64encode(signing.seal(key, zlib.compress(json.dumps(content).encode()))).decode()


def told_to(agent, content, **more):
    return obey.Gateways(lambda: agent.config).gateway({"gateway": 7, "sealed": seal(content)} | more)


def test_a_log_that_is_being_written_stays_short(tmp_path, monkeypatch):
    monkeypatch.setattr(program, "MOST_LOG", 20)
    path = tmp_path / "router.out"
    assert program.bound(path) is False, "it is not there yet"
    with path.open("a") as writer:
        for n in range(6):
            writer.write(f"line {n}\n")
            writer.flush()
            program.bound(path)
    assert path.read_text() == ""
    assert path.with_name("router.out.1").read_text() == "line 3\nline 4\nline 5\n"


@needs_gateway
def test_the_steps_put_it_and_it_outlives_whoever_put_it(agent):
    engine = Engine().start()
    folders.root(agent.config).mkdir()
    making.environment(agent.config).symlink_to(ROUTER.parent.parent)
    wanted = spec(engines=[{"address": "127.0.0.1", "port": engine.port}], keys=[key_row(1, "sk-one")])
    options = argparse.Namespace(
        gateway=7, alone=False, port=wanted["port"], router_port=wanted["router_port"], sealed=seal(wanted), version=1
    )
    try:
        making.look(agent.config, options)
        assert making.router(agent.config, options) == making.SATISFIED
        making.put(agent.config, options)
        making.ready(agent.config, options)
        making.look(agent.config, options)  # its own ports are no obstacle when it is put anew
        assert watch.sweep(agent.config) == 0
        until(lambda: watch.told(agent.config)["gateways"][0]["state"] == "ready")
        # The order brings a key and takes one away.
        told_to(agent, {**wanted, "version": 2, "keys": [key_row(2, "sk-two")]})
        folder = folders.of(agent.config, 7)
        until(lambda: folders.now(folder)["version"] == 2)
        assert [path.name for path in (folder / "keys").iterdir()] == [key_row(2, "sk-two")["digest"]]
        # A keeper that is killed is replaced by the sweep, and its programs stay.
        before = folders.identity(folder, "nginx")
        watch._spawned.pop(folder).kill()
        until(lambda: not folders.is_kept(folder))
        until(lambda: watch.sweep(agent.config) == 1)
        until(lambda: folders.is_kept(folder))
        assert folders.identity(folder, "nginx") == before
        making.stop(agent.config, options)
        assert not folders.is_kept(folder) and folders.identity(folder, "router") is None
        assert watch.sweep(agent.config) == 0
        assert watch.told(agent.config)["gateways"][0]["state"] == "stopped"
    finally:
        engine.kill()


@needs_gateway
def test_the_router_alone_answers_on_loopback_with_the_engines_key(agent):
    engine = Engine().start()
    wanted = spec(engines=[{"address": "127.0.0.1", "port": engine.port}], nginx=False)
    folders.root(agent.config).mkdir()
    making.environment(agent.config).symlink_to(ROUTER.parent.parent)
    options = argparse.Namespace(gateway=7, alone=True, sealed=seal(wanted), version=1)
    try:
        making.put(agent.config, options)
        making.ready(agent.config, options)
        until(lambda: folders.now(folders.of(agent.config, 7))["state"] == "ready")
        status, _body = balancer.call(wanted["port"], "GET", "/v1/models")
        assert status == 401  # nobody puts the key in
        assert folders.identity(folders.of(agent.config, 7), "nginx") is None
    finally:
        engine.kill()


def test_where_nginx_is_missing_the_step_says_what_to_do(agent, monkeypatch):
    monkeypatch.setattr(front, "find", lambda: None)
    options = argparse.Namespace(gateway=7, alone=False, port=free_port(), router_port=free_port())
    with pytest.raises(Stopped) as stopped:
        making.look(agent.config, options)
    assert "libnginx-mod-http-js" in stopped.value.text.en and "the router alone" in stopped.value.text.en
    making.look(agent.config, argparse.Namespace(**{**vars(options), "alone": True}))


def test_a_port_in_use_is_named(agent):
    import socket

    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(Stopped, match=f"Port {port} is used"):
            making.look(agent.config, argparse.Namespace(gateway=7, alone=True, port=port, router_port=free_port()))


def test_an_index_without_the_router_leaves_no_half_environment(agent, tmp_path):
    empty = tmp_path / "wheels"
    empty.mkdir()
    options = argparse.Namespace(wheelhouse=str(empty), index="", extra_index=[], private=False)
    with pytest.raises(Stopped, match="was not installed"):
        making.router(agent.config, options)
    assert not making.environment(agent.config).exists()


def test_orders_that_are_not_for_here_are_refused_and_older_ones_change_nothing(agent):
    with pytest.raises(CannotObey, match="not on this server"):
        told_to(agent, spec())
    folder = folders.of(agent.config, 7)
    folders.write(folder, spec(version=5), {"python": "/p", "nginx": "", "module": ""})
    told_to(agent, spec(version=4, policy="random"))
    assert folders.read(folder)[0].policy == "cache_aware"
    told_to(agent, spec(version=6, policy="random"))
    found, programs = folders.read(folder)
    assert (found.policy, programs.python) == ("random", "/p")
    with pytest.raises(CannotObey, match="not fit"):
        told_to(agent, spec(version=7, policy="best"))
    for args in ({}, {"sealed": "xx"}, {"sealed": seal(spec(), "77" * 32)}, {"sealed": seal([1])}, {"gateway": "x"}):
        with pytest.raises(CannotObey):
            obey.Gateways(lambda: agent.config).gateway({"gateway": 7, "sealed": seal(spec())} | args if args else {})


@pytest.mark.parametrize(
    "more",
    [{"address": "x; }"}, {"address": ""}, {"port": 0}, {"port": "80"}, {"router_port": 2**16}, {"policy": "best"},
     {"engine_key": 'a"b'}, {"engine_key": "a\nb"}, {"engine_key": "$uri"}, {"version": True},
     {"engines": [{"address": "a b", "port": 1}]}, {"engines": [{"port": 1}]}, {"engines": 7}, {"connector": "x"},
     {"keys": [{"id": 1, "digest": "../../etc"}]}, {"keys": [{"id": -1, "digest": "a" * 64}]}],
)  # fmt: skip
def test_a_spec_that_could_write_into_the_configuration_is_refused(more):
    gateway_conf.read(spec())
    with pytest.raises(gateway_conf.BadSpec):
        gateway_conf.read(spec(**more))


def line(key=1, status=200, prompt=3, completion=2, at=1_800_000_000):
    said = {"t": at, "key": str(key), "status": status, "prompt": str(prompt), "completion": str(completion)}
    return json.dumps(said).encode() + b"\n"


def test_each_line_counts_once_whatever_is_cut_off(tmp_path):
    now = int(time.time())
    log = tmp_path / "usage.log"
    log.write_bytes(line(at=now) * 3 + line(at=now)[:20])
    first = usage.Usage(tmp_path)
    assert first.turn(0) == 3
    assert usage.Usage(tmp_path).turn(0) == 0  # another keeper goes on behind them
    with log.open("ab") as file:
        file.write(
            line(at=now)[20:] + b"not JSON\n" + line(key="x") + line(at=now, status=429, prompt="", completion="")
        )
    second = usage.Usage(tmp_path)
    assert second.turn(0) == 2
    (row,) = second.told()
    assert row[1:] == [1, 5, 1, 12, 8]


def test_a_long_log_is_put_aside_and_read_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(usage, "MOST_LOG", 400)
    now = int(time.time())
    log, reopened = tmp_path / "usage.log", []
    log.write_bytes(line(at=now) * 9)
    kept = usage.Usage(tmp_path)
    kept.turn(0)
    assert kept.begin_anew(lambda: reopened.append(1)) and reopened
    with (tmp_path / "usage.old").open("ab") as late:  # nginx has not reopened yet
        late.write(line(at=now))
    log.write_bytes(line(at=now) * 2)
    assert kept.turn(0) == 3
    assert kept.told()[0][2] == 12
    monkeypatch.setattr(usage, "OLD_S", -1.0)
    kept.begin_anew(lambda: None)
    assert not (tmp_path / "usage.old").exists() and kept.turn(0) == 0


def test_a_day_begins_where_the_site_is(tmp_path):
    (tmp_path / "usage.log").write_bytes(line(at=1_799_971_200 + 17 * 3600))  # 17:00 UTC
    for offset in (0, 8 * 3600):
        (tmp_path / "usage.json").unlink(missing_ok=True)
        kept = usage.Usage(tmp_path)
        kept._forget = lambda: False
        kept.turn(offset)
        assert next(iter(kept.totals))[:10] == ("2027-01-15" if offset == 0 else "2027-01-16")


def test_keys_are_written_for_this_user_alone(tmp_path):
    found = gateway_conf.read(spec(keys=[key_row(1, "sk-one"), key_row(2, "sk-two")]))
    front.write_keys(tmp_path, found)
    assert {oct(path.stat().st_mode & 0o777) for path in (tmp_path / "keys").iterdir()} == {"0o600"}
    assert (tmp_path / "keys").stat().st_mode & 0o077 == 0
    front.write_keys(tmp_path, gateway_conf.read(spec()))
    assert not list((tmp_path / "keys").iterdir())
