"""Certificate and ports, as pages, on the terminal and as alerts."""

import csv
import io
import json
from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.core.management import CommandError, call_command

from console import certificates, own_alerts, ports, tls
from console.models import Alert, User

PAGES = ("/certificate/", "/ports/", "/ports/ports.csv")


@pytest.fixture(autouse=True)
def networked(settings, tmp_path, monkeypatch):
    """A console on an address of a network, as `make up` leaves it."""
    monkeypatch.delenv("REDIS_URL", raising=False)
    settings.VAR_DIR, settings.HTTPS, settings.BIND, settings.PORT = tmp_path, True, "10.0.0.5", 8000
    settings.ALLOWED_HOSTS, settings.LANGUAGE_CODE = ["*"], "en"
    settings.REDIS_URL = "redis://console:geheim@127.0.0.1:16379/0"
    tls.prepare(["10.0.0.5"])
    (tmp_path / "tls" / "redis_port").write_text("6380\n")


@pytest.fixture
def page(client, db):
    client.force_login(User.objects.create_user("root", password="only-for-this-test", role="administrator"))
    client.cookies["django_language"] = "en"
    return client


def text(answer):
    return answer.content.decode()


def test_only_administrators_see_them(client, operator):
    assert all(client.get(path).status_code == 302 for path in (*PAGES, "/certificate/ca.crt"))
    client.force_login(operator)
    assert all(client.get(path).status_code == 403 for path in PAGES)
    assert client.get("/certificate/ca.crt").status_code == 200  # their browser needs it


def test_the_certificate_page_tells_what_to_compare_and_the_file_is_the_authority(page):
    shown = text(page.get("/certificate/"))
    assert tls.facts().fingerprint in shown
    assert tls.authority_facts().fingerprint in shown
    assert "824 days left" in shown
    assert "https://10.0.0.5:8000" in shown and "rediss://10.0.0.5:6380" in shown
    answer = page.get("/certificate/ca.crt")
    assert text(answer) == tls.shown().ca
    assert "PRIVATE" not in shown + text(answer)


def test_the_page_says_what_is_wrong(page, settings):
    settings.PUBLIC_URL = "https://console.example:8000"
    shown = text(page.get("/certificate/"))
    assert "does not hold console.example" in shown
    assert "start the console anew" in shown.lower()


def test_without_a_certificate_the_page_says_how_to_get_one(page, settings, tmp_path):
    settings.VAR_DIR, settings.HTTPS, settings.BIND = tmp_path / "none", False, "127.0.0.1"
    assert "There is no certificate" in text(page.get("/certificate/"))
    assert page.get("/certificate/ca.crt").status_code == 404


def test_an_unreadable_certificate_is_no_500(page, tmp_path):
    (tmp_path / "tls" / "server.crt").write_text("nothing")
    answer = page.get("/certificate/")
    assert answer.status_code == 200
    assert "cannot be read" in text(answer)


def test_ports_are_those_of_this_site_and_no_secret_is_among_them(page, capsys):
    shown, file = text(page.get("/ports/")), text(page.get("/ports/ports.csv"))
    call_command("ports")
    table = capsys.readouterr().out
    call_command("ports", "--json")
    listed = json.loads(capsys.readouterr().out)
    assert [(way["source"], way["target"], way["port"], way["tls"]) for way in listed] == [
        ("browsers, ticketing", "10.0.0.5", 8000, True),
        ("servers", "10.0.0.5", 8000, True),
        ("servers", "10.0.0.5", 6380, True),
        ("console", "servers", 22, None),
        ("this machine", "127.0.0.1", 16379, False),
    ]
    rows = list(csv.reader(io.StringIO(file.removeprefix("\ufeff"))))
    assert rows[0] == ["source", "target", "port", "protocol", "TLS", "purpose"]
    assert len(rows) == len(listed) + 1 == len(table.splitlines())
    assert all(way["purpose"]["zh"] for way in listed)
    assert {row[3] for row in rows[1:]} == {"TCP"} and rows[4][4] == "SSH encrypts itself"
    assert "geheim" not in shown + file + table
    page.cookies["django_language"] = "zh-hans"
    assert "来源" in text(page.get("/ports/ports.csv"))


