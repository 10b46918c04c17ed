import dataclasses
import itertools
import json
import subprocess
import sys

import pytest

from deployments.agent import ROOT
from deployments.agent import facts as agent_facts
from deployments.agent.config import Config
from deployments.agent.tools import Output
from deployments.demo import answers, fleet, physics, root, state, systems, tables, telemetry, tools
from deployments.demo.state import Engines
from monitoring.parsers import (
    cann_install_info,
    failures,
    hccn_ip,
    hccn_link,
    hccn_lldp,
    hccn_net_health,
    hccn_optical,
    hccn_stat,
    lscpu,
    npu_smi_board,
    npu_smi_common,
    npu_smi_ecc,
    npu_smi_health,
    npu_smi_info,
    npu_smi_list,
    npu_smi_map,
    npu_smi_proc_mem,
    npu_smi_temp,
    npu_smi_topo,
    npu_smi_usages,
    npu_smi_version,
    os_release,
    version_info,
)

NOON = 1_760_000_000.0
SERVERS = [fleet.server(index) for index in range(len(fleet.TRAITS))]
READABLE = [server for server in SERVERS if "unreadable" not in server.quirks]
EACH = pytest.mark.parametrize("server", READABLE, ids=lambda server: server.name)


def say(server, *argv, t=NOON):
    code, text = tools.answer(server, list(argv), t)
    assert code == 0, text
    return text


def config(server, folder):
    return Config(
        server_id=1, name=server.name, redis_url="redis://", prefix="h:1", key="ab" * 32, state_dir=folder,
        path=folder / "config.json", simulated=True, env={"ASCEND_ROOT": str(folder / "root")},
    )  # fmt: skip


def test_names_and_racks_are_stable_and_unique():
    made = fleet.enlist(1000)
    assert len({row["name"] for row in made}) == 1000
    assert [row["name"] for row in (made[0], made[19], made[999])] == ["kp-01", "kp-20", "kp-1000"]
    assert [row["rack"] for row in (made[0], made[5], made[40], made[999])] == ["A1", "A2", "B1", "Y8"]
    assert made[:20] == fleet.enlist(20)
    assert made[0]["labels"] == {"demo": True, "demo_holder": "qwen3-32b ×2"}
    assert max(len(row["rack"]) for row in fleet.enlist(5000)) == 3


def test_the_first_servers_show_what_there_is_to_see():
    assert {server.spec.layout for server in SERVERS} == set(tables.LAYOUTS)
    assert {"alarm", "held", "silent", "lost", "unreadable", "down"} == {key for one in SERVERS for key in one.quirks}
    assert any(engine.attempt is None for server in SERVERS for engine in server.engines)


@pytest.mark.parametrize("name", ["kp-00", "kp--1", "kp-", "kp-1234567", "kp-1x", "other", ""])
def test_other_names_are_no_servers_of_the_demo(name):
    with pytest.raises(LookupError, match="demo fleet"):
        fleet.by_name(name)


def test_a_server_is_found_by_its_name():
    assert fleet.by_name("kp-07") is fleet.server(6)


def test_engines_fit_into_their_chips():
    for server in map(fleet.server, range(200)):
        total = server.spec.hbm_mb or server.spec.ddr_mb
        for chip in server.chips:
            taken = sum(engine.memory_mb for engine in server.engines if chip.index in engine.chips)
            assert taken + server.quirks.get("held", {}).get(chip.index, 0) + server.spec.idle_mb < total * 0.97
        pids = [pid for engine in server.engines for pid in engine.pids]
        assert len(pids) == len(set(pids)) and max(pids, default=1) < 4_194_304


@EACH
def test_a_table_parses_back_to_the_readings(server):
    for t in (NOON, NOON + 37.4):
        info = npu_smi_info.parse(tables.info(server, t))
        expected = physics.readings(server, t, server.engines)
        assert isinstance(info, npu_smi_info.Info) and not info.cut
        assert info.version == server.spec.version
        assert [(npu.npu, npu.chip, npu.bus_id) for npu in info.npus] == [
            (chip.npu, chip.chip, chip.bus_id) for chip in tables.shown(server)
        ]
        for npu, chip in zip(info.npus, tables.shown(server), strict=True):
            reading = expected[chip.index]
            assert (npu.name, npu.health) == (server.spec.chip, reading.health)
            assert (npu.temp_c, npu.aicore_pct) == (reading.celsius, reading.aicore)
            assert npu.power_w == (reading.watts if chip.chip == 0 else None)
            used = npu.memory_used_mb if server.spec.hbm_mb is None else npu.hbm_used_mb
            assert used == reading.used_mb
            assert npu.hbm_total_mb == server.spec.hbm_mb
        held = physics.processes(server, t, server.engines)
        assert [(process.pid, process.name, process.memory_mb) for process in info.processes] == [
            (one.pid, one.name, one.memory_mb) for one in held
        ]


