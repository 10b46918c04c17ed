"""What joining is made of: the bundle, runtimes, addresses, the pin, the unit."""

import io
import shlex
import subprocess
import tarfile
from hashlib import sha256

import pytest
from django.core.management import CommandError, call_command

from console import addresses, tls
from console.environment import BadSetting, certificate, web_url
from console.models import User
from deployments.agent import install
from deployments.services import bundle, join, join_script, runtimes


@pytest.fixture
def administrator(db):
    return User.objects.create_user("root", password="only-for-this-test", role="administrator")


@pytest.fixture(autouse=True)
def var(settings, tmp_path):
    settings.VAR_DIR = tmp_path
    return tmp_path


def test_the_bundle_is_always_the_same_and_holds_plain_code_only():
    first = bundle.agent()
    bundle.agent.cache_clear()
    assert bundle.agent() == first
    assert first.digest == sha256(first.data).hexdigest()
    with tarfile.open(fileobj=io.BytesIO(first.data)) as tar:
        names = tar.getnames()
    assert {"lib/deployments/agent/worker.py", "lib/monitoring/parsers/npu_smi_info.py", "site/rq/worker/base.py"} & {
        *names
    }
    assert not [name for name in names if name.endswith((".so", ".pyc")) or ".." in name]
    django = ("lib/deployments/models", "lib/deployments/services", "lib/monitoring/models", "lib/console")
    assert not [name for name in names if name.startswith(django)]


def archive(path, *, machine=0xB7, minor=12, head=b"\x7fELF", python=True):
    with tarfile.open(path, "w:gz") as tar:
        program = head.ljust(18, b"\0") + machine.to_bytes(2, "little") + b"\0" * 60
        for name, data in {"python/bin/python3.12": program, f"python/lib/python3.{minor}/os.py": b""}.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
        if python:
            link = tarfile.TarInfo("python/bin/python3")
            link.type, link.linkname = tarfile.SYMTYPE, "python3.12"
            tar.addfile(link)
    return sha256(path.read_bytes()).hexdigest()


def test_a_runtime_is_kept_for_its_kind_of_machine(tmp_path, capsys, administrator, client):
    file = tmp_path / "cpython.tar.gz"
    digest = archive(file)
    call_command("runtimes", "add", str(file), sha256=digest)
    found = runtimes.present()["aarch64"]
    assert (found.version, found.python, found.digest) == ("3.12", "python/bin/python3", digest)
    enrolment = join.make("kp-01", by=administrator)
    enrolment.script_digest = join_script.digest(join_script.script(enrolment))
    enrolment.save()
    assert f"RUNTIME_aarch64={shlex.quote(f'{digest} python/bin/python3')}" in join_script.script(enrolment)
    assert client.get(f"/join/{enrolment.token}/runtime/x86_64").status_code == 404
    call_command("runtimes", "list")
    assert digest in capsys.readouterr().out
    # What the script says has changed with it, so its digest is no longer true.
    call_command("runtimes", "remove", "aarch64")
    assert client.get(f"/join/{enrolment.token}").status_code == 409


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"machine": 0x28}, "no Python for Linux"),
        ({"head": b"#!/bin/sh"}, "no Python for Linux"),
        ({"minor": 9}, "needs 3.10"),
        ({"python": False}, "holds no Python"),
    ],
)
def test_a_file_that_is_no_runtime_is_refused_in_words(tmp_path, change, words):
    file = tmp_path / "other.tar.gz"
    digest = archive(file, **change)
    with pytest.raises(CommandError, match=words):
        call_command("runtimes", "add", str(file), sha256=digest)
    assert not runtimes.present()


def test_a_wrong_digest_or_file_is_refused_in_words(tmp_path):
    file = tmp_path / "cpython.tar.gz"
    archive(file)
    for path, digest in ((file, "0" * 64), (tmp_path / "none", "0" * 64)):
        with pytest.raises(CommandError):
            call_command("runtimes", "add", str(path), sha256=digest)
    file.write_bytes(b"not an archive")
    with pytest.raises(CommandError, match=r"no \.tar\.gz"):
        call_command("runtimes", "add", str(file), sha256=sha256(b"not an archive").hexdigest())


def test_addresses_for_others(settings):
    settings.BIND, settings.PORT, settings.REDIS_URL = "10.0.0.5", 8000, "redis://:x@127.0.0.1:16379/0"
    settings.PUBLIC_URL = settings.PUBLIC_REDIS_URL = ""
    assert addresses.public_url() == "http://10.0.0.5:8000"
    assert "127.0.0.1" in addresses.public_redis_url()
    settings.ALLOW_PLAINTEXT = True
    assert addresses.public_redis_url() == "redis://10.0.0.5:16379/0"
    assert addresses.valkey_bind() == "10.0.0.5"
    settings.BIND = "127.0.0.1"
    assert addresses.valkey_bind() == ""
    assert all(addresses.is_loopback(host) for host in ("::1", "[::1]", "localhost", "::ffff:127.0.0.1", "127.1.2.3"))
    assert not any(addresses.is_loopback(host) for host in ("10.0.0.1", "", "x", "localhost.example"))


def test_bad_settings_are_sentences(monkeypatch, tmp_path):
    for bad in ("ftp://x", "http://x/path", "http://", "http://x:port", "https://u:p@x"):
        monkeypatch.setenv("PUBLIC_URL", bad)
        with pytest.raises(BadSetting, match="PUBLIC_URL"):
            web_url("PUBLIC_URL")
    (tmp_path / "x.pem").write_text("nothing")
    for bad in (tmp_path / "none", tmp_path / "x.pem"):
        monkeypatch.setenv("PUBLIC_CERTIFICATE", str(bad))
        with pytest.raises(BadSetting, match="PUBLIC_CERTIFICATE"):
            certificate("PUBLIC_CERTIFICATE")


@pytest.mark.parametrize("kind", [["rsa:2048"], ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"]])
def test_the_pin_is_the_one_that_openssl_makes(tmp_path, settings, kind):
    made = [
        "openssl",
        "req",
        "-x509",
        "-nodes",
        "-subj",
        "/CN=x",
        "-keyout",
        "k.pem",
        "-out",
        "c.pem",
        "-newkey",
        *kind,
    ]
    subprocess.run(made, cwd=tmp_path, check=True, capture_output=True)
    key = "openssl x509 -in c.pem -pubkey -noout | openssl pkey -pubin -outform der"
    line = f"{key} | openssl dgst -sha256 -binary | base64"
    expected = subprocess.run(line, shell=True, cwd=tmp_path, check=True, capture_output=True, text=True).stdout.strip()
    settings.PUBLIC_CERTIFICATE = str(tmp_path / "c.pem")
    assert tls.fingerprint() == f"sha256//{expected}"


def test_the_unit_restarts_the_agent_and_spares_runners(tmp_path):
    text = install.unit(install.Install(tmp_path, "https://console", "", 7, "ascend-console"))
    lines = text.splitlines()
    for line in ("User=ascend-console", "KillMode=process", "Restart=always", "NoNewPrivileges=yes"):
        assert line in lines
    assert f"ExecStart={tmp_path}/venv/bin/python -m deployments.agent --config {tmp_path}/etc/config.json" in text
