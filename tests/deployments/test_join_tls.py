"""The whole console on an address of a network: everything is TLS, and another machine joins it."""

import contextlib
import json
import re
import shutil
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from datetime import timedelta
from urllib.parse import urlsplit

import pytest

from console import certificates
from tests import netns
from tests.conftest import free_port
from tests.deployments import network
from tests.deployments.joining import Browser
from tests.waiting import until
from tests.whole import Whole

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not netns.may_make(), reason="needs root and network namespaces"),
]


@pytest.fixture
def machine():
    with network.second_machine() as (space, host):
        yield space.ours, host


@contextlib.contextmanager
def started(folder, **how):
    whole = Whole(folder, demo_servers=0, **how)
    try:
        yield whole
    finally:
        whole.stop()


def config_of(host):
    return json.loads((host.agent / "etc/config.json").read_text())


def check_a_job_ends(whole, name):
    """Its verdict depends on this machine; that it ran to its end is what counts."""
    token = whole.token()
    job = whole.call("/jobs", token, {"kind": "check", "server": name})
    until(lambda: whole.call(f"/jobs/{job['id']}", token)["state"] in ("succeeded", "failed"), 120)


def is_open_from(host, address, port):
    """Whether the other machine gets a TCP connection."""
    program = f"import socket; socket.create_connection(('{address}', {port}), 3)"
    return host.run(f'/usr/bin/python3 -c "{program}"').returncode == 0


@pytest.mark.parametrize("program", ["stunnel", "nginx"])
def test_on_an_address_of_the_network_everything_is_tls(tmp_path, machine, program):
    network.needed(program)
    ours, host = machine
    found = shutil.which(program, path="/usr/sbin:/usr/bin")
    with started(tmp_path, bind=ours, tls=True, TLS_FRONT=found) as whole:
        browser = Browser(whole)
        _page, command = browser.command("kp-40")
        assert "--pinnedpubkey" in command
        joined = host.run(command)
        assert joined.returncode == 0, joined.stdout + joined.stderr
        config = config_of(host)
        assert config["redis_url"].startswith(f"rediss://h{config['server_id']}:")
        assert config["redis_ca"] == (tmp_path / "var/tls/ca.crt").read_text()
        check_a_job_ends(whole, "kp-40")

        # Nothing answers in plain text but on loopback.
        with pytest.raises((urllib.error.URLError, ConnectionError)):
            urllib.request.urlopen(f"http://{ours}:{whole.port}/", timeout=5)
        valkey = urlsplit((tmp_path / "var/redis_url").read_text()).port
        front = int((tmp_path / "var/tls/redis_port").read_text())
        assert is_open_from(host, ours, front)
        assert not is_open_from(host, ours, valkey)
        for private in ("ca.key", "server.key"):
            assert (tmp_path / "var/tls" / private).stat().st_mode & 0o777 == 0o600

        left = host.ctl("leave")
        assert "has left the console" in left.stdout, left.stdout + left.stderr
    with pytest.raises(OSError):
        socket.create_connection((ours, front), 1)


def test_a_killed_console_leaves_no_front_behind(tmp_path, machine):
    network.needed("nginx")
    ours, _host = machine
    with started(tmp_path, bind=ours, tls=True, TLS_FRONT="/usr/sbin/nginx") as whole:
        front = int((tmp_path / "var/tls/redis_port").read_text())
        socket.create_connection((ours, front), 1).close()
        whole.process.send_signal(signal.SIGKILL)
        whole.process.wait()
        until(lambda: not listens(ours, front), 60)
        whole.start()  # on the same port
        assert int((tmp_path / "var/tls/redis_port").read_text()) == front


def listens(host, port):
    try:
        socket.create_connection((host, port), 1).close()
    except OSError:
        return False
    return True


def test_a_new_authority_keeps_who_has_joined(tmp_path, machine):
    network.needed("stunnel")
    ours, host = machine
    with started(tmp_path, bind=ours, tls=True) as whole:
        _page, command = Browser(whole).command("kp-41")
        joined = host.run(command)
        assert joined.returncode == 0, joined.stdout + joined.stderr
        old = whole.ca.read_text()
        assert "new authority" in whole.command("certificate", "rotate")
        assert whole.ca.read_text() == old
        whole.stop()
        whole.start()
        assert whole.ca.read_text() != old
        token = whole.token()
        until(lambda: any(s["name"] == "kp-41" and s["state"] == "live" for s in servers(whole, token)), 90)
        assert config_of(host)["redis_ca"] == old
        # It is told whom to trust from now on, and says so.
        until(lambda: (host.agent / "state/authorities.json").exists(), 90)
        assert json.loads((host.agent / "state/authorities.json").read_text())["pem"] == whole.ca.read_text()
        until(lambda: "go by the authority of before" not in whole.command("certificate", "show"), 90)

        # Once its key is stolen, nothing of before is good, and joining again is.
        whole.command("certificate", "rotate", "--stolen")
        whole.stop()
        whole.start()
        until(lambda: "does not trust who signed" in (host.agent / "log/link.log").read_text(), 90)
        repeated = host.run(command)
        assert repeated.returncode != 0
        _page, command = Browser(whole).command("kp-41")
        again = host.run(command)
        assert again.returncode == 0, again.stdout + again.stderr
        assert config_of(host)["redis_ca"] == whole.ca.read_text()


