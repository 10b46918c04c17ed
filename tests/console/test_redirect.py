"""Plain HTTP is led to HTTPS, and what is no request gets no redirect."""

import asyncio

import pytest

from console import redirect


def head(line="GET /jobs/?q=a%20b HTTP/1.1", host="Host: kp-01:80"):
    return f"{line}\r\n{host}\r\nUser-Agent: x\r\n\r\n".encode("latin-1")


@pytest.mark.parametrize(
    ("given", "port", "wanted"),
    [
        (head(), 443, "https://kp-01/jobs/?q=a%20b"),
        (head(), 8443, "https://kp-01:8443/jobs/?q=a%20b"),
        (head(host="host: 10.0.0.5"), 8443, "https://10.0.0.5:8443/jobs/?q=a%20b"),
        (head(host="Host: [fd00::5]:80"), 443, "https://[fd00::5]/jobs/?q=a%20b"),
        (head("GET http://evil.example/ HTTP/1.1"), 443, None),
        (head("GET /\x01 HTTP/1.1"), 443, None),
        (head("GET /"), 443, None),
        (head(host="Host: a/b@c"), 443, None),
        (head(host="Host: a\r\nHost: b"), 443, None),
        (head(host="X: y"), 443, None),
        (b"\x16\x03\x01\xff\r\n\r\n", 443, None),
    ],
)
def test_only_a_request_to_a_host_is_led_on(given, port, wanted):
    assert redirect.location(given, port) == wanted
    said = redirect.answer(wanted).decode()
    assert said.startswith("HTTP/1.1 308" if wanted else "HTTP/1.1 400")
    assert said.count("\r\n\r\n") == 1


async def test_slow_and_endless_callers_are_let_go(monkeypatch):
    monkeypatch.setattr(redirect, "WAIT_S", 0.3)
    server = await asyncio.start_server(redirect.Redirect(443).serve, "127.0.0.1", 0, limit=redirect.MAX_HEAD)
    port = server.sockets[0].getsockname()[1]

    async def said(sent):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        try:
            return await asyncio.wait_for(reader.read(), 5)
        except ConnectionError:
            return b""
        finally:
            writer.close()

    async with server:
        assert (await said(head())).startswith(b"HTTP/1.1 308")
        assert await said(b"GET / HTTP/1.1\r\n") == b""
        assert await said(b"x" * 100_000) == b""
        monkeypatch.setattr(redirect, "AT_ONCE", 0)
        assert await said(head()) == b""
