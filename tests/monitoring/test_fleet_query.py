from hypothesis import given
from hypothesis import strategies as st

from monitoring.services import fleet_page, fleet_query
from monitoring.services.fleet_query import Asked
from tests.monitoring.nows import now, npu, process


def servers(*nows):
    return fleet_page.page_servers(nows, 1002.0)


def names(groups):
    return [[server["name"] for server in group.servers] for group in groups]


def test_an_empty_address_asks_for_the_defaults_and_gives_back_no_query():
    asked, problems = fleet_query.read({})
    assert (asked, problems) == (Asked(), [])
    assert asked.address() == "?"


def test_an_address_round_trips():
    asked, problems = fleet_query.read({"metric": "temp_c", "show": "faulty", "fleet": "real", "find": " kp 01 "})
    assert problems == []
    assert asked.address() == "?metric=temp_c&fleet=real&show=faulty&find=kp+01"


def test_a_value_nobody_knows_is_named_and_its_default_taken():
    asked, problems = fleet_query.read({"metric": "<b>fan</b>", "sort": "worst"})
    assert asked == Asked(sort="worst")
    assert len(problems) == 1 and "<b>fan</b>" in problems[0] and "temp_c" in problems[0]


@given(st.dictionaries(st.sampled_from([*fleet_query.CHOICES, "find", "other"]), st.text(max_size=300)))
def test_no_address_breaks_the_page(query):
    asked, _problems = fleet_query.read(query)
    fleet_query.matches(servers(now(npus=[npu()]))[0], asked)
    assert len(asked.find) <= fleet_query.MAX_FIND


def test_filters_take_state_occupancy_fault_and_words():
    busy, quiet, demo = servers(
        now(1, "kp-01", npus=[npu(0, occ="foreign", health="Alarm")], processes=[process(user="li")]),
        now(2, "kp-02", rack="B7", state="silent", npus=[npu(0)]),
        now(3, "demo-1", simulated=True, npus=[npu(0, occ="ours")]),
    )

    def kept(**asked):
        return [server["name"] for server in (busy, quiet, demo) if fleet_query.matches(server, Asked(**asked))]

    assert kept(show="foreign") == ["kp-01"]
    assert kept(show="faulty") == ["kp-01"]
    assert kept(show="silent") == ["kp-02"]
    assert kept(fleet="simulated") == ["demo-1"]
    assert kept(fleet="real", show="ours") == []
    assert kept(find="b7 KP") == ["kp-02"]
    assert kept(find="li") == ["kp-01"]


def test_real_servers_stand_before_simulated_ones_and_names_sort_as_people_count():
    groups = fleet_query.arrange(
        servers(
            now(1, "demo-1", simulated=True),
            now(2, "kp-10"),
            now(3, "kp-2"),
            now(4, "kp-1", rack="A10"),
            now(5, "kp-3", rack="A9"),
        ),
        Asked(),
    )
    assert names(groups) == [["kp-2", "kp-10"], ["kp-3"], ["kp-1"], ["demo-1"]]


def test_worst_first_is_faults_then_silence_then_unreadable_then_load():
    error = {"code": None, "meaning": "dcmi-init", "text": "", "what": None, "do": None}
    (group,) = fleet_query.arrange(
        servers(
            now(1, "idle", npus=[npu(aicore=1)]),
            now(2, "busy", npus=[npu(aicore=90)]),
            now(3, "silent", state="silent", npus=[npu(aicore=99)]),
            now(4, "unreadable", error=error),
            now(5, "faulty", npus=[npu(health="Warning")]),
        ),
        Asked(sort="worst", group="none"),
    )
    assert [server["name"] for server in group.servers] == ["faulty", "silent", "unreadable", "busy", "idle"]


def test_noise_in_load_moves_nothing():
    def order(first, second):
        found = servers(now(1, "a", npus=[npu(aicore=first)]), now(2, "b", npus=[npu(aicore=second)]))
        return [server["name"] for server in fleet_query.order(found, Asked(sort="worst"))]

    assert order(52, 58) == order(58, 52) == ["a", "b"]


def test_csv_has_a_line_per_npu_and_leaves_unknown_empty():
    nows = [now(1, npus=[npu(0, power=None), npu(1)]), now(2, "kp-02")]
    lines = list(fleet_query.csv_rows(servers(*nows), {one["id"]: one for one in nows}))
    assert [line[0] for line in lines] == ["kp-01", "kp-01", "kp-02"]
    power = fleet_query.CSV_HEAD.index("power_w")
    assert (lines[0][power], lines[1][power], lines[2][power]) == (None, 92.5, None)
    assert {len(line) for line in lines} == {len(fleet_query.CSV_HEAD)}


def test_any_name_can_be_put_in_order():
    """Chip names come from servers: not every character that looks like a digit is one that int() takes."""
    assert sorted(["a1²", "a10", "a2", "²", "٣"], key=fleet_query.natural)
