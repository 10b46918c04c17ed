"""The console's own authority and certificate, the site's, and what is said when one does not serve."""

import stat
from datetime import timedelta

import pytest

from console import addresses, certificates, names, tls
from console.environment import BadSetting, private_key, program, with_authority

HOST = "console.example"


@pytest.fixture(autouse=True)
def own(settings, tmp_path):
    settings.VAR_DIR, settings.HTTPS, settings.BIND, settings.PORT = tmp_path, True, "10.0.0.5", 8000
    settings.ALLOWED_HOSTS = ["*"]
    return tmp_path / "tls"


def at(monkeypatch, shift):
    made = certificates.now() + shift
    monkeypatch.setattr(certificates, "now", lambda: made)


def test_the_first_start_makes_an_authority_and_a_certificate_for_all_names(own):
    tls.prepare([HOST, "10.0.0.5"])
    held = tls.facts().names
    assert {HOST, "10.0.0.5", "localhost", "127.0.0.1"} <= set(held)
    assert tls.troubles([HOST, "10.0.0.5", "127.0.0.1"]) == []
    assert [fault.code for fault in tls.troubles(["elsewhere.example"])] == ["name"]
    for name in ("ca.key", "server.key"):
        assert stat.S_IMODE((own / name).stat().st_mode) == 0o600
    assert tls.fingerprint() == tls.facts().pin


def test_another_start_changes_nothing(own):
    tls.prepare([HOST])
    before = {path.name: path.read_bytes() for path in own.iterdir()}
    tls.prepare([HOST])
    assert {path.name: path.read_bytes() for path in own.iterdir()} == before


def test_a_new_name_and_the_last_30_days_renew_it_with_the_same_key(own, monkeypatch):
    tls.prepare([])
    first = tls.facts()
    tls.prepare([HOST])
    second = tls.facts()
    assert HOST in second.names and second.fingerprint != first.fingerprint
    at(monkeypatch, timedelta(days=certificates.SERVER_DAYS - 31))
    tls.prepare([HOST])
    assert tls.facts() == second
    at(monkeypatch, timedelta(days=2))
    tls.prepare([HOST])
    third = tls.facts()
    assert third.not_after > second.not_after
    assert first.pin == second.pin == third.pin


def test_the_next_authority_is_vouched_for_by_the_one_before(own):
    tls.prepare([HOST])
    old, pin = (own / "ca.crt").read_text(), tls.fingerprint()
    tls.rotate()
    assert tls.shown().ca == old and tls.troubles([HOST]) == []  # what runs goes on until the next start
    tls.prepare([HOST])
    new = tls.shown()
    assert new.ca != old
    for ca in (old, new.ca):
        assert certificates.trouble(new.chain, new.key, ca, HOST) == ""
    assert tls.fingerprint() == pin

    tls.rotate()
    tls.rotate(stolen=True)  # the later counts
    tls.prepare([HOST])
    last = tls.shown()
    assert certificates.trouble(last.chain, last.key, last.ca, HOST) == ""
    for ca in (old, new.ca):
        assert certificates.trouble(last.chain, last.key, ca, HOST) == "issuer"
    assert tls.fingerprint() != pin


@pytest.mark.parametrize("stolen", [False, True])
@pytest.mark.parametrize("moved", [0, 1, 2])
def test_a_start_that_is_cut_off_while_it_takes_the_next_authority_is_made_good(own, monkeypatch, moved, stolen):
    tls.prepare([HOST])
    tls.rotate(stolen=stolen)
    wanted, replace = (own / "next.crt").read_text(), type(own).replace
    left = [moved]

    def cut_off(path, target):
        if path.name.startswith("next"):
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
        return replace(path, target)

    monkeypatch.setattr(type(own), "replace", cut_off)
    with pytest.raises(KeyboardInterrupt):
        tls.prepare([HOST])
    monkeypatch.undo()
    tls.prepare([HOST])
    assert tls.shown().ca == wanted
    assert tls.troubles([HOST]) == []
    assert not list(own.glob("next*"))
    assert (own / "server.crt").read_text().count("BEGIN") == (1 if stolen else 2)


def test_an_authority_that_ends_in_three_years_gets_the_next_one_by_itself(own, monkeypatch):
    tls.prepare([HOST])
    old = (own / "ca.crt").read_text()
    at(monkeypatch, timedelta(days=certificates.AUTHORITY_DAYS - tls.NEXT_AUTHORITY_DAYS + 1))
    tls.prepare([HOST])
    assert (own / "ca.crt").read_text() != old
    assert (own / "server.crt").read_text().count("BEGIN") == 2


def test_a_clock_that_was_never_set_makes_no_certificate(own, monkeypatch):
    monkeypatch.setattr(certificates, "now", lambda: certificates.datetime(1970, 1, 1, tzinfo=certificates.UTC))
    with pytest.raises(BadSetting, match="clock says 1970-01-01"):
        tls.prepare([HOST])
    assert not own.exists()


@pytest.mark.parametrize("broken", ["ca.crt", "ca.key", "server.key", "server.crt"])
def test_a_broken_file_is_a_sentence(own, broken):
    tls.prepare([HOST])
    (own / broken).write_text("")
    if broken != "server.crt":
        (own / "server.crt").unlink()
    with pytest.raises(BadSetting, match="cannot be used"):
        tls.prepare([HOST])


