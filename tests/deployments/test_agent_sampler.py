import json
import os
import re
import time
from pathlib import Path

import pytest

from deployments.agent import devices, processes, sampler, tools
from deployments.agent.host import HostMeter
from deployments.agent.outbox import Outbox, waiting
from deployments.agent.sampler import Loop, Sampler, pause_s
from deployments.agent.tools import Output, run_tool
from tests.deployments.agent_bench import AgentServer, texts
from tests.waiting import until

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
TABLE = (FIXTURES / "npu_smi/info_a2_910b4_25.2.3.txt").read_text()
TRUTH = json.loads((FIXTURES / "npu_smi/info_a2_910b4_25.2.3.json").read_text())


def script(folder, name, body):
    path = folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def server(tmp_path):
    """A server whose tools are the scripts in `bin`, and whose files lie below `root`."""
    (tmp_path / "table").write_text(TABLE)
    script(tmp_path, "npu-smi", f"cat {tmp_path / 'table'}")
    env = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "ASCEND_ROOT": str(tmp_path / "root")}
    made = AgentServer(tmp_path, "redis://127.0.0.1:1/0", env=env)
    made.folder = tmp_path
    yield made
    made.close()


def test_a_sample_holds_what_the_table_says_in_its_order(server):
    sample = sampler.sample(server.config)
    assert sample["type"] == "sample" and sample["error"] is None and sample["simulated"] is False
    assert (sample["version"], sample["npus"]) == (TRUTH["version"], TRUTH["npus"])
    bare = [{name: process[name] for name in TRUTH["processes"][0]} for process in sample["processes"]]
    assert bare == TRUTH["processes"]
    assert abs(sample["t"] - time.time()) < 5
    json.dumps(sample)


def test_a_sample_tells_codes_of_faults_and_whose_processes_are_pods_or_our_engines(server, monkeypatch):
    pid = TRUTH["processes"][0]["pid"]
    health = "echo 'Health : Alarm'; echo 'Error Code : 0x80E18402'"
    script(server.folder, "npu-smi", f'case "$*" in *health*) {health};; *) cat {server.folder / "table"};; esac')
    folder = server.folder / "root/proc" / str(pid)
    folder.mkdir(parents=True)
    (folder / "cgroup").write_text("0::/kubepods.slice/pod1\n")
    monkeypatch.setattr(sampler.folder, "sessions", lambda state_dir: {7: "e12"})
    monkeypatch.setattr(processes, "stat", lambda asked: processes.Stat("S", 1, 7, 7, 1) if asked == pid else None)
    sample = sampler.sample(server.config)
    told = [(npu["health"] == "OK", npu.get("codes")) for npu in sample["npus"]]
    assert set(map(str, told)) == {"(True, None)", "(False, ['80E18402'])"}
    told = {process["pid"]: (process["attempt"], process.get("pod")) for process in sample["processes"]}
    assert told.pop(pid) == ("e12", True) and set(told.values()) <= {(None, None)}


def test_numbers_of_samples_only_grow_over_a_restart(server):
    first = Sampler(server.config)
    numbers = [first.sample()["seq"] for _ in range(3)]
    assert numbers == list(range(numbers[0], numbers[0] + 3))
    assert abs(Sampler(server.config).sample()["seq"] - time.time()) < 5


def test_a_machine_without_npu_smi_is_a_server_with_no_npu(server):
    (server.folder / "bin" / "npu-smi").unlink()
    sample = sampler.sample(server.config)
    assert (sample["npus"], sample["processes"], sample["version"], sample["error"]) == ([], [], None, None)


def test_a_failure_text_is_kept_with_its_meaning(server):
    text = (FIXTURES / "npu_smi/info_fails_held_by_container.txt").read_text()
    (server.folder / "table").write_text(text)
    error = sampler.sample(server.config)["error"]
    assert error["meaning"] == "device_used" and error["text"] == text


@pytest.mark.parametrize("text", ["", "<script>alert(1)</script>", "\x00\xff binary", "x" * 3_000_000])
def test_text_that_nobody_understands_is_sent_as_it_is_within_bounds(server, text):
    (server.folder / "table").write_text(text, encoding="latin-1")
    error = sampler.sample(server.config)["error"]
    assert error["code"] is None and error["meaning"] in ("empty", "not_understood", "too_long")
    assert len(error["text"]) == min(len(text), 64 * 1024)


def test_a_table_that_was_cut_is_shown_and_says_so(server):
    (server.folder / "table").write_text((FIXTURES / "npu_smi/info_a3_cut_in_chip_row_910_93_25.3.1.txt").read_text())
    sample = sampler.sample(server.config)
    assert sample["npus"] and sample["error"]["meaning"] == "not_understood"


def test_a_tool_that_hangs_is_killed_with_its_group_at_the_deadline(server, monkeypatch):
    monkeypatch.setattr(sampler, "DEADLINE_S", 0.5)
    pid = server.folder / "pid"
    script(server.folder, "npu-smi", f"echo begun; sleep 300 & echo $! > {pid}; wait")
    began = time.monotonic()
    sample = sampler.sample(server.config)
    assert time.monotonic() - began < 30  # not the 300 s of the tool
    assert sample["error"] == {"code": None, "meaning": "timeout", "text": "begun\n"}
    until(lambda: (found := processes.stat(int(pid.read_text()))) is None or found.state in "ZX")


def test_a_tool_that_may_not_be_run_is_an_error_not_an_exception(server):
    (server.folder / "bin" / "npu-smi").write_text("no interpreter line")
    assert sampler.sample(server.config)["error"]["meaning"] == "no_permission"


