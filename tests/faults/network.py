"""Between the far server and Redis: a network namespace of its own where we are root, and a proxy everywhere."""

import os
import secrets
import shutil
import subprocess

from tests.faults.proxy import Proxy


class Network:
    """`inside` begins the command line of what runs on the far server. `unplug` is a cable, `proxy` a bad network."""

    def __init__(self, redis_port: int) -> None:
        self.name = f"faults-{secrets.token_hex(3)}"
        self.link = f"f{secrets.token_hex(4)}"
        self.inside: list[str] = []
        host = "127.0.0.1"
        if os.geteuid() == 0 and has_ip() and _try("ip", "netns", "add", self.name):
            try:
                host = self._wire()
                self.inside = ["ip", "netns", "exec", self.name]
            except subprocess.CalledProcessError:  # a container that may have names, but no interfaces
                _try("ip", "netns", "del", self.name)
        self.proxy = Proxy(host, redis_port)

    @property
    def is_real(self) -> bool:
        return bool(self.inside)

    def _wire(self) -> str:
        """A pair of interfaces; the address of our end."""
        a, b = secrets.randbelow(256), 4 * secrets.randbelow(64)
        ours, theirs = f"10.251.{a}.{b + 1}", f"10.251.{a}.{b + 2}"
        peer = f"{self.link}p"
        _run("ip", "link", "add", self.link, "type", "veth", "peer", "name", peer)
        _run("ip", "link", "set", peer, "netns", self.name)
        _run("ip", "addr", "add", f"{ours}/30", "dev", self.link)
        _run("ip", "link", "set", self.link, "up")
        _run("ip", "-n", self.name, "addr", "add", f"{theirs}/30", "dev", peer)
        _run("ip", "-n", self.name, "link", "set", peer, "up")
        _run("ip", "-n", self.name, "link", "set", "lo", "up")
        return ours

    def unplug(self) -> None:
        _run("ip", "link", "set", self.link, "down")

    def plug_in(self) -> None:
        _run("ip", "link", "set", self.link, "up")

    def restore(self) -> None:
        """Whatever was cut."""
        self.proxy.restore()
        if self.is_real:
            self.plug_in()

    def close(self) -> None:
        self.proxy.close()
        if self.is_real:
            _try("ip", "link", "del", self.link)
            _try("ip", "netns", "del", self.name)


def has_ip() -> bool:
    """Whether the tool is there; in CI it must be."""
    found = shutil.which("ip") is not None
    assert found or not os.environ.get("CI"), "install iproute2"
    return found


def _run(*words: str) -> None:
    subprocess.run(words, check=True)


def _try(*words: str) -> bool:
    return subprocess.run(words, stderr=subprocess.DEVNULL).returncode == 0