@EACH
def test_the_lines_of_a_table_are_of_one_width(server):
    widths = {len(line) for line in tables.info(server, NOON).splitlines()}
    assert len(widths) == 1


def test_a_driver_that_does_not_answer_prints_its_failure():
    server = next(one for one in SERVERS if "unreadable" in one.quirks)
    found = npu_smi_info.parse(tables.info(server, NOON))
    assert isinstance(found, failures.Unreadable)
    assert (found.code, found.meaning) == (-8005, "driver_not_ready")


def test_a_lost_card_is_on_the_bus_but_not_in_the_table(tmp_path):
    server = next(one for one in SERVERS if "lost" in one.quirks)
    info = npu_smi_info.parse(tables.info(server, NOON))
    assert [npu.npu for npu in info.npus] == [0, 1, 2, 3, 4, 5, 7]
    assert len([name for name in root.files(server) if name.endswith("/uevent")]) == 8


@EACH
def test_every_other_answer_is_understood(server):
    chip = tables.shown(server)[-1]
    of_chip = ("-i", str(chip.npu), "-c", str(chip.chip))
    listed = npu_smi_list.parse(say(server, "npu-smi", "info", "-l")).as_json()
    assert listed["total"] == len({one.npu for one in tables.shown(server)})
    mapped = npu_smi_map.parse(say(server, "npu-smi", "info", "-m")).as_json()
    assert [row["logic_id"] for row in mapped["rows"]] == list(range(len(tables.shown(server))))
    topology = npu_smi_topo.parse(say(server, "npu-smi", "info", "-t", "topo"))
    assert len(topology.links) == len(tables.shown(server))
    for kind, parser, key in [
        ("board", npu_smi_board, "PCIe Bus Info"),
        ("health", npu_smi_health, "Health Status"),
        ("common", npu_smi_common, "Aicore Usage Rate(%)"),
        ("usages", npu_smi_usages, "Aicore Usage Rate(%)"),
        ("temp", npu_smi_temp, "Temperature (C)"),
        ("ecc", npu_smi_ecc, "HBM Double Bit Error Count"),
    ]:
        assert key in parser.parse(say(server, "npu-smi", "info", "-t", kind, *of_chip)).values
    assert npu_smi_board.parse(say(server, "npu-smi", "info", "-t", "board", "-i", str(chip.npu))).values["Chip Count"]
    memory = npu_smi_proc_mem.parse(say(server, "npu-smi", "info", "-t", "proc-mem", *of_chip))
    assert [one.pid for one in memory.processes] == [
        one.pid for one in physics.processes(server, NOON, server.engines) if one.chip == chip.index
    ]
    assert npu_smi_version.parse(say(server, "npu-smi", "-v")).values
    assert lscpu.parse(say(server, "lscpu")).values["Architecture"] == "aarch64"


def test_ports_answer_where_a_chip_has_them():
    server = SERVERS[0]
    for option, parser in [
        ("-link", hccn_link),
        ("-net_health", hccn_net_health),
        ("-ip", hccn_ip),
        ("-stat", hccn_stat),
        ("-optical", hccn_optical),
    ]:
        assert parser.parse(say(server, "hccn_tool", "-i", "3", option, "-g")).values
    assert hccn_lldp.parse(say(server, "hccn_tool", "-i", "3", "-lldp", "-g")).ifname == "200GE1/0/4"
    duo = next(one for one in SERVERS if one.spec.chip == "310P3")
    code, text = tools.answer(duo, ["hccn_tool", "-i", "0", "-link", "-g"], NOON)
    assert code == 1
    assert failures.parse(text).meaning == "command_failed"
    assert tools.answer(server, ["hccn_tool", "-i", "99", "-link", "-g"], NOON)[0] == 1


@pytest.mark.parametrize(
    ("argv", "meaning"),
    [
        (["npu-smi", "info", "-t", "nonsense", "-i", "0"], "bad_option"),
        (["npu-smi", "info", "-t", "health", "-i", "99"], "bad_device"),
        (["npu-smi", "set", "-t", "reset"], "bad_option"),
    ],
)
def test_wrong_questions_are_refused_as_the_tool_does(argv, meaning):
    code, text = tools.answer(SERVERS[0], argv, NOON)
    assert code != 0
    assert failures.parse(text).meaning == meaning


