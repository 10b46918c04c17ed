"""Joining over TLS, by a Python of root alone, and from a second host of the network."""

import os
import shutil
import socket
import ssl
import subprocess
import threading
from pathlib import Path

import pytest

from tests import netns
from tests.conftest import free_port
from tests.deployments import network
from tests.deployments.joining import OLD_PYTHON, PATHS, Browser, Host
from tests.whole import Whole


@pytest.fixture
def host():
    made = Host()
    yield made
    made.close()


class TlsFront(threading.Thread):
    """TLS in front of a port, with a certificate of its own."""

    def __init__(self, folder, port, behind):
        super().__init__(daemon=True)
        self.certificate = folder / "cert.pem"
        self.new_key(folder)
        self.listener = socket.create_server(("127.0.0.1", port))
        self.behind = behind

    def new_key(self, folder):
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=console.test",
             "-keyout", folder / "key.pem", "-out", folder / "cert.pem"], check=True, capture_output=True,
        )  # fmt: skip
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
        self.context = context

    def run(self):
        while True:
            try:
                plain, _address = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(plain,), daemon=True).start()

    def serve(self, plain):
        try:
            near = self.context.wrap_socket(plain, server_side=True)
            with near, socket.create_connection(("127.0.0.1", self.behind)) as far:
                back = threading.Thread(target=self.pump, args=(far, near), daemon=True)
                back.start()
                self.pump(near, far)
                back.join(5)
        except OSError:
            pass

    @staticmethod
    def pump(source, target):
        try:
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def test_over_tls_only_the_consoles_own_key_gets_the_token(tmp_path, host):
    port = free_port()
    front = TlsFront(tmp_path, port, 0)
    whole = Whole(
        tmp_path, demo_servers=0, PUBLIC_URL=f"https://127.0.0.1:{port}", PUBLIC_CERTIFICATE=str(front.certificate)
    )
    front.behind = whole.port
    front.start()
    try:
        _page, command = Browser(whole).command("kp-20")
        assert "--pinnedpubkey" in command
        joined = host.run(command)
        assert joined.returncode == 0, joined.stdout + joined.stderr
        # Somebody else at the same address: curl does not even send the request.
        (tmp_path / "other").mkdir()
        front.new_key(tmp_path / "other")
        refused = host.run(command)
        assert "pinned" in refused.stderr or "public key" in refused.stderr
        assert "has joined" not in refused.stdout
    finally:
        whole.stop()


SCRIPT = Path(__file__).resolve().parents[2] / "deployments/join/join.sh"
VALUES = "TOKEN=; PIN=; RUNTIME_x86_64=; RUNTIME_aarch64=; CONSOLE=http://127.0.0.1:9"
SEARCH = SCRIPT.read_text().rpartition("\nmain")[0] + f'\n{VALUES}\nfind_python\necho "$python"\n'


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_python_that_only_root_can_run_is_passed_over(tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("id", "uname"):
        (tools / tool).symlink_to(shutil.which(tool, path=PATHS))
    tmp_path.chmod(0o700)
    own = tmp_path / "python3.13"  # first in PATH, as root's pyenv or conda is
    shutil.copy(Path("/usr/bin/python3").resolve(), own)

    def search(script=SEARCH, **env):
        env = {"PATH": f"{tmp_path}:{PATHS}", "HOME": str(tmp_path), "LANG": "C", **env}
        return subprocess.run(["/bin/sh", "-c", script], env=env, capture_output=True, text=True)

    assert search().stdout.startswith("/usr/")
    # Where the agent will run as its owner it serves.
    assert search(AGENT_USER="root").stdout == f"{own}\n"
    # Where there is no other, the sentence names it.
    alone = SEARCH.replace("/usr/", "/none/").replace("/opt/", "/none/")
    stopped = search(alone, PATH=f"{tmp_path}:{tools}")
    assert stopped.returncode == 1
    assert f"{own} is for root only" in stopped.stderr


@pytest.fixture
def second_machine():
    with network.second_machine() as machine:
        yield machine


@pytest.mark.skipif(not netns.may_make(), reason="needs root and network namespaces")
def test_a_second_host_on_the_network_joins_as_root_and_its_agent_is_not_root(tmp_path, second_machine):
    space, second_host = second_machine
    whole = Whole(tmp_path, demo_servers=0, bind=space.ours, ALLOW_PLAINTEXT="1")
    try:
        browser = Browser(whole)
        page, command = browser.command("kp-30")
        assert "ALLOW_PLAINTEXT=1" in browser.get(page)
        joined = second_host.run(command)
        assert joined.returncode == 0, joined.stdout + joined.stderr
        owners = {Path(f"/proc/{pid}").stat().st_uid for pid in second_host.pids()}
        assert owners == {65534}
        assert (second_host.agent / "code").stat().st_uid == 0
        assert (second_host.agent / "etc/config.json").stat().st_uid == 65534
        assert space.theirs in browser.get("/servers/join/")
        assert second_host.ctl("leave").returncode == 0
        assert not second_host.agent.exists()
        # A Python that only root can reach is no use to the agent's account.
        if OLD_PYTHON.is_dir():
            _page, command = browser.command("kp-31")
            stopped = second_host.run(command, PYTHON=str(OLD_PYTHON / "bin/python3"))
            assert stopped.returncode == 1
            assert "cannot run" in stopped.stderr
    finally:
        whole.stop()
