"""`manage.py up` with TLS as an operator meets it: real processes; what cannot be started with is one sentence."""

import contextlib
import json
import os
import re
import signal
import socket
import ssl
import urllib.error
import urllib.request
from datetime import timedelta
from pathlib import Path

import pytest
import redis

from console import certificates
from tests.conftest import free_port
from tests.console.test_up import Console, check_refused
from tests.deployments.joining import Browser
from tests.whole import Whole

pytestmark = pytest.mark.slow


@pytest.fixture
def console(tmp_path):
    made = Console(tmp_path / "var")
    yield made
    made.end()


@pytest.fixture
def site(tmp_path):
    """site(shift): the settings that name a certificate for loopback, made as of now + shift."""

    def make(shift=timedelta(0)):
        now, ca_key, key = certificates.now(), certificates.new_key(), certificates.new_key()
        ca = certificates.authority(ca_key, "Site CA", now=now + min(shift, timedelta(0)))
        chain = certificates.server(key, ca, ca_key, ["127.0.0.1", "localhost"], now=now + shift)
        given = {}
        for name, text in (("TLS_CERTIFICATE", chain), ("TLS_KEY", key), ("TLS_CA", ca)):
            (tmp_path / name).write_text(text)
            given[name] = str(tmp_path / name)
        return given

    return make


def test_pages_by_https_on_every_address_and_redis_by_tls(tmp_path):
    whole = Whole(tmp_path, demo_servers=0, tls=True, BIND="0.0.0.0")
    try:
        assert f"https://{socket.gethostname()}:{whole.port}/" in whole.printed.read_text()
        browser = Browser(whole)  # signs in, so the cookies are good
        certificate = browser.get("/certificate/")
        front = int((tmp_path / "var/tls/redis_port").read_text())
        assert f"rediss://{socket.gethostname()}:{front}" in certificate
        _path, command = browser.command("kp-50")
        assert f"https://{socket.gethostname()}:{whole.port}/join/" in command and "--pinnedpubkey" in command
        rows = json.loads(whole.command("ports", "--json"))
        assert {(row["port"], row["tls"]) for row in rows if not row["inside"]} == {
            (whole.port, True), (front, True), (22, None),
        }  # fmt: skip
        with pytest.raises(redis.AuthenticationError):  # there is a Redis, and it asks who we are
            redis.Redis("127.0.0.1", front, ssl=True, ssl_ca_certs=str(whole.ca), retry=None).ping()
        assert whole.call("/alerts", whole.token())["alerts"] == []
    finally:
        whole.stop()


def test_plain_text_is_said_on_every_page_and_as_an_alert(tmp_path):
    whole = Whole(tmp_path, demo_servers=0, BIND="0.0.0.0", ALLOW_PLAINTEXT="1")
    try:
        browser = Browser(whole)
        assert all("ALLOW_PLAINTEXT=1" in browser.get(path) for path in ("/", "/jobs/", "/ports/"))
        assert [alert["name"] for alert in whole.call("/alerts", whole.token())["alerts"]] == ["plaintext"]
        assert not (tmp_path / "var/tls").exists()
    finally:
        whole.stop()


def test_the_sites_certificate_serves_on_loopback_too_and_plain_http_is_led_there(tmp_path, site):
    plain = free_port()
    whole = Whole(tmp_path, demo_servers=0, tls=True, REDIRECT_PORT=str(plain), **site())
    try:
        Browser(whole)
        with whole.open(f"http://127.0.0.1:{plain}/healthz", timeout=5) as answer:
            assert answer.url == f"{whole.url}/healthz"
        assert not (tmp_path / "var/tls").exists()
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            urllib.request.urlopen(f"{whole.url}/healthz", context=ssl.create_default_context())
    finally:
        whole.stop()


def test_an_expired_certificate_does_not_keep_the_console_down(console, site):
    console.up(DEMO_SERVERS="0", **site(timedelta(days=-900)))
    console.until(lambda: "Ready" in console.said())
    assert "The certificate has expired" in console.said()
    assert "Put a new one where TLS_CERTIFICATE" in console.said()


def test_a_key_of_another_certificate_is_refused(console, site, tmp_path):
    given = site()
    (tmp_path / "TLS_KEY").write_text(certificates.new_key())
    check_refused(console, "is not the key of TLS_CERTIFICATE", **given)


def test_a_certificate_without_a_key_is_refused(console, site):
    given = site()
    check_refused(console, "TLS_KEY is not", TLS_CERTIFICATE=given["TLS_CERTIFICATE"])


def test_pages_in_plain_http_on_a_network_are_refused(console):
    check_refused(console, "TLS=0 with BIND=0.0.0.0", "ALLOW_PLAINTEXT=1", BIND="0.0.0.0", TLS="0")


def test_a_redirect_that_leads_nowhere_is_refused(console):
    check_refused(console, "does not speak", REDIRECT_PORT=str(free_port()))
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        check_refused(console, f"REDIRECT_PORT={port} is used", REDIRECT_PORT=port, TLS="1")


def test_a_taken_port_of_redis_is_refused(console):
    with socket.create_server(("0.0.0.0", 0)) as other:
        port = str(other.getsockname()[1])
        check_refused(console, f"REDIS_TLS_PORT={port} is used", BIND="0.0.0.0", REDIS_TLS_PORT=port)


def test_a_front_that_is_no_program_is_refused(console):
    check_refused(console, "TLS_FRONT='/etc/passwd' is no program", BIND="0.0.0.0", TLS_FRONT="/etc/passwd")


def test_a_killed_front_comes_back(console):
    port = free_port()
    console.up(DEMO_SERVERS="0", BIND="0.0.0.0", REDIS_TLS_PORT=str(port))
    console.until(lambda: "Ready" in console.said())
    (before,) = fronts(console)
    os.kill(before, signal.SIGKILL)
    console.until(lambda: fronts(console) not in ([], [before]) and listens(port), 60)
    assert before not in fronts(console)


def fronts(console):
    """Pids of what gives TLS to Redis."""
    found = []
    for pid in console.processes():
        with contextlib.suppress(OSError):
            if re.match(rb"[^\0]*(stunnel|nginx)", Path(f"/proc/{pid}/cmdline").read_bytes()):
                found.append(pid)
    return found


def listens(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
