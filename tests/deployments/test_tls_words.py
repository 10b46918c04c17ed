"""What a server says when TLS with the console fails: each is a real handshake of redis-py with a real certificate."""

import logging
import socket
import ssl
import threading
from datetime import timedelta

import pytest

from console import certificates
from deployments.agent import config, link, tls_words
from deployments.agent.join_checks import Stopped, check_redis

DAY = timedelta(days=1)


class Server(threading.Thread):
    """Takes connections with the certificate that it is given, or in plain text, and ends each."""

    def __init__(self, context):
        super().__init__(daemon=True)
        self.context = context
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.start()

    def run(self):
        while True:
            try:
                plain, _address = self.listener.accept()
            except OSError:
                return
            try:
                with plain, self.context.wrap_socket(plain, server_side=True) if self.context else plain as near:
                    near.sendall(b"-ERR this is no Redis\r\n")
                    near.recv(1)
            except OSError:
                pass


@pytest.fixture
def serve(tmp_path):
    """serve(names, at=…): a server whose certificate is made as of `at`; (its port, its authority)."""
    started = []

    def start(*names, at=None):
        at = at or certificates.now()
        ca_key, key = certificates.new_key(), certificates.new_key()
        ca = certificates.authority(ca_key, "CA", now=min(at, certificates.now()))
        (tmp_path / "key").write_text(key)
        (tmp_path / "chain").write_text(certificates.server(key, ca, ca_key, names, now=at) if names else "")
        context = certificates.check_pair(tmp_path / "chain", tmp_path / "key") if names else None
        started.append(Server(context))
        return started[-1].port, ca

    yield start
    for server in started:
        server.listener.close()


def configured(tmp_path, port, ca):
    data = {
        "server_id": 7, "name": "kp-07", "redis_url": f"rediss://h7:x@127.0.0.1:{port}/0", "prefix": "h:7",
        "key": "5a" * 32, "state_dir": str(tmp_path), "redis_ca": ca,
    }  # fmt: skip
    return config.parse(tmp_path / "config.json", data)


OLD, COMING = timedelta(days=-900), timedelta(days=30)


@pytest.mark.parametrize(
    ("names", "shift", "code", "said"),
    [
        (["127.0.0.1"], COMING, "tls_clock", "this server's clock says"),
        (["127.0.0.1"], OLD, "tls_expired", "has expired"),
        (["10.0.0.9", "console.example"], None, "tls_name", "does not hold 127.0.0.1"),
        ([], None, "tls_plain", "speaks no TLS"),
    ],
)
def test_each_fault_is_a_sentence_with_what_to_do(tmp_path, serve, names, shift, code, said):
    port, ca = serve(*names, at=shift and certificates.now() + shift)
    with pytest.raises(Stopped) as stopped:
        check_redis(configured(tmp_path, port, ca))
    assert stopped.value.code == code
    assert said in stopped.value.text.en
    assert stopped.value.text.zh
    assert len(stopped.value.code) <= 20  # what the console takes


def test_an_unknown_authority_is_a_sentence(tmp_path, serve):
    port, _ca = serve("127.0.0.1")
    _port, other = serve("127.0.0.1")
    with pytest.raises(Stopped) as stopped:
        check_redis(configured(tmp_path, port, other))
    assert stopped.value.code == "tls_issuer"
    assert "join again" in stopped.value.text.en


def test_the_agent_logs_it_in_words(tmp_path, serve, caplog):
    port, ca = serve("127.0.0.1", at=certificates.now() + COMING)
    carrying = link.Link(made := configured(tmp_path, port, ca), link.connect(made), worker_alive=lambda: True)
    with caplog.at_level(logging.WARNING):
        carrying.tick()
    assert "is not valid yet" in caplog.text


def test_a_reason_that_shows_only_later_is_logged_once(caplog):
    back_off, hidden = link.BackOff("beat"), ConnectionError("redis-py's own")
    hidden.__context__ = ssl.SSLCertVerificationError(1, "x")
    hidden.__context__.verify_code, hidden.__context__.verify_message = 10, "certificate has expired"
    with caplog.at_level(logging.WARNING):
        for error in (ConnectionRefusedError(111, "refused"), hidden, ConnectionRefusedError(111, "again"), hidden):
            back_off.failed(0.0, error)
    assert len(caplog.records) == 2
    assert "refused" in caplog.messages[0] and "has expired" in caplog.messages[1]


def test_other_errors_are_left_to_others():
    assert tls_words.explain(ConnectionRefusedError(111, "refused")) is None
    assert tls_words.explain(ssl.SSLError("handshake")) is not None


def test_an_authority_that_is_none_is_refused(tmp_path):
    with pytest.raises(config.ConfigError, match="redis_ca"):
        configured(tmp_path, 1, "no certificate")
