import json
import os
import signal
import stat
import subprocess
import sys
import time

import pytest

from deployments import kinds
from deployments.agent import processes
from deployments.demo import fleet, root, tools
from deployments.kinds import check
from deployments.kinds.check_probes import __main__ as program
from deployments.kinds.check_probes import limits, links, npus, pci, stack, system, tuning, versions
from deployments.kinds.check_probes.finding import MOST, VERDICTS, Finding, Probe, Trouble, clean, item, line
from deployments.kinds.check_probes.host import MOST_BYTES, Answer, Host
from deployments.steps import PYTHON, Text
from tests.waiting import until

GROUPS = [name for name, _ in check.GROUPS]
ALARM, A910, DUO, LOST, DUMB, OLD, DOWN, HELD = 3, 4, 2, 14, 15, 12, 19, 7  # numbers of demo servers


class DemoHost(Host):
    """A simulated server whose tools answer in this process."""

    def __init__(self, server, folder, *, deep=False):
        super().__init__(folder, deep=deep)
        self.server = server

    def run(self, *argv, timeout_s=15.0):
        assert argv[0] in root.PROGRAMS, "a demo server would run this machine's own"
        return Answer(*tools.answer(self.server, list(argv), 1_760_000_000.0))


@pytest.fixture
def demo(tmp_path):
    def make(index, **options):
        server = fleet.server(index)
        root.ensure(server, tmp_path / server.name)
        return DemoHost(server, tmp_path / server.name, **options)

    return make


def report(host, groups=GROUPS):
    """Items by key, and whether no probe broke."""
    told = []
    sound = [program.run(group, host, told.append) for group in groups]
    return {made["key"]: made for made in told}, all(sound)


def is_whole(made):
    sentences = made["remedy"] or ["x", "x"]
    return (
        made["verdict"] in VERDICTS
        and all(made["title"])
        and all(sentences)
        and made["found"]
        and (made["remedy"] is None) == (made["verdict"] == "ok")
    )


def put_tool(folder, name, script):
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def is_running(pid):
    found = processes.stat(pid)
    return found is not None and found.state not in "ZX"


def test_check_is_a_kind_that_locks_and_undoes_nothing():
    assert "check" in kinds.names()
    params = check.Params()
    assert (check.locks(params), check.undo(params)) == ([], [])


def test_steps_run_one_group_each_and_go_on_after_one_that_broke():
    made = check.steps(check.Params(deep=True))
    assert [step.argv for step in made] == [
        [PYTHON, "-m", "deployments.kinds.check_probes", group, "--deep"] for group in program.GROUPS
    ]
    assert all(step.may_fail and not step.needs_root for step in made)
    assert "--deep" not in check.steps(check.Params())[0].argv


def test_every_item_on_this_machine_has_a_verdict_and_a_remedy():
    items, sound = report(Host("/"))
    assert sound
    assert [key for key, made in items.items() if not is_whole(made)] == []
    assert {"architecture", "glibc", "python", "driver", "npu_bus", "link", "governor"} <= items.keys()


