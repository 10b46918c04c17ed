"""Codes of faults and pods of Kubernetes, as an agent reads them."""

import pytest

from deployments.agent import facts_cluster
from deployments.agent.facts_host import FactsHost
from deployments.agent.fault_codes import AGAIN_S, FaultCodes
from deployments.agent.tools import Output
from deployments.kinds.check_probes.host import Trouble
from deployments.steps import Text

LINE = "        {:<31}: {}\n"


def said(code):
    return "".join(LINE.format(*pair) for pair in (("NPU ID", 1), ("Health", "Warning"), ("Error Code", code)))


class Tool:
    def __init__(self):
        self.asked, self.code, self.problem, self.now = [], "0x81078603,80e18402", None, 0.0
        self.codes = FaultCodes(self.ask, lambda: self.now)

    def ask(self, argv, timeout_s):
        self.asked.append(argv)
        return Output(0, said(self.code), self.problem)

    def of(self, *healths):
        return self.codes.of([{"npu": n, "chip": 0, "health": health} for n, health in enumerate(healths)])


def test_only_who_is_not_well_is_asked_and_seldom():
    tool = Tool()
    assert tool.of("OK", None) == {} and tool.asked == []
    assert tool.of("OK", "Warning") == {(1, 0): ["81078603", "80E18402"]}
    assert tool.asked == [("npu-smi", "info", "-t", "health", "-i", "1", "-c", "0")]
    tool.of("OK", "Warning")
    assert len(tool.asked) == 1
    tool.of("OK", "Alarm")
    assert len(tool.asked) == 2, "another health is asked about at once"
    tool.now = AGAIN_S + 1
    tool.of("OK", "Alarm")
    assert len(tool.asked) == 3
    assert tool.of("OK", "OK") == {}


@pytest.mark.parametrize(("code", "problem"), [("NA", None), ("?", None), ("81078603", "timeout")])
def test_what_cannot_be_read_has_no_code(code, problem):
    tool = Tool()
    tool.code, tool.problem = code, problem
    assert tool.of("Warning") == {(0, 0): []}


def test_many_sick_npus_do_not_stop_a_reading():
    tool = Tool()
    tool.of(*["Alarm"] * 64)
    assert len(tool.asked) == 8


def host(tmp_path, comm="kubelet", *, sockets=()):
    folder = tmp_path / "proc" / "77"
    folder.mkdir(parents=True)
    (folder / "comm").write_text(f"{comm}\n")
    plugins = tmp_path / "var/lib/kubelet/device-plugins"
    plugins.mkdir(parents=True)
    for name in sockets:
        (plugins / name).touch()
    return FactsHost(tmp_path, {}, lambda *_a, **_m: Output(None, "", "not_found"))


def test_kubelet_with_a_plugin_for_npus_is_told(tmp_path):
    told = facts_cluster.kubernetes(host(tmp_path, sockets=("Ascend910.sock", "kubelet.sock", "nvidia.sock")))
    assert told == {"kubernetes": {"kubelet": True, "plugins": ["Ascend910.sock"]}}


def test_files_that_a_kubelet_left_behind_count_for_nothing(tmp_path):
    told = facts_cluster.kubernetes(host(tmp_path, "bash", sockets=("Ascend910.sock",)))
    assert told == {"kubernetes": {"kubelet": False, "plugins": []}}


def test_a_folder_that_is_not_ours_to_read_is_not_known(tmp_path, monkeypatch):
    one = host(tmp_path)
    names = one.names

    def refused(folder):
        if "kubelet" in folder:
            raise Trouble(Text("无权读取", "not ours to read"))
        return names(folder)

    monkeypatch.setattr(one, "names", refused)
    with pytest.raises(Trouble):
        facts_cluster.kubernetes(one)


@pytest.mark.parametrize(
    ("text", "pod"),
    [("0::/kubepods.slice/kubepods-burstable.slice/x\n", True), ("0::/user.slice\n", False), (None, False)],
)
def test_a_pod_is_known_by_its_cgroup(tmp_path, text, pod):
    folder = tmp_path / "9"
    folder.mkdir()
    if text:
        (folder / "cgroup").write_text(text)
    assert facts_cluster.in_pod(tmp_path, 9) is pod
