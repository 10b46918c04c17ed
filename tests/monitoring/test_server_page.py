from datetime import UTC, datetime

from django.utils.translation import override
from hypothesis import given
from hypothesis import strategies as st

from monitoring.services import link_matrix, server_page
from tests.monitoring.nows import now, npu, process


def test_the_memory_bar_parts_other_ours_and_foreign():
    chip = npu(0, used=50000, total=100000)
    parts = server_page.memory_parts(chip, [process(mb=30000, attempt="a1-1-00000000"), process(mb=15000)])
    assert [(part.css, part.start, part.width) for part in parts] == [
        ("other", 0.0, 5.0),
        ("ours", 5.0, 30.0),
        ("foreign", 35.0, 15.0),
    ]


def test_a_bar_never_grows_over_its_end():
    parts = server_page.memory_parts(npu(0, used=1000, total=1000), [process(mb=900), process(mb=900)])
    assert sum(part.width for part in parts) <= 100


def test_no_bar_where_memory_is_unknown():
    assert server_page.memory_parts(npu(0, used=None), []) == []
    assert server_page.memory_parts(npu(0, total=None), []) == []


def test_a_tile_knows_its_place_and_who_is_on_it():
    reading = now(
        npus=[npu(0, npu_id=3, chip=0, occ="ours"), npu(1, npu_id=3, chip=1)],
        processes=[process(3, 0, attempt="a9-1-00000000"), process(3, 0, pid=4712, attempt="a9-1-00000000")],
    )
    with override("en"):
        first, second = server_page.tiles(reading)
    assert (first.index, first.key, [(h.job, h.text) for h in first.holders]) == (0, "3.0", [(9, "job #9")])
    assert (second.index, second.key, second.holders, second.occupancy) == (1, "3.1", [], "free")


def test_processes_are_listed_by_place_and_a_process_on_no_known_npu_comes_last():
    reading = now(
        npus=[npu(0), npu(1)], processes=[process(9, 9, pid=1), process(1, pid=2), process(0, pid=3, user=None)]
    )
    rows = server_page.processes(reading)
    assert [(row.pid, row.places) for row in rows] == [(3, "0"), (2, "1"), (1, "—")]
    assert rows[0].user is None


def test_sparks_stand_in_the_middle_of_their_minute_and_keep_unknown():
    at = datetime(2026, 11, 30, 7, 0, tzinfo=UTC)
    minutes = [
        (at, {"n": 60, "npus": {"0.0": [41.5, 3000, 40, 90]}}),
        (at, {"n": 60, "npus": {"0.0": [None, None, None, None]}}),
    ]
    middle = at.timestamp() + 30
    assert server_page.sparks(minutes) == {"0.0": [[middle, 41.5], [middle, None]]}


FOUR = {"npus": ["NPU0", "NPU1", "NPU2", "NPU3"], "matrix": [
    ["X", "HCCS", "PHB", "PHB"], ["HCCS", "X", "PHB", "PHB"], ["PHB", "PHB", "X", "HCCS"], ["PHB", "PHB", "HCCS", "X"],
]}  # fmt: skip


def test_link_groups_are_what_direct_links_join():
    drawn = link_matrix.matrix(FOUR)
    assert drawn.names == ["0", "1", "2", "3"]
    assert drawn.groups == [["0", "1"], ["2", "3"]]
    assert drawn.rows[0] == ("0", [("·", "self"), ("HCCS", "near group-0"), ("PHB", ""), ("PHB", "")])
    assert drawn.rows[3][1][2] == ("HCCS", "near group-1")


def test_links_as_the_parser_gives_them_are_drawn_too():
    drawn = link_matrix.matrix({"links": {"NPU0": {"NPU1": "UB"}, "NPU1": {"NPU0": "UB"}}, "cpu_affinity": {}})
    assert drawn.groups == [["0", "1"]]


def test_a_link_that_is_not_told_is_shown_as_missing():
    drawn = link_matrix.matrix({"links": {"NPU0": {}, "NPU1": {"NPU0": "NA"}}})
    assert drawn.rows[0][1][1] == ("—", "down") and drawn.rows[1][1][0] == ("NA", "down")


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=20),
    lambda x: st.lists(x, max_size=4) | st.dictionaries(st.text(max_size=8), x, max_size=4),
)


@given(JSON, JSON, JSON)
def test_no_topology_of_a_server_breaks_the_page(links, names, cells):
    for topology in (links, {"links": links}, {"npus": names, "matrix": cells}, {"links": {"a": links}}):
        drawn = link_matrix.matrix(topology)
        assert drawn is None or all(len(row[1]) == len(drawn.names) for row in drawn.rows)


@given(st.dictionaries(st.sampled_from([key for key, _label in server_page.FACTS]), JSON))
def test_no_fact_of_a_server_breaks_the_page(known):
    assert all(0 < len(value) <= 200 for _label, value in server_page.facts(known))


def test_facts_that_are_not_told_are_dashes():
    with override("en"):
        told = dict(
            server_page.facts({"os": "openEuler 24.03", "mem_total_mb": 1572864, "driver": {"version": "25.5.1"}})
        )
    assert (told["Operating system"], told["Memory"], told["Driver"], told["CANN"]) == (
        "openEuler 24.03",
        "1,536 GiB",
        "25.5.1",
        "—",
    )


def test_host_figures_keep_unknown_and_zero_apart():
    with override("en"):
        figures = {
            figure.key: figure
            for figure in server_page.host_figures({"cpu_pct": 0.0, "mem_used_mb": None, "mem_total_mb": 2048})
        }
    assert (figures["cpu_pct"].value, figures["cpu_pct"].pct) == ("0", 0.0)
    assert (figures["mem"].value, figures["mem"].pct) == ("—", None)
    assert figures["load1"].value == "—"


def test_the_clock_offset_has_a_sign_and_a_fitting_unit():
    assert [server_page.offset_words(s) for s in (0.012, -1.44, None)] == ["+12 ms", "−1.4 s", "—"]


def test_whose_a_process_is_job_served_or_foreign():
    names = {"5": "qwen3-32b"}
    with override("en"):
        told = [
            server_page.holder(process(pid=4, attempt="a12-1-00000000"), names),
            server_page.holder(process(pid=5, attempt="demo"), names),
            server_page.holder(process(pid=6, attempt="demo"), names),
            server_page.holder(process(pid=7), names),
            server_page.holder(process(pid=7), names, short=True),
            server_page.holder(process(pid=8, user=None, name=""), names, short=True),
        ]
    assert [(one.ours, one.job, one.text) for one in told] == [
        (True, 12, "job #12"), (True, None, "qwen3-32b"), (True, None, "ours"),
        (False, None, "foreign process"), (False, None, "wang python3"), (False, None, "pid 8"),
    ]  # fmt: skip
