"""Network namespaces as other machines, each joined to this one by a pair of interfaces; for root."""

import os
import secrets
import shutil
import subprocess


def may_make():
    """Whether we are root with the tool for it; in CI the tool must be there."""
    found = shutil.which("ip") is not None
    assert found or not os.environ.get("CI"), "install iproute2"
    return found and os.geteuid() == 0 and _try("ip netns list")


class Namespace:
    """`inside` begins the command line of what runs there; the two ends have the addresses `ours` and `theirs` of one
    /30. Raises OSError where names or interfaces cannot be made, and leaves nothing behind."""

    def __init__(self, ours, theirs):
        self.name = f"test-{secrets.token_hex(3)}"
        self.ours, self.theirs = ours, theirs
        self.link = f"t{secrets.token_hex(4)}"
        self.inside = ["ip", "netns", "exec", self.name]
        peer = f"{self.link}p"
        for line in (
            f"ip netns add {self.name}", f"ip link add {self.link} type veth peer name {peer} netns {self.name}",
            f"ip addr add {ours}/30 dev {self.link}", f"ip link set {self.link} up",
            f"ip -n {self.name} addr add {theirs}/30 dev {peer}", f"ip -n {self.name} link set {peer} up",
            f"ip -n {self.name} link set lo up",
        ):  # fmt: skip
            if not _try(line):
                self.close()
                raise OSError(f"network namespaces do not work here: {line}")

    def unplug(self):
        assert _try(f"ip link set {self.link} down")

    def plug_in(self):
        assert _try(f"ip link set {self.link} up")

    def close(self):
        _try(f"ip link del {self.link}")
        _try(f"ip netns del {self.name}")


def _try(line):
    return subprocess.run(line.split(), capture_output=True).returncode == 0