def servers(whole, token):
    return whole.call("/servers", token)["servers"]


@pytest.fixture
def site_authority(tmp_path):
    """make(name, *names, shift=…): a certificate of the site's authority, as (chain, key) below tmp_path/site."""
    folder = tmp_path / "site"
    folder.mkdir()
    key, now = certificates.new_key(), certificates.now()
    ca = certificates.authority(key, "Site CA", now=now)
    (folder / "ca.pem").write_text(ca)

    def make(name, *names, shift=timedelta(0)):
        if not (folder / f"{name}.key").exists():
            (folder / f"{name}.key").write_text(certificates.new_key())
        own = (folder / f"{name}.key").read_text()
        (folder / f"{name}.pem").write_text(certificates.server(own, ca, key, names, now=now + shift))
        return folder / f"{name}.pem", folder / f"{name}.key"

    make.ca = folder / "ca.pem"
    return make


def test_the_sites_own_certificate_and_redis_with_tls(tmp_path, machine, site_authority):
    network.needed("redis-server")
    ours, host = machine
    port = free_port()
    chain, key = site_authority("redis", ours)
    redis_folder = tmp_path / "redis"
    redis_folder.mkdir()
    (redis_folder / "redis.conf").write_text(
        f"bind {ours}\nport 0\ntls-port {port}\ntls-cert-file {chain}\ntls-key-file {key}\ntls-auth-clients no\n"
        f"dir {redis_folder}\ndatabases 1\nappendonly yes\nmaxmemory-policy noeviction\nsave ''\n"
        "user default off\nuser console on >for-this-test +@all ~* &*\n"
    )
    redis_server = subprocess.Popen(["/usr/bin/redis-server", redis_folder / "redis.conf"], stdout=subprocess.DEVNULL)
    web_chain, web_key = site_authority("web", ours)
    try:
        until(lambda: listens(ours, port), 60)
        with started(
            tmp_path, bind=ours, tls=True, TLS_CERTIFICATE=str(web_chain), TLS_KEY=str(web_key),
            TLS_CA=str(site_authority.ca), REDIS_CA=str(site_authority.ca),
            REDIS_URL=f"rediss://console:for-this-test@{ours}:{port}/0",
        ) as whole:  # fmt: skip
            _page, command = Browser(whole).command("kp-42")
            joined = host.run(command)
            assert joined.returncode == 0, joined.stdout + joined.stderr
            config = config_of(host)
            assert config["redis_url"].endswith(f"@{ours}:{port}/0")
            assert config["redis_ca"] == site_authority.ca.read_text()
            check_a_job_ends(whole, "kp-42")
            local = until(lambda: [s for s in servers(whole, whole.token()) if s["name"] != "kp-42"], 60)
            assert [s["state"] for s in local] == ["live"]
            assert not (tmp_path / "var/tls/ca.key").exists()
    finally:
        redis_server.terminate()
        redis_server.wait()


def test_a_server_whose_clock_is_before_the_certificate_says_so_and_joins_once_it_is_set(
    tmp_path, machine, site_authority
):
    """The certificate is of the future: for the server that is the same as a clock of the past."""
    ours, host = machine
    chain, key = site_authority("web", ours, shift=timedelta(days=30))
    given = {"TLS_CERTIFICATE": str(chain), "TLS_KEY": str(key), "TLS_CA": str(site_authority.ca)}
    with started(tmp_path, bind=ours, tls=True, check_names=False, **given) as whole:
        page, command = Browser(whole).command("kp-43")
        stopped = host.run(command)
        assert stopped.returncode == 1
        assert "is not valid yet, and this server's clock says" in stopped.stderr
        assert "Clock: by the server" in Browser(whole).words(page)
        assert not host.pids()
        whole.stop()
        site_authority("web", ours)  # the same key, so the command is good still
        whole.start()
        joined = host.run(command)
        assert joined.returncode == 0, joined.stdout + joined.stderr
        assert "credentials that are there are kept" in joined.stdout


def test_what_answers_with_another_key_gets_nothing(tmp_path, machine):
    ours, host = machine
    with started(tmp_path, bind=ours, tls=True) as whole:
        _page, command = Browser(whole).command("kp-44")
        script = host.run(command.split("&& if")[0] + '&& cat "$f"').stdout
        pin = next(line for line in script.splitlines() if line.startswith("PIN="))
        refused = host.run(re.sub(r"sha256//[A-Za-z0-9+/=]{44}", "sha256//" + "A" * 43 + "=", command))
        assert refused.returncode != 0 and "public key does not match" in refused.stderr  # as the page has it
        (host.folder / "join.sh").write_text(script.replace(pin, "PIN=sha256//" + "A" * 43 + "="))
        stopped = host.run(f"sh {host.folder}/join.sh")
        assert stopped.returncode == 1
        assert "does not have the console's key" in stopped.stderr
        assert not (host.agent / "current").exists() and not host.pids()
