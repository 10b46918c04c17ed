"""The host of tests that join leaves nothing behind, whatever its processes call themselves."""

import subprocess
import sys

import pytest

from tests.deployments.joining import Host

# As vLLM does it: the title is written over the words, and over the environment behind them.
RENAMED = """
import ctypes, sys
words = open("/proc/self/cmdline", "rb").read()
start = int(open("/proc/self/stat").read().rpartition(")")[2].split()[45])
ctypes.memset(start, 0, len(words))
ctypes.memmove(start, b"VLLM::EngineCore", 16)
print("renamed", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("by", ["cwd", "environment"])
def test_a_renamed_process_ends_with_its_host(by):
    host = Host()
    more = {"cwd": host.folder} if by == "cwd" else {"env": {"HOME": f"{host.folder}/home"}}
    core = subprocess.Popen(
        [sys.executable, "-c", RENAMED, "x" * 40], stdin=subprocess.PIPE, stdout=subprocess.PIPE, **more
    )
    try:
        assert core.stdout.readline() == b"renamed\n"
        assert core.pid not in host.pids() and core.pid in host.all_pids()
        host.close()
        assert core.wait(timeout=5) == -9
    finally:
        core.kill()
        core.communicate()
        host.close()
