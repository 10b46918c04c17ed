"""A second host on this machine: namespaces of its own for network, mounts, processes and name, and Debian's real sshd.

It has copies of /etc, so users made there are nobody here, and empty /opt, /root, /home, /run and /tmp. It ends as a
whole with the process that holds it.
"""

import contextlib
import itertools
import os
import shlex
import shutil
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from tests.waiting import until

PROGRAMS = ("sshd", "sudo", "ip", "unshare", "nsenter", "ssh-keygen", "ssh")
_numbers = itertools.count(os.getpid() % 50 * 4)

INIT = r"""
set -e
mount --make-rprivate /
mount --bind "$1/etc" /etc
for folder in opt root home run tmp; do mount -t tmpfs -o mode=755 none "/$folder"; done
chmod 1777 /tmp
mkdir -p /run/sshd
hostname "$2"
echo "127.0.0.1 localhost $2" >/etc/hosts
set +e
echo up
while IFS= read -r line; do eval "$line" </dev/null 2>&1; echo "done $?"; done
"""


def check_may():
    """Skips where namespaces cannot be had; in CI a missing program is a failure."""
    missing = [name for name in PROGRAMS if shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin") is None]
    if missing and os.environ.get("CI"):
        pytest.fail(f"{missing} are not installed; .ci/run names their packages.")
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root, and {' '.join(PROGRAMS)}")
    if subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "true"], capture_output=True).returncode:
        pytest.skip("namespaces are not allowed here")


class SshHost:
    """`sh(line)` runs a shell line there as root. `address` is its own, `console` that of this side as it sees it."""

    def __init__(self, folder: Path, name: str) -> None:
        number = next(_numbers) % 250
        self.folder, self.name = folder, name
        self.console, self.address = f"10.231.{number}.1", f"10.231.{number}.2"
        shutil.copytree("/etc", folder / "etc", symlinks=True, ignore_dangling_symlinks=True)
        for key in (folder / "etc/ssh").glob("ssh_host_*"):
            key.unlink()
        self.keys = {kind: self.key(f"etc/ssh/ssh_host_{kind}_key", kind) for kind in ("ed25519", "rsa")}
        self.process = subprocess.Popen(
            ["unshare", "--net", "--mount", "--pid", "--uts", "--fork", "--mount-proc", "--kill-child",
             "sh", "-c", INIT, "sh", str(folder), name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LANG": "C"},
        )  # fmt: skip
        self._one = threading.Lock()
        assert self.process.stdout.readline() == "up\n"
        self._connect(number)

    def _connect(self, number):
        here, there = f"sj{os.getpid() % 100000}n{number}", "eth0"
        inside = ["nsenter", "-t", str(self.process.pid), "-n"]
        self.link = here
        for line in (
            ["ip", "link", "add", here, "type", "veth", "peer", "name", there, "netns", str(self.process.pid)],
            ["ip", "addr", "add", f"{self.console}/30", "dev", here], ["ip", "link", "set", here, "up"],
            [*inside, "ip", "addr", "add", f"{self.address}/30", "dev", there],
            [*inside, "ip", "link", "set", there, "up"], [*inside, "ip", "link", "set", "lo", "up"],
            [*inside, "ip", "route", "add", "default", "via", self.console],
        ):  # fmt: skip
            subprocess.run(line, check=True, capture_output=True)

    def key(self, path: str, kind: str = "ed25519", passphrase: str = "") -> Path:
        """A key pair made at `path` below the host's folder on this side."""
        file = self.folder / path
        more = ["-b", "2048"] if kind == "rsa" else []
        subprocess.run(["ssh-keygen", "-q", "-t", kind, *more, "-N", passphrase, "-C", "", "-f", str(file)], check=True)
        return file

    def sh(self, line: str) -> str:
        """Its output; fails the test where it does not end with 0."""
        with self._one:
            self.process.stdin.write(line.replace("\n", ";") + "\n")
            self.process.stdin.flush()
            heard = []
            while not (word := self.process.stdout.readline()).startswith("done "):
                assert word, "the host has ended"
                heard.append(word)
        assert word == "done 0\n", "".join(heard)
        return "".join(heard)

    def sshd(self, port: int = 22, *options: str, key: str = "ed25519") -> None:
        """Debian's sshd with its own configuration, on one more port; its log is sshd-<port>.log here."""
        config = self.folder / f"etc/ssh/sshd-{port}"
        config.write_text(
            "\n".join(
                [f"Port {port}", "AddressFamily inet", f"HostKey /etc/ssh/ssh_host_{key}_key", "PermitRootLogin yes",
                 "UsePAM no", "PasswordAuthentication yes", f"PidFile /run/sshd-{port}.pid", "UseDNS no", *options, ""]
            )
        )  # fmt: skip
        self.sh(f"/usr/sbin/sshd -f /etc/ssh/sshd-{port} -E /run/sshd-{port}.log")
        until(lambda: self.speaks(port))

    def speaks(self, port: int) -> bool:
        try:
            with socket.create_connection((self.address, port), timeout=1) as caller:
                return caller.recv(4) == b"SSH-"
        except OSError:
            return False

    def user(self, name: str, password: str, *, sudo: str = "") -> None:
        """`sudo`: "" none, "password" or "free" (NOPASSWD)."""
        self.sh(f"useradd -m -s /bin/sh {name}")
        self.password(name, password)
        if sudo:
            rule = f"{name} ALL=(ALL) {'NOPASSWD: ' if sudo == 'free' else ''}ALL"
            self.sh(f"echo '{rule}' >/etc/sudoers.d/{name} && chmod 440 /etc/sudoers.d/{name}")

    def password(self, name: str, password: str) -> None:
        self.sh(f"echo {shlex.quote(f'{name}:{password}')} | chpasswd")

    def authorize(self, name: str, *keys: Path) -> None:
        home = "/root" if name == "root" else f"/home/{name}"
        self.sh(f"mkdir -p {home}/.ssh && chmod 700 {home}/.ssh")
        for key in keys:
            public = key.with_name(f"{key.name}.pub").read_text().strip()
            self.sh(f"echo '{public}' >>{home}/.ssh/authorized_keys")
        self.sh(f"chown -R {name} {home}/.ssh")

    def close(self):
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        subprocess.run(["ip", "link", "del", self.link], capture_output=True)
