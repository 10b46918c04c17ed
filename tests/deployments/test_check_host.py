"""Whatever files and tools of a server are like, every probe answers, in time and within bounds."""

import os
import stat
import time
from functools import partial

import pytest

from deployments.kinds.check_probes.finding import MOST
from deployments.kinds.check_probes.host import MOST_BYTES, Host, Trouble
from tests.deployments.check_bench import (
    demo_host,
    is_running,
    is_whole,
    put_tool,
    report,
)


@pytest.fixture
def demo(tmp_path):
    return partial(demo_host, tmp_path)


HOSTILE = {
    "binary": bytes(range(256)) * 400,
    "ten megabytes": b"Version=9\n" * 1_000_000,
    "one long line": b"A" * 2_000_000,
    "html and terminal codes": b"Version=<script>alert(1)</script>\x1b[31m\x00\nID=\x07\n",
    "separators only": b"=\n:\n==::\n" * 100,
    "empty": b"",
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_files_break_no_probe(demo, tmp_path, content):
    host = demo(0)
    (tmp_path / "hostile").write_bytes(content)
    for path in [path for path in host.root.rglob("*") if path.is_file() and not path.is_symlink()]:
        path.unlink()
        path.hardlink_to(tmp_path / "hostile")
    began = time.monotonic()
    items, sound = report(host)
    assert sound and time.monotonic() - began < 10
    assert [key for key, made in items.items() if not is_whole(made)] == []
    assert all(len(made["found"]) <= MOST and made["found"].isprintable() for made in items.values())


def test_files_of_another_nature_are_unknown_and_never_waited_for(demo):
    host = demo(0)
    (host.root / "proc/meminfo").unlink()
    os.mkfifo(host.root / "proc/meminfo")
    (host.root / "etc/os-release").unlink()
    (host.root / "etc/os-release").symlink_to("os-release")
    (host.root / "proc/self/limits").unlink()
    (host.root / "proc/self/limits").mkdir()
    items, sound = report(host, ["system", "limits"])
    assert sound
    unknown = {"memory", "swap", "hugepages", "os", "open_files", "processes_limit", "locked_memory"}
    assert {key for key, made in items.items() if made["verdict"] == "unknown"} == unknown
    assert "/etc/os-release" in items["os"]["remedy"][1]


def test_a_root_that_is_missing_is_answered(tmp_path):
    items, sound = report(Host(tmp_path / "nowhere"))
    assert sound
    assert items["open_files"]["verdict"] == items["memory"]["verdict"] == "unknown"
    assert items["npu_bus"]["verdict"] == "warning"


def test_reads_are_bounded(tmp_path):
    (tmp_path / "big").write_bytes(b"x" * 10_000_000)
    assert len(Host(tmp_path).read("/big")) == MOST_BYTES


def test_a_tool_that_hangs_is_ended_with_its_children(tmp_path, monkeypatch):
    put_tool(tmp_path / "bin", "npu-smi", f"sleep 60 & echo $! > {tmp_path}/child; sleep 60")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    began = time.monotonic()
    with pytest.raises(Trouble, match="did not answer in time"):
        Host(tmp_path).run("npu-smi", "info", timeout_s=0.5)
    assert time.monotonic() - began < 30  # not the 60 s of the tool
    child = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + 2
    while is_running(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_running(child)


def test_an_npu_smi_that_hangs_is_waited_for_once(tmp_path, monkeypatch):
    put_tool(tmp_path / "bin", "npu-smi", "sleep 60")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setattr(Host.run, "__kwdefaults__", {"timeout_s": 1.5})
    began = time.monotonic()
    items, sound = report(Host(tmp_path), ["npus", "links"])
    assert sound and time.monotonic() - began < 10  # a wait for each of the questions would take longer
    assert "did not answer in time" in items["npu_smi"]["remedy"][1]
    assert {made["verdict"] for made in items.values()} == {"unknown", "warning"}


def test_a_tool_that_never_stops_printing_is_cut(tmp_path, monkeypatch):
    put_tool(tmp_path / "bin", "chatter", "yes npu")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    with pytest.raises(Trouble, match="never stops printing"):
        Host(tmp_path).run("chatter", timeout_s=30)


def test_a_tool_that_may_not_be_run_is_unknown(tmp_path, monkeypatch):
    put_tool(tmp_path / "bin", "uname", "exit 0")
    (tmp_path / "bin/uname").write_bytes(b"\x7fELF not really")
    (tmp_path / "bin/uname").chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    items, sound = report(Host(tmp_path), ["system"])
    assert sound
    assert (items["architecture"]["verdict"], items["glibc"]["verdict"]) == ("unknown", "unknown")


def test_nonsense_from_npu_smi_is_unknown(tmp_path, monkeypatch):
    put_tool(tmp_path / "bin", "npu-smi", "head -c 100000 /dev/urandom")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    items, sound = report(Host(tmp_path), ["npus", "links"])
    assert sound
    assert items["npu_smi"]["verdict"] == items["link"]["verdict"] == "unknown"