def probed(**env):
    done = subprocess.run(
        [sys.executable, "-m", "deployments.kinds.check_probes", "system"],
        env={**os.environ, "LC_ALL": "C", **env},
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_group_tells_items_to_the_runner_and_lines_to_a_person(tmp_path):
    path = tmp_path / "items"
    assert probed(ASCEND_ITEMS=str(path)) == ""  # the runner writes each item as a line of the log
    items = [json.loads(text) for text in path.read_text().splitlines()]
    assert len(items) == len(system.PROBES)
    assert probed(ASCEND_ITEMS="").startswith(f"[{items[0]['verdict']}] 架构 / Architecture  {items[0]['found']}")


def test_an_unknown_group_is_answered_in_words(capsys):
    assert program.main(["nonsense"]) == 2
    assert "Name one group" in capsys.readouterr().err


def test_a_cancelled_group_leaves_no_traceback(tmp_path):
    put_tool(tmp_path, "npu-smi", f"touch {tmp_path}/asked; exec sleep 20")
    group = subprocess.Popen(
        [sys.executable, "-m", "deployments.kinds.check_probes", "npus"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "ASCEND_ITEMS": str(tmp_path / "items")},
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: (tmp_path / "asked").exists())
    group.send_signal(signal.SIGINT)
    assert group.communicate(timeout=10)[1] == ""
    assert group.returncode == 130


def test_a_probe_that_breaks_is_unknown_and_stops_no_other(monkeypatch):
    def broken(host):
        raise ZeroDivisionError("by nought")

    made = [Probe("a", Text("甲", "A"), broken), Probe("b", Text("乙", "B"), lambda host: Finding("ok", "1"))]
    monkeypatch.setattr(program, "probes", lambda group: made)
    items, sound = report(Host("/"), ["system"])
    assert not sound
    assert (items["a"]["verdict"], items["b"]["verdict"]) == ("unknown", "ok")
    assert "ZeroDivisionError: by nought" in items["a"]["remedy"][1]


def test_an_exit_code_is_bad_only_when_a_probe_broke(monkeypatch, capsys):
    monkeypatch.setattr(program, "probes", lambda group: [Probe("a", Text("甲", "A"), lambda host: Finding("failed"))])
    assert program.main(["system"]) == 0
    monkeypatch.setattr(program, "probes", lambda group: [Probe("a", Text("甲", "A"), lambda host: 1 / 0)])
    assert program.main(["system"]) == 1


@pytest.mark.parametrize("index", range(len(fleet.TRAITS)))
def test_every_item_on_a_demo_server_has_a_verdict(demo, index):
    items, sound = report(demo(index, deep=True))
    assert sound
    assert [key for key, made in items.items() if not is_whole(made)] == []


def test_a_well_server_is_found_well(demo):
    items, _ = report(demo(0))
    bad = {key: made["verdict"] for key, made in items.items() if made["verdict"] != "ok"}
    assert bad == {"processes": "warning"}
    assert items["npu_smi"]["found"] == "8 × 910B3"
    assert items["cann"]["found"] == "9.1.0 → vLLM-Ascend 0.23.0"
    assert items["link"]["found"] == "8 × UP"


def test_a_chip_that_vllm_ascend_does_not_support_fails(demo):
    items, _ = report(demo(A910))
    failed = {key for key, made in items.items() if made["verdict"] == "failed"}
    assert {"family", "driver", "kernel", "nnal", "cann"} <= failed
    assert items["locked_memory"]["verdict"] == "warning"


def test_an_alarm_fails_with_its_error(demo):
    items, _ = report(demo(ALARM), ["npus"])
    assert items["health"]["found"] == "7 × OK"
    assert items["health.5.0"]["verdict"] == "failed"
    assert "80E18402" in items["health.5.0"]["found"]
    assert "page isolation" in items["health.5.0"]["found"]


def test_a_310p_is_experimental_and_has_no_ports(demo):
    items, _ = report(demo(DUO), ["npus", "links"])
    assert (items["family"]["verdict"], items["npu_seen"]["verdict"]) == ("warning", "ok")
    assert (items["link"]["verdict"], items["link"]["found"]) == ("ok", "0")


def test_a_card_lost_from_the_driver_is_named(demo):
    items, _ = report(demo(LOST), ["npus"])
    assert items["npu_seen"]["verdict"] == "failed"
    assert "0000:41:00.0" in items["npu_seen"]["remedy"][1]


def test_a_driver_that_does_not_answer_is_told_in_the_words_of_its_failure(demo):
    items, _ = report(demo(DUMB), ["stack", "npus"])
    assert (items["npu_smi"]["verdict"], items["npu_smi"]["found"]) == ("failed", "-8005")
    assert items["driver_whole"]["verdict"] == items["device_nodes"]["verdict"] == "failed"
    assert items["health"]["verdict"] == "unknown"


def test_firmware_outside_the_range_of_the_driver_fails(demo):
    items, _ = report(demo(OLD), ["stack", "limits"])
    assert items["pairing"]["verdict"] == items["cann_driver"]["verdict"] == "failed"
    assert items["pairing"]["wanted"] == "7.0.0–7.5.99"
    assert items["clock"]["found"] == "+2.417 s"


def test_a_port_that_is_down_is_told_by_its_number(demo):
    items, _ = report(demo(DOWN, deep=True), ["links"])
    assert items["link"]["found"] == "7 × UP"
    assert (items["link.6"]["verdict"], items["link.6"]["found"]) == ("failed", "DOWN")
    assert items["hccn_stat.6"]["found"].startswith("mac_rx_bad_pkt_num 7")


def test_memory_that_no_process_holds_is_found(demo):
    items, _ = report(demo(HELD), ["npus"])
    assert items["memory_held.2.0"]["verdict"] == "warning"
    assert "memory_held" not in items


def test_slow_questions_are_left_out_unless_asked(demo):
    shallow, _ = report(demo(DOWN), ["links"])
    assert not [key for key in shallow if key.startswith(("hccn_stat", "optics"))]


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
    unknown = {"memory", "swap", "hugepages", "os", "open_files", "locked_memory"}
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
    assert time.monotonic() - began < 3
    child = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + 2
    while is_running(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_running(child)


def test_an_npu_smi_that_hangs_is_waited_for_once(tmp_path, monkeypatch):
    put_tool(tmp_path / "bin", "npu-smi", "sleep 60")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setattr(Host.run, "__kwdefaults__", {"timeout_s": 0.5})
    began = time.monotonic()
    items, sound = report(Host(tmp_path), ["npus", "links"])
    assert sound and time.monotonic() - began < 2
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


def test_a_range_of_firmware_takes_its_whole_last_series():
    assert versions.in_range("7.2.99.1.220", "7.0.0", "7.2.99")
    assert versions.in_range("7.0.0", "7.0.0", "7.2.99")
    assert not versions.in_range("7.3.0.1.231", "7.0.0", "7.2.99")
    assert not versions.in_range("6.4.12.1.241", "7.0.0", "7.2.99")


@pytest.mark.parametrize(
    ("cann", "driver"), [("9.1.0", "25.2"), ("9.1.0-beta.1", "25.2"), ("8.5.1", "25.0"), ("7.0.0", None), ("", None)]
)
def test_each_cann_names_its_oldest_driver(cann, driver):
    assert versions.min_driver(cann) == driver


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
    assert limits.listening(Host(tmp_path)) == {8000, 60003}
    assert limits.ports(Host(tmp_path)).verdict == "warning"


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