@pytest.mark.parametrize(
    ("changed", "row"),
    [
        ({"ALLOW_PLAINTEXT": True, "HTTPS": False}, ("servers", "10.0.0.5", 16379, False)),
        ({"REDIRECT_PORT": 80}, ("browsers, ticketing", "10.0.0.5", 80, False)),
        ({"PUBLIC_URL": "https://c.example"}, ("the site's proxy", "10.0.0.5", 8000, True)),
        ({"PUBLIC_URL": "https://c.example"}, ("servers", "c.example", 443, True)),
        ({"PUBLIC_REDIS_URL": "rediss://r.example:7000/0"}, ("servers", "r.example", 7000, True)),
        ({"PUBLIC_REDIS_URL": "rediss://r.example:7000/0"}, ("the site's proxy", "10.0.0.5", 6380, True)),
    ],
)
def test_each_setting_has_its_row(settings, changed, row):
    for name, value in changed.items():
        setattr(settings, name, value)
    assert row in [(way.source.en, way.target.en, way.port, way.tls) for way in ports.ways()]


@pytest.mark.parametrize(("mode", "tls_"), [("require", True), ("disable", False), (None, None)])
def test_a_database_over_the_network_is_a_row(monkeypatch, mode, tls_):
    options = {"sslmode": mode} if mode else {}
    databases = {"default": {"HOST": "db.example", "PORT": "", "OPTIONS": options}}
    monkeypatch.setattr(ports, "settings", SimpleNamespace(DATABASES=databases))
    assert [(way.target.en, way.port, way.tls) for way in ports._database()] == [("db.example", 5432, tls_)]


# ---------- alerts ----------


def firing():
    return {alert.name: alert for alert in Alert.objects.filter(ended_at=None)}


def at(monkeypatch, shift):
    made = certificates.now() + shift
    monkeypatch.setattr(certificates, "now", lambda: made)


@pytest.mark.django_db
def test_the_end_of_the_certificate_is_announced_30_and_7_days_before(monkeypatch):
    own_alerts.look()
    assert firing() == {}
    at(monkeypatch, timedelta(days=certificates.SERVER_DAYS - 29))
    own_alerts.look()
    assert firing()["certificate-expiry"].severity == "warning"
    at(monkeypatch, timedelta(days=23))
    own_alerts.look()
    assert firing()["certificate-expiry"].severity == "critical"
    assert "in 6 days" in firing()["certificate-expiry"].what[1]
    tls.prepare(["10.0.0.5"])  # as the next start does
    own_alerts.look()
    assert "certificate-expiry" not in firing()


@pytest.mark.django_db
def test_a_name_that_the_certificate_lacks_and_plain_text_are_alerts_until_mended(settings):
    settings.PUBLIC_URL = "https://console.example:8000"
    settings.ALLOW_PLAINTEXT = True
    own_alerts.look()
    assert set(firing()) == {"certificate-fault", "plaintext"}
    assert "console.example" in firing()["certificate-fault"].what[0]
    settings.PUBLIC_URL, settings.ALLOW_PLAINTEXT = "", False
    own_alerts.look()
    assert firing() == {}


# ---------- manage.py certificate ----------


@pytest.mark.django_db
def test_the_command_shows_and_rotates(capsys, settings):
    call_command("certificate", "show")
    assert tls.facts().fingerprint in capsys.readouterr().out
    old = tls.shown().ca
    call_command("certificate", "rotate")
    tls.prepare([])
    assert tls.shown().ca != old
    settings.TLS_CERTIFICATE = "/site.pem"
    with pytest.raises(CommandError, match="site's own"):
        call_command("certificate", "rotate")
