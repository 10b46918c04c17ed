"""An engine is asked by hostile means, too: whatever answers, the asking ends in time and in words."""

import socket
import threading
import time

import pytest

from deployments.agent.engines import probe
from deployments.agent.engines.probe import Address


@pytest.fixture
def answering():
    """Starts a server that does with each connection what it is given; returns its address."""
    opened = []

    def start(act):
        listener = socket.create_server(("127.0.0.1", 0))
        opened.append(listener)

        def serve():
            try:
                while True:
                    line, _ = listener.accept()
                    asked = line.recv(65536)
                    try:
                        act(line, asked)
                    except OSError:
                        pass
                    line.close()
            except OSError:
                pass  # closed

        threading.Thread(target=serve, daemon=True).start()
        return Address("127.0.0.1", listener.getsockname()[1], "key-0123456789")

    yield start
    for listener in opened:
        listener.close()


def saying(data):
    return lambda line, asked: line.sendall(data)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200),
        (b"HTTP/1.0 503 Service Unavailable\r\n\r\n", 503),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\ncut off", 200),
        (b"SSH-2.0-OpenSSH\r\n\r\n", None),
        (b"", None),
        (b"HTTP/1.1 two hundred\r\n\r\n", None),
        (b"\0" * 9999, None),
    ],
)
def test_what_answers_is_judged_by_its_status_line(answering, data, status):
    assert probe.health(answering(saying(data))).status == status


def test_one_that_says_a_byte_now_and_then_is_not_waited_for(answering):
    def drip(line, asked):
        for _ in range(200):
            line.sendall(b"H")
            time.sleep(0.05)

    began = time.monotonic()
    answer = probe.health(answering(drip), 0.4)
    assert answer.status is None and answer.problem == "timeout" and time.monotonic() - began < 2


def test_an_endless_answer_is_cut(answering):
    def pour(line, asked):
        line.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            line.sendall(b"x" * 65536)

    assert probe.ask(answering(pour), "/metrics", within_s=5, most=1_000_000).problem == "the answer is too long"


def test_nobody_there_is_said():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        answer = probe.health(Address("127.0.0.1", free.getsockname()[1]))
    assert answer.status is None and "refused" in answer.problem


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"choices": []}', b"[" * 100_000, b"<html>"])
def test_a_completion_needs_a_choice(answering, body):
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    assert "did not answer one completion" in probe.completion(answering(saying(head + body)), "m").en


def test_a_model_that_only_chats_is_ready_by_a_chat(answering):
    def chats(line, asked):
        assert b"Authorization: Bearer key-0123456789\r\n" in asked
        body = b'{"choices": [{}]}' if b"/v1/chat/" in asked else b"no"
        status = b"200 OK" if b"/v1/chat/" in asked else b"400 Bad Request"
        line.sendall(b"HTTP/1.1 " + status + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    assert probe.completion(answering(chats), "m") is None


@pytest.mark.parametrize(
    ("address", "host"), [("0.0.0.0", "127.0.0.1"), ("", "127.0.0.1"), ("::", "::1"), ("10.0.0.7", "10.0.0.7")]
)
def test_an_engine_that_listens_everywhere_is_asked_on_loopback(address, host):
    assert probe.address_of({"address": address, "port": 8000}) == Address(host, 8000, "")
