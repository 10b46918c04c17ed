"""What single probes make of single values."""

import os
from functools import partial

import pytest

from deployments.kinds.check_probes import limits, links, npus, pci, ports, stack, system, tuning
from deployments.kinds.check_probes.finding import MOST, Finding, Probe, clean, item, line
from deployments.kinds.check_probes.host import Host
from deployments.stacks import versions
from deployments.stacks.catalogue import built_in
from deployments.steps import Text
from tests.deployments.check_bench import (
    demo_host,
    put_tool,
)


@pytest.fixture
def demo(tmp_path):
    return partial(demo_host, tmp_path)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("25.0.rc1.1", "25.0"),
        ("25.0", "25.0.1"),
        ("24.1.RC1", "24.1.rc2"),
        ("24.1.rc3.7", "25.0.rc1"),
        ("9.1.0-beta.1", "9.1.0"),
        ("8.5.0", "9.1.0"),
    ],
)
def test_versions_sort_as_they_were_released(older, newer):
    assert versions.at_least(newer, older)
    assert not versions.at_least(older, newer)


def test_a_whole_line_takes_its_release_candidates():
    assert versions.at_least("25.2.rc1", "25.2.X") and versions.at_least("26.0.RC1", "25.2.X")
    assert not versions.at_least("25.0.rc1.1", "25.2.X") and not versions.at_least("25.0.rc1.1", "25.0")


@pytest.mark.parametrize(("version", "in_it"), [("3.9.9", False), ("3.10", True), ("3.12.7", True), ("3.13.0", False)])
def test_pythons_fit_the_range_of_a_stack(version, in_it):
    assert versions.fits(version, ">=3.10,<3.13") is in_it


def test_a_range_of_firmware_takes_its_whole_last_series():
    assert versions.in_range("7.2.99.1.220", "7.0.0", "7.2.99")
    assert versions.in_range("7.0.0", "7.0.0", "7.2.99")
    assert not versions.in_range("7.3.0.1.231", "7.0.0", "7.2.99")
    assert not versions.in_range("6.4.12.1.241", "7.0.0", "7.2.99")


@pytest.mark.parametrize(
    ("cann", "driver"),
    [("9.1.0", "25.2.X"), ("9.1.0-beta.1", "25.2.X"), ("8.5.1", "25.0.X"), ("7.0.0", None), ("", None)],
)
def test_each_cann_names_its_oldest_driver(cann, driver):
    assert built_in().cann_driver_min(cann) == driver


@pytest.mark.parametrize(
    ("id_", "version", "verdict"),
    [
        ("openEuler", "22.03 (LTS-SP4)", "ok"),
        ("openEuler", "22.03 (LTS-SP9)", "warning"),
        ("openEuler", "24.03 (LTS-SP1)", "ok"),
        ("kylin", "V10 (Lance)", "ok"),
        ("ubuntu", "22.04.4 LTS (Jammy Jellyfish)", "ok"),
        ("euleros", "2.0 (SP12x86_64)", "ok"),
        ("euleros", "2.0 (SP5)", "warning"),
        ("fedora", "40", "warning"),
    ],
)
def test_operating_systems_of_the_vendors_list_are_ok(tmp_path, id_, version, verdict):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text(f'ID="{id_}"\nVERSION="{version}"\nNAME="x"\n')
    assert system.operating_system(Host(tmp_path)).verdict == verdict


@pytest.mark.parametrize(
    ("chronyc", "timedatectl", "verdict"),
    [
        ("echo 'System time     : 0.000021 seconds slow of NTP time'", "exit 1", "ok"),
        ("echo 'System time     : 3.5 seconds fast of NTP time'", "exit 1", "warning"),
        ("echo 'System time     : 7200.1 seconds fast of NTP time'", "exit 1", "failed"),
        ("echo 506 Cannot talk to daemon; exit 1", "echo yes", "ok"),
        ("exit 1", "echo no", "warning"),
        ("exit 1", "exit 1", "unknown"),
    ],
)
def test_the_clock_is_asked_of_whoever_knows(tmp_path, monkeypatch, chronyc, timedatectl, verdict):
    put_tool(tmp_path / "bin", "chronyc", chronyc)
    put_tool(tmp_path / "bin", "timedatectl", timedatectl)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    assert limits.clock(Host(tmp_path)).verdict == verdict


def test_ports_are_read_from_both_tables_of_the_kernel(tmp_path):
    (tmp_path / "proc/net").mkdir(parents=True)
    row = "   0: {}:{:04X} {}:0000 {} 00000000:00000000 00:00000000 00000000 0 0 1\n"
    (tmp_path / "proc/net/tcp").write_text("head\n" + row.format("0" * 8, 8000, "0" * 8, "0A"))
    (tmp_path / "proc/net/tcp6").write_text(
        "head\n" + row.format("0" * 32, 60003, "0" * 32, "0A") + row.format("0" * 32, 8001, "0" * 32, "01")
    )
    assert ports.listening(Host(tmp_path)) == {8000, 60003}
    assert ports.ports(Host(tmp_path)).verdict == "warning"


def test_devices_of_other_vendors_are_no_npus(tmp_path):
    for name, pci_id in (("0000:01:00.0", "10DE:2684"), ("0000:c1:00.0", "19E5:D802"), ("0000:02:00.0", "19E5:1822")):
        (tmp_path / "sys/bus/pci/devices" / name).mkdir(parents=True)
        (tmp_path / "sys/bus/pci/devices" / name / "uevent").write_text(f"PCI_ID={pci_id}\n")
    found = pci.npu_devices(Host(tmp_path))
    assert [(device.bus_id, device.family) for device in found] == [("0000:C1:00.0", "910B")]


def test_idle_memory_of_every_family_is_no_alarm(demo):
    for index in (2, 4, 12, 16, 19):
        assert [finding.verdict for finding in npus.memory_without_process(demo(index))] == ["ok"]


def test_an_item_is_one_bounded_printable_line():
    probe = Probe("x", Text("甲", "A"), lambda host: Finding("ok"))
    made = item(probe, Finding("failed", "a\nb\x1b[31m" + "y" * 9000, remedy=Text("修", "mend"), about="3.0"))
    assert made["key"] == "x.3.0"
    assert len(made["found"]) == MOST and made["found"].endswith("…")
    assert "\n" not in line(made) and "\x1b" not in line(made)
    assert line(made).startswith("[failed] 甲 · 3.0 / A · 3.0  a b")
    assert clean("\u202e evil") == "evil"


def test_every_remedy_is_told_in_both_languages():
    for module in (system, limits, stack, npus, links, tuning):
        for probe in module.PROBES:
            assert probe.title.zh and probe.title.en, probe.key
    keys = [probe.key for module in (system, limits, stack, npus, links, tuning) for probe in module.PROBES]
    assert len(keys) == len(set(keys))