def test_a_program_that_the_server_lacks_is_not_found():
    kylin = next(one for one in SERVERS if systems.of(one).docker is None)
    assert tools.answer(kylin, ["docker", "--version"], NOON)[0] == 127
    assert tools.answer(kylin, ["rm", "-rf", "/"], NOON)[0] == 127


def test_any_process_computes_the_same_reading():
    code = (
        "from deployments.demo import fleet, tables\n"
        f"print(tables.info(fleet.server(1), {NOON}) + tables.info(fleet.server(700), {NOON}), end='')"
    )
    other = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    tables.info(fleet.server(1), NOON - 500)  # what was asked before makes no difference
    assert other.stdout == tables.info(fleet.server(1), NOON) + tables.info(fleet.server(700), NOON)


def series(server, name, seconds, step=1, chip=0):
    return [getattr(physics.readings(server, NOON + t, server.engines)[chip], name) for t in range(0, seconds, step)]


def test_heat_follows_load_with_inertia():
    server = next(one for one in SERVERS if any(engine.pattern == "busy" for engine in one.engines))
    idle = fleet.server(16)
    assert min(series(server, "celsius", 300)) > max(series(idle, "celsius", 300)) + 12
    assert min(series(server, "watts", 300)) > max(series(idle, "watts", 300)) * 1.8
    warm = series(server, "celsius", 300)
    assert max(abs(after - before) for before, after in itertools.pairwise(warm)) <= 3
    batch = fleet.server(6)
    cores, heats = series(batch, "aicore", 400, chip=6), series(batch, "celsius", 400, chip=6)
    drop = next(t for t in range(1, 400) if cores[t] < 10 and cores[t - 1] >= 10)
    assert heats[drop] > heats[min(drop + 40, 399)] + 4  # it is still warm when the work has ended


def test_readings_stay_within_what_a_chip_can_show():
    for server in READABLE:
        total = server.spec.hbm_mb or server.spec.ddr_mb
        for t in range(0, 86400, 4111):
            for reading in physics.readings(server, NOON + t, server.engines):
                assert 0 <= reading.aicore <= 100
                assert 20 <= reading.celsius <= 82
                assert 0 <= reading.used_mb <= total


def test_memory_belongs_to_processes():
    server = SERVERS[6]
    read = physics.readings(server, NOON, server.engines)
    held = {one.chip: one.memory_mb for one in physics.processes(server, NOON, server.engines)}
    for chip, reading in enumerate(read):
        assert 0 <= reading.used_mb - held.get(chip, 0) - server.spec.idle_mb <= 200


def an_engine(**changes):
    made = fleet.Engine("qwen3-8b", "VLLMEngineCor", (2,), 40000, "busy", 77, attempt="a7-1-0123abcd", pids=(4242,))
    return dataclasses.replace(made, since=NOON, **changes)


def test_readings_follow_the_engine_that_a_job_starts(tmp_path):
    server = fleet.server(19)
    engines = Engines(server, tmp_path / "engines")
    before = physics.readings(server, NOON + 1, engines.running())[2]
    path = state.start(tmp_path / "engines", an_engine())
    running = engines.running()
    early, late = (physics.readings(server, NOON + t, running)[2] for t in (10, 240))
    assert before.used_mb < early.used_mb < late.used_mb
    assert before.celsius <= early.celsius < late.celsius
    assert late.aicore > 50 and before.aicore == 0
    info = npu_smi_info.parse(tables.info(server, NOON + 240, running))
    assert [(one.npu, one.pid) for one in info.processes] == [(2, 4242)]
    state.stop(path)
    assert engines.running() == ()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\xff",
        b"[]",
        b"{}",
        b'{"chips": 1, "pids": []}',
        json.dumps({**an_engine().__dict__, "chips": [99]}).encode(),
        json.dumps({**an_engine().__dict__, "pattern": "unheard of"}).encode(),
        json.dumps({**an_engine().__dict__, "pids": []}).encode(),
        json.dumps({**an_engine().__dict__, "memory_mb": "a lot"}).encode(),
        json.dumps({**an_engine().__dict__, "since": None}).encode(),
        b"[" * 100_000,
        b"x" * 10_000_000,
    ],
)
def test_an_engine_file_of_another_shape_is_passed_over(tmp_path, content):
    (tmp_path / "1.json").write_bytes(content)
    assert Engines(fleet.server(19), tmp_path).running() == ()


