"""A second machine on a network: a namespace that is joined to this one by a pair of interfaces."""

import os
import shutil
import subprocess
from contextlib import contextmanager

import pytest

from tests.deployments.joining import Host

HERE_OCTET = 80 + os.getpid() % 150


def may_make():
    return os.geteuid() == 0 and subprocess.run(["ip", "netns", "list"], capture_output=True).returncode == 0


def needed(*programs):
    """Fails where one is missing, for .ci/run installs them."""
    for program in programs:
        assert shutil.which(program, path="/usr/sbin:/usr/bin:/usr/local/bin"), f"{program} is not installed: .ci/run"


@contextmanager
def second_machine(n=0):
    """(our address, the Host there); its agent is nobody's."""
    name = f"tls-{os.getpid()}-{n}"
    here, there = f"tl{os.getpid() % 100000}{n}a", f"tl{os.getpid() % 100000}{n}b"
    ours, theirs = f"10.213.{HERE_OCTET}.{4 * n + 1}", f"10.213.{HERE_OCTET}.{4 * n + 2}"
    ip = [
        f"ip netns add {name}", f"ip link add {here} type veth peer name {there} netns {name}",
        f"ip addr add {ours}/30 dev {here}", f"ip link set {here} up",
        f"ip -n {name} addr add {theirs}/30 dev {there}", f"ip -n {name} link set {there} up",
        f"ip -n {name} link set lo up",
    ]  # fmt: skip
    made = Host(before=["ip", "netns", "exec", name], root=True)
    made.env["AGENT_USER"] = "nobody"
    try:
        for line in ip:
            if subprocess.run(line.split(), capture_output=True).returncode:
                pytest.skip("network namespaces do not work here")
        yield ours, made
    finally:
        made.close()
        subprocess.run(["ip", "netns", "del", name], capture_output=True)
        subprocess.run(["ip", "link", "del", here], capture_output=True)
