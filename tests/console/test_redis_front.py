"""TLS in front of a real Valkey, by the real stunnel and the real nginx."""

import resource
import shutil
import socket
import ssl
import subprocess

import pytest
import redis

from console import certificates, redis_front
from console.environment import BadSetting
from tests.conftest import free_port
from tests.waiting import until

PLACES = "/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin"
PROGRAMS = ["stunnel", "nginx"]


@pytest.fixture
def certificate(tmp_path):
    key, ca_key, now = certificates.new_key(), certificates.new_key(), certificates.now()
    ca = certificates.authority(ca_key, "CA", now=now)
    (tmp_path / "key").write_text(key)
    (tmp_path / "chain").write_text(certificates.server(key, ca, ca_key, ["127.0.0.1", "::1"], now=now))
    return tmp_path / "chain", tmp_path / "key", ca


@pytest.fixture
def front(tmp_path, certificate, valkey):
    """front(program, bind): starts it in a folder with a blank in its name; returns its port."""
    started = []

    def start(name, bind):
        program = shutil.which(name, path=PLACES)
        assert program, f"{name} is not installed: .ci/run"
        chain, key, _ca = certificate
        wanted = redis_front.Front(bind, free_port(), valkey.port, chain, key)
        argv = redis_front.prepare(tmp_path / "with blank", wanted, program)
        started.append(subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        return wanted.port

    yield start
    for process in started:
        process.terminate()
        process.wait(10)


def client(host, port, ca, **options):
    host = f"[{host}]" if ":" in host else host
    return redis.Redis.from_url(f"rediss://:secret@{host}:{port}/0", ssl_ca_data=ca, retry=None, **options)


def answers(host, port, ca):
    try:
        return client(host, port, ca).ping()
    except (redis.RedisError, OSError):
        return False


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(
    ("bind", "hosts"),
    [("127.0.0.1", ["127.0.0.1"]), ("::1", ["::1"]), ("0.0.0.0", ["127.0.0.1"]), ("::", ["::1", "127.0.0.1"])],
)
def test_redis_answers_through_it_on_every_kind_of_address(front, certificate, program, bind, hosts):
    port = front(program, bind)
    for host in hosts:
        until(lambda host=host: answers(host, port, certificate[2]), 60)
    with pytest.raises(redis.ConnectionError):  # plain text gets nowhere
        redis.Redis("127.0.0.1", port, retry=None, socket_timeout=3).ping()


@pytest.mark.parametrize("program", PROGRAMS)
def test_more_agents_than_a_login_shell_has_descriptors_for(front, certificate, program):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 650  # stunnel would take 500 with 1,024 descriptors
    if hard != resource.RLIM_INFINITY and hard < 4 * wanted:
        pytest.skip("the hard limit of open files is too low here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))  # what it inherits
    try:
        port = front(program, "127.0.0.1")
        until(lambda: answers("127.0.0.1", port, certificate[2]), 60)
        resource.setrlimit(resource.RLIMIT_NOFILE, (4 * wanted, hard))
        context = ssl.create_default_context(cadata=certificate[2])
        held = []
        for _ in range(wanted):
            plain = socket.create_connection(("127.0.0.1", port), 20)
            held.append(context.wrap_socket(plain, server_hostname="127.0.0.1"))
        for one in held:
            one.sendall(b"*1\r\n$4\r\nPING\r\n")
        assert {one.recv(7) for one in held} == {b"-NOAUTH"}
        for one in held:
            one.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_without_any_program_it_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setattr(redis_front, "PATHS", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadSetting, match=r"apt install stunnel4.*ALLOW_PLAINTEXT=1"):
        redis_front.find()


def test_an_nginx_without_the_module_is_no_front(monkeypatch, tmp_path):
    nginx = tmp_path / "nginx"
    nginx.write_text("#!/bin/sh\necho 'configure arguments: --with-http_ssl_module' >&2\n")
    nginx.chmod(0o755)
    monkeypatch.setattr(redis_front, "PATHS", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert redis_front.stream_module(str(nginx)) is None
    with pytest.raises(BadSetting, match="neither stunnel nor nginx"):
        redis_front.find()
    with pytest.raises(BadSetting, match="has no stream module"):
        redis_front.find(str(nginx))


def test_the_port_stays_what_joined_servers_know(tmp_path, valkey):
    kept = tmp_path / "tls" / "redis_port"
    first = redis_front.choose_port("127.0.0.1", kept, 0)
    assert first >= redis_front.FIRST_PORT
    assert redis_front.choose_port("127.0.0.1", kept, 0) == first == int(kept.read_text())
    kept.write_text(f"{valkey.port}\n")
    with pytest.raises(BadSetting, match=f"Port {valkey.port} .* is used by another program"):
        redis_front.choose_port("127.0.0.1", kept, 0)
    with pytest.raises(BadSetting, match=f"REDIS_TLS_PORT={valkey.port}"):
        redis_front.choose_port("127.0.0.1", kept, valkey.port)
    free = free_port()
    assert redis_front.choose_port("127.0.0.1", kept, free) == free
