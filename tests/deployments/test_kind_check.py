import json
import os
import signal
import subprocess
import sys
from functools import partial

import pytest

from deployments import kinds
from deployments.demo import fleet
from deployments.kinds import check
from deployments.kinds.check_probes import __main__ as program
from deployments.kinds.check_probes import system
from deployments.kinds.check_probes.finding import Finding, Probe
from deployments.kinds.check_probes.host import Host
from deployments.steps import PYTHON, Text
from tests.deployments.check_bench import (
    A910,
    ALARM,
    DOWN,
    DUMB,
    DUO,
    HELD,
    LOST,
    OLD,
    demo_host,
    is_whole,
    put_tool,
    report,
)
from tests.waiting import until


@pytest.fixture
def demo(tmp_path):
    return partial(demo_host, tmp_path)


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
    report(demo(0))
    items, _ = report(demo(0))  # hccn.conf is compared with what the first one noted
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
