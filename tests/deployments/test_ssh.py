"""Logins on a real sshd: what is accepted, what is refused and in which words, how a command gets root's rights."""

import asyncio
import socket
import threading
import tracemalloc

import asyncssh
import pytest

from deployments.services import ssh
from tests.conftest import free_port
from tests.deployments import ssh_host
from tests.deployments.ssh_host import SshHost

OPS_PASSWORD = "Ops pw '$(id)' 7"
SCRIPT = "id -un; echo LANG=$LANG PREFIX=${PREFIX:-none}; head -c 10"


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    ssh_host.check_may()
    made = SshHost(tmp_path_factory.mktemp("host"), "kp-01")
    try:
        made.user("ops", OPS_PASSWORD, sudo="password")
        made.user("free", "x-pw-free", sudo="free")
        made.user("plain", "x-pw-plain")
        made.keys["login"] = made.key("login", passphrase="opens it")
        for name in ("root", "ops"):
            made.authorize(name, made.keys["login"])
        made.sshd(22)
        yield made
    finally:
        made.close()


@pytest.fixture
def shown(host):
    return asyncio.run(ssh.read_host_key(host.address, 22))


def by_key(host, **more):
    return ssh.Credentials(private_key=host.keys["login"].read_text(), passphrase="opens it", **more)


def run(host, user, credentials, key, *, script=SCRIPT, prefix="", port=22):
    """What the script said as that user. Raises ssh.Failure."""

    async def whole():
        heard = []
        async with await ssh.connect(ssh.Target(host.address, port, user, key), credentials) as connection:
            rights = await ssh.rights(connection, prefix, credentials)
            await ssh.run(connection, ssh.Errand(script, prefix, "zh_CN.UTF-8"), rights, heard.append)
        return "".join(heard)

    return asyncio.run(whole())


def refused(*given, **named):
    with pytest.raises(ssh.Failure) as failure:
        run(*given, **named)
    return failure.value


def test_the_key_that_a_host_shows_has_the_fingerprint_of_ssh_keygen(host, shown):
    listed = host.sh("ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub")
    assert ssh.kind(shown) == "ssh-ed25519"
    assert ssh.fingerprint(shown) in listed
    assert ssh.fingerprint("no key") == ssh.fingerprint("") == ""


def test_root_and_users_with_sudo_run_it_as_root(host, shown):
    root = "root\nLANG=zh_CN.UTF-8 PREFIX=none\n"
    assert run(host, "root", by_key(host), shown) == root
    assert run(host, "free", ssh.Credentials("x-pw-free"), shown) == root
    assert run(host, "ops", ssh.Credentials(OPS_PASSWORD), shown).endswith(root)  # sudo asks for the same password
    assert run(host, "ops", by_key(host, sudo_password=OPS_PASSWORD), shown).endswith(root)


def test_below_a_folder_no_root_is_needed(host, shown):
    said = run(host, "plain", ssh.Credentials("x-pw-plain"), shown, prefix="/home/plain/agent")
    assert said == "plain\nLANG=zh_CN.UTF-8 PREFIX=/home/plain/agent\n"


def test_a_password_that_nobody_asks_for_is_read_by_nobody(host, shown):
    said = run(host, "free", ssh.Credentials("x-pw-free", sudo_password="reboot-me"), shown, script="cat; set")
    assert "reboot-me" not in said and "x-pw-free" not in said


def test_what_is_refused_is_told_apart(host, shown):
    plain = ssh.Credentials("x-pw-plain")
    assert refused(host, "plain", ssh.Credentials("wrong"), shown).code == "auth"
    assert refused(host, "nobody-here", ssh.Credentials("wrong"), shown).code == "auth"
    assert refused(host, "plain", by_key(host), shown).code == "auth"
    assert "sudoers" in refused(host, "plain", plain, shown).detail
    assert refused(host, "plain", plain, shown).code == "no_sudo"
    assert refused(host, "ops", by_key(host), shown).code == "sudo_password"
    assert refused(host, "ops", by_key(host, sudo_password="wrong"), shown).code == "no_sudo"
    stopped = refused(host, "root", by_key(host), shown, script="exit 7")
    assert (stopped.code, stopped.detail) == ("script", "exit code 7")
    assert refused(host, "root", by_key(host), shown, script="kill -9 $$").code == "script"
    broken = refused(host, "root", by_key(host), shown, script="kill $PPID; sleep 20")
    assert broken.code in ("lost", "script")


def test_a_command_that_ends_before_it_was_spoken_to_is_no_broken_connection(host, shown):
    async def asked():
        async with await ssh.connect(ssh.Target(host.address, 22, "root", shown), by_key(host)) as connection:
            start = connection.create_process

            async def slowly(*given, **named):
                process = await start(*given, **named)
                await process.wait_closed()
                return process

            connection.create_process = slowly
            return await ssh._ask(connection, "echo spoke; exit 5", "unheard\n")

    assert asyncio.run(asked()) == (5, "spoke")