def test_a_flood_of_output_is_bounded():
    output = run_tool(["sh", "-c", "head -c 50000000 /dev/zero"], env={"PATH": "/usr/bin:/bin"}, timeout_s=10)
    assert output.code == 0 and len(output.text) <= tools.MAX_BYTES + 65536


def test_readings_leave_npu_smi_four_fifths_of_its_time_in_peace():
    assert pause_s(1.0, 0.05) == 1.0
    assert pause_s(5.0, 0.05) == 5.0
    assert pause_s(1.0, 2.0) == 10.0
    assert pause_s(0.2, 0.0) == 1.0


def test_a_process_is_named_with_its_user_and_command(server):
    own = os.getpid()
    table = re.sub(r"\b(\d+)( +\| \S+ +\| \d+)", rf"{own}\2", TABLE)
    (server.folder / "table").write_text(table)
    process = Sampler(server.config).sample()["processes"][0]
    assert (process["user"], process["command"], process["attempt"]) == (None, None, None)  # its /proc is another
    (server.folder / "root").mkdir()
    (server.folder / "root" / "proc").symlink_to("/proc")
    process = Sampler(server.config).sample()["processes"][0]
    assert process["pid"] == own and process["user"] and "python" in process["command"]
    assert process["attempt"] is None


def test_a_process_of_our_job_carries_the_attempt(server):
    folder = server.run("import os, time; print(os.getpid(), flush=True); time.sleep(3)", wait=False)
    until(lambda: (folder / "lines").exists() and texts(folder))
    pid = int(texts(folder)[0])
    found = Sampler(server.config, run=lambda argv, **options: Output(0, TABLE))
    found.owners.refresh()
    owner = found.owners.of(pid)
    assert owner["attempt"] == folder.name and "time.sleep" in owner["command"]
    assert found.owners.of(1)["attempt"] is None


def test_facts_name_system_versions_and_topology(server):
    root = server.folder / "root"
    for path, fixture in (
        ("etc/os-release", "host/os_release_openeuler.txt"),
        ("usr/local/Ascend/driver/version.info", "host/version_info_driver.txt"),
        ("usr/local/Ascend/firmware/version.info", "host/version_info_firmware.txt"),
        (
            "usr/local/Ascend/ascend-toolkit/latest/aarch64-linux/ascend_toolkit_install.info",
            "host/cann_install_info_toolkit.txt",
        ),
    ):
        (root / path).parent.mkdir(parents=True)
        (root / path).write_text((FIXTURES / fixture).read_text())
    script(server.folder, "lscpu", f"cat {FIXTURES / 'host/lscpu_kunpeng.txt'}")
    script(server.folder, "npu-smi", f"cat {FIXTURES / 'npu_smi/topo_910b4_25.2.3.txt'}")
    facts = Sampler(server.config).facts()["facts"]
    assert facts["arch"] == "aarch64" and "openEuler" in facts["os"]
    assert facts["driver"] == "25.2.3" and facts["cann"] == "8.3.RC1" and facts["firmware"]
    assert facts["topology"]["npus"] == ["NPU2", "NPU5", "NPU9"]
    assert facts["topology"]["matrix"][0] == ["X", "HCCS", "PHB"]
    assert facts["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_facts_that_cannot_be_read_are_unknown(server):
    for name in ("npu-smi", "lscpu"):
        script(server.folder, name, "echo nonsense; exit 1")
    facts = Sampler(server.config).facts()["facts"]
    assert [facts[name] for name in ("os", "driver", "firmware", "cann", "topology", "cpu_model")] == [None] * 6
    assert facts["hostname"] and facts["kernel"]


def test_host_rates_are_those_since_the_reading_before():
    meter = HostMeter()
    first = meter.read()
    assert first["cpu_pct"] is None and first["rx_kbps"] is None
    until(lambda: time.sleep(0.3) or True)
    second = meter.read()
    assert 0 <= second["cpu_pct"] <= 100
    assert second["mem_total_mb"] > second["mem_used_mb"] > 0
    assert second["disk_total_gb"] > 0 and second["uptime_s"] > 0 and second["load1"] >= 0


def test_host_figures_that_cannot_be_read_are_unknown_not_zero(tmp_path):
    figures = HostMeter(tmp_path, tmp_path / "gone").read()
    assert {name for name, value in figures.items() if value is not None} == {"cpus"}


def test_the_loop_leaves_samples_and_facts_and_remembers_the_npus(server):
    loop = Loop(Sampler(server.config), Outbox(server.config.telemetry))
    wait = loop.turn()
    assert 0 < wait <= 1.0
    loop.turn()
    kinds = [json.loads(path.read_bytes())["type"] for path in waiting(server.config.telemetry)]
    assert kinds == ["sample", "facts", "sample"]
    bus_id = TRUTH["npus"][1]["bus_id"]
    assert devices.visible(server.config.state_dir, [bus_id]) == "1"


def test_facts_are_told_again_when_the_driver_changes(server):
    loop = Loop(Sampler(server.config), Outbox(server.config.telemetry))
    loop.turn()
    (server.folder / "table").write_text(TABLE.replace("25.2.3", "25.9.9"))
    loop.turn()
    kinds = [json.loads(path.read_bytes())["type"] for path in waiting(server.config.telemetry)]
    assert kinds == ["sample", "facts", "sample", "facts"]


def test_the_outbox_keeps_the_newest(tmp_path):
    outbox = Outbox(tmp_path)
    for n in range(130):
        outbox.put({"seq": n})
    kept = waiting(tmp_path)
    assert len(kept) == 120 and json.loads(kept[0].read_bytes())["seq"] == 10
    Outbox(tmp_path).put({"seq": 130})
    assert json.loads(waiting(tmp_path)[-1].read_bytes())["seq"] == 130