@pytest.fixture
def site(settings, tmp_path):
    """site(shift, *names): the site's certificate, as of now + shift; sets TLS_*."""

    def make(shift, *held, ca=True):
        now = certificates.now()
        ca_key, key = certificates.new_key(), certificates.new_key()
        signed = certificates.authority(ca_key, "Site CA", now=now + min(shift, timedelta(0)))
        chain = certificates.server(key, signed, ca_key, held, now=now + shift)
        for name, text in (("site.crt", chain), ("site.key", key), ("site-ca.crt", signed)):
            (tmp_path / name).write_text(text)
        settings.TLS_CERTIFICATE, settings.TLS_KEY = str(tmp_path / "site.crt"), str(tmp_path / "site.key")
        settings.TLS_CA = str(tmp_path / "site-ca.crt") if ca else ""

    return make


@pytest.mark.parametrize(
    ("shift", "held", "ca", "code"),
    [
        (timedelta(0), HOST, True, None),
        (timedelta(days=-900), HOST, True, "expired"),
        (timedelta(days=9), HOST, True, "not_yet"),
        (timedelta(0), "other.example", True, "name"),
        (timedelta(0), HOST, False, "issuer"),
    ],
)
def test_the_sites_certificate_is_judged_as_a_client_does(site, own, shift, held, ca, code):
    site(shift, held, ca=ca)
    tls.prepare([HOST])  # starts all the same: pages are better than none at night
    faults = tls.troubles([HOST])
    assert [fault.code for fault in faults] == ([code] if code else [])
    assert all(fault.what.zh and fault.do.en for fault in faults)
    assert not own.exists()


def test_a_key_of_another_certificate_stops_the_start(site, tmp_path):
    site(timedelta(0), HOST)
    (tmp_path / "site.key").write_text(certificates.new_key())
    with pytest.raises(BadSetting, match="is not the key of TLS_CERTIFICATE"):
        tls.prepare([HOST])
    assert [fault.code for fault in tls.troubles([HOST])] == ["key"]


def test_bad_settings_are_sentences(tmp_path, monkeypatch):
    key = tmp_path / "key"
    key.write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----")
    monkeypatch.setenv("TLS_KEY", str(key))
    with pytest.raises(BadSetting, match="TLS_KEY is given, but TLS_CERTIFICATE is not"):
        private_key("TLS_KEY", goes_with="TLS_CERTIFICATE")
    monkeypatch.setenv("TLS_CERTIFICATE", "x")
    with pytest.raises(BadSetting, match="passphrase"):
        private_key("TLS_KEY", goes_with="TLS_CERTIFICATE")
    key.write_text("nothing")
    with pytest.raises(BadSetting, match="no private key"):
        private_key("TLS_KEY", goes_with="TLS_CERTIFICATE")
    monkeypatch.setenv("TLS_FRONT", str(key))
    with pytest.raises(BadSetting, match="no program"):
        program("TLS_FRONT")


def test_the_address_of_a_redis_names_its_authority_to_us_and_to_nobody_else(settings, monkeypatch):
    monkeypatch.setenv("REDIS_URL", "given")
    settings.REDIS_URL = with_authority("rediss://u:p@redis.example:6380/0?protocol=3", "/etc/ca.pem")
    assert settings.REDIS_URL.endswith("?protocol=3&ssl_ca_certs=/etc/ca.pem")
    assert addresses.public_redis_url() == "rediss://u:p@redis.example:6380/0?protocol=3"
    assert with_authority("redis://h:1/0", "/etc/ca.pem") == "redis://h:1/0"


def test_agents_are_told_the_address_and_the_authority_of_the_front(settings, own, monkeypatch):
    monkeypatch.delenv("REDIS_URL", raising=False)
    settings.ALLOW_PLAINTEXT = False
    tls.prepare([HOST])
    (own / "redis_port").write_text("6380\n")
    assert addresses.public_redis_url() == "rediss://10.0.0.5:6380/0"
    assert addresses.redis_authority() == (own / "ca.crt").read_text()
    settings.REDIS_BIND = "fd00::5"
    assert addresses.public_redis_url() == "rediss://[fd00::5]:6380/0"
    settings.ALLOW_PLAINTEXT = True
    assert addresses.redis_authority() == ""


def test_the_pin_is_ours_only_where_our_own_server_answers(settings):
    tls.prepare([HOST])
    own_pin = tls.facts().pin
    settings.PUBLIC_URL = "https://console.example:8000"
    assert tls.fingerprint() == own_pin
    settings.PUBLIC_URL = "https://console.example"  # a proxy with a certificate that we do not know
    assert tls.fingerprint() is None
    settings.PUBLIC_CERTIFICATE = str(tls.shown().chain)
    assert tls.fingerprint() == own_pin


def test_names_are_those_that_a_certificate_may_hold():
    assert all(map(names.is_name, ("kp-01", "a.example", "*.example", "x_y")))
    assert not any(map(names.is_name, ("", "-a", "a..b", "10.0.0.1", "127.1", "0x7f.1", "a b", "名", "a" * 64)))
    found = names.of_this_machine()
    assert {"localhost", "127.0.0.1"} <= set(found)
    assert len(found) == len(set(found)) <= names.MOST + 5