def test_a_host_that_speaks_without_end_fills_no_memory(monkeypatch):
    async def endless(_connection, _command, _fed, hear, _limit_s):
        for _piece in range(2000):
            hear("y" * 8192)

    monkeypatch.setattr(ssh, "_run", endless)
    tracemalloc.start()
    _code, words = asyncio.run(ssh._ask(None, "id -u"))
    assert len(words) == 600
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


def test_only_the_confirmed_key_is_accepted(host, shown):
    other = host.keys["rsa"].with_name("ssh_host_rsa_key.pub").read_text()
    for key in (other, asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()):
        assert refused(host, "root", by_key(host), key).code == "key_changed"


def test_a_known_key_is_asked_for_by_its_kind(host):
    host.sshd(2201, "HostKey /etc/ssh/ssh_host_rsa_key")
    both = asyncio.run(ssh.read_host_key(host.address, 2201))
    assert ssh.kind(both) == "ssh-ed25519"
    rsa = " ".join(host.keys["rsa"].with_name("ssh_host_rsa_key.pub").read_text().split()[:2])
    assert asyncio.run(ssh.read_host_key(host.address, 2201, known=rsa)) == rsa
    assert run(host, "root", by_key(host), rsa, port=2201).startswith("root")
    # Where the kind is gone, the key that is there is told, not an error.
    host.sshd(2202, key="rsa")
    assert asyncio.run(ssh.read_host_key(host.address, 2202, known=both)) == rsa


def test_a_server_that_is_no_network_away_is_told_apart(monkeypatch):
    monkeypatch.setattr(ssh, "CONNECT_S", 1.0)
    assert reading("127.0.0.1", free_port()) == "refused"
    assert reading("kp-01.invalid", 22) == "no_name"
    with speaking(b"") as port:
        assert reading("127.0.0.1", port) == "timeout"
    with speaking(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 100) as port:
        assert reading("127.0.0.1", port) in ("not_ssh", "lost")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(113, "No route to host"), "no_route"),
        (OSError(101, "Network is unreachable"), "no_route"),
        (OSError("Multiple exceptions: [Errno 111] Connect call failed, [Errno 101] Network"), "refused"),
        (OSError(110, "Connection timed out"), "timeout"),
        (ConnectionResetError(104, "reset"), "lost"),
        (asyncssh.ChannelOpenError(1, "no"), "no_command"),
    ],
)
def test_errors_of_the_network_have_names(error, code):
    assert ssh.failure_of(error).code == code


def test_an_error_of_ours_stays_one():
    with pytest.raises(ZeroDivisionError):
        ssh.failure_of(ZeroDivisionError())


def reading(host, port):
    with pytest.raises(ssh.Failure) as failure:
        asyncio.run(ssh.read_host_key(host, port))
    return failure.value.code


class speaking:
    """A port of this machine where somebody says `words` and hangs up, or nothing at all and waits."""

    def __init__(self, words):
        self.words, self.listener = words, socket.create_server(("127.0.0.1", 0))

    def __enter__(self):
        threading.Thread(target=self._answer, daemon=True).start()
        return self.listener.getsockname()[1]

    def _answer(self):
        self.taken = []  # kept, or they would be closed
        try:
            while True:
                caller = self.listener.accept()[0]
                caller.sendall(self.words)
                if self.words:
                    caller.close()
                self.taken.append(caller)
        except OSError:
            pass

    def __exit__(self, *_):
        self.listener.close()


def test_keys_open_with_their_passphrase_only(tmp_path):
    key = asyncssh.generate_private_key("ssh-ed25519")
    assert ssh.load_key(key.export_private_key().decode(), "")
    locked = key.export_private_key(passphrase="opens it", rounds=16).decode()
    assert ssh.load_key(locked, "opens it")
    for text, passphrase, code in (
        (locked, "", "passphrase"),
        (locked, "wrong", "passphrase"),
        ("no key", "", "format"),
        (key.export_public_key().decode(), "", "format"),
        (locked[:-60], "opens it", "format"),
    ):
        with pytest.raises(ssh.BadKey) as refused:
            ssh.load_key(text, passphrase)
        assert refused.value.code == code, text


def test_secrets_are_in_no_repr():
    credentials = ssh.Credentials("pw-1", "key-1", "phrase-1", "sudo-1")
    assert not any(word in repr(credentials) for word in ("pw-1", "key-1", "phrase-1", "sudo-1"))
    assert "pw-1" not in repr(ssh.Rights(("sudo",), "pw-1\n"))