def test_one_server_is_silent_a_quarter_of_the_time():
    server = next(one for one in SERVERS if one.quirks.get("silent"))
    quiet = [physics.is_silent(server, NOON + t) for t in range(3600)]
    assert sum(quiet) == 900
    assert not any(physics.is_silent(SERVERS[0], NOON + t) for t in range(0, 3600, 10))


@EACH
def test_a_sample_has_the_agents_shape_and_says_that_it_is_simulated(tmp_path, server):
    engines = Engines(server, tmp_path / "engines")
    sampler = telemetry.DemoSampler(config(server, tmp_path), server, engines, lambda: 0)
    first, made = sampler.sample(), sampler.sample()
    assert made["simulated"] is True and made["error"] is None
    assert made["seq"] == first["seq"] + 1
    assert len(made["npus"]) == len(tables.shown(server))
    assert all(value is not None for value in made["host"].values())
    owners = {process["pid"]: process["attempt"] for process in made["processes"]}
    assert owners == {pid: engine.attempt for engine in server.engines for pid in engine.pids}
    if server.holder:
        assert {holder.split(" ×")[0] for holder in server.holder.split(", ")} == set(made["holders"].values())


def test_an_unreadable_server_sends_its_error_and_its_host(tmp_path):
    server = next(one for one in SERVERS if "unreadable" in one.quirks)
    sampler = telemetry.DemoSampler(config(server, tmp_path), server, Engines(server, tmp_path / "engines"), lambda: 0)
    made = sampler.sample()
    assert (made["npus"], made["error"]["code"]) == ([], -8005)
    assert made["host"]["cpus"] == 192


def test_a_job_shows_in_the_load_of_its_host():
    server = SERVERS[12]
    calm, busy = (physics.host(server, NOON, (), jobs=jobs) for jobs in (0, 2))
    assert busy["load1"] > calm["load1"] + 2
    assert busy["cpu_pct"] > calm["cpu_pct"]


@EACH
def test_facts_are_those_that_the_agent_would_collect(tmp_path, server):
    root.ensure(server, tmp_path / "root")

    def run(argv, *, env, timeout_s):
        return Output(*tools.answer(server, list(argv), NOON))

    collected = agent_facts.collect(config(server, tmp_path), {}, run)
    made = telemetry.collect(server, config(server, tmp_path), run)
    of_this_machine = {"python", "glibc", "boot_id", "stack_current", "stack_before"}
    assert made.keys() == collected.keys()
    assert {key: made[key] for key in made.keys() - of_this_machine} == {
        key: collected[key] for key in made.keys() - of_this_machine
    }


def test_version_files_are_understood():
    files = root.files(SERVERS[0])
    driver = version_info.parse(files["usr/local/Ascend/driver/version.info"]).values
    assert (driver["Version"], driver["compatible_version_fw"]) == ("25.5.0", "[7.0.0,7.9.99]")
    cann = next(text for name, text in files.items() if name.endswith("ascend_toolkit_install.info"))
    assert cann_install_info.parse(cann).values["version"] == "9.1.0"
    assert os_release.parse(files["etc/os-release"]).values["ID"] == "openEuler"


def test_a_root_is_written_once_and_mended_when_it_is_of_another_version(tmp_path, monkeypatch):
    server = SERVERS[0]
    assert root.ensure(server, tmp_path / "root")
    assert not root.ensure(server, tmp_path / "root")
    (tmp_path / "root" / "stray").write_text("x")
    monkeypatch.setattr(root, "VERSION", "other")
    assert root.ensure(server, tmp_path / "root")
    assert not (tmp_path / "root" / "stray").exists()


def test_the_tools_on_the_path_are_those_of_the_server(tmp_path, monkeypatch):
    root.write_tools(tmp_path / "bin")
    env = root.environment(SERVERS[3], tmp_path / "root", tmp_path / "bin")
    done = subprocess.run(["npu-smi", "info", "-l"], env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, answers.listing(SERVERS[3]))
    done = subprocess.run(["podman", "--version"], env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (127, "")
    done = subprocess.run(["uname", "-m"], env={**env, "ASCEND_DEMO_SERVER": "x"}, capture_output=True, text=True)
    assert done.returncode == 1 and "demo fleet" in done.stderr
