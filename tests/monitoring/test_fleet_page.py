from django.utils.translation import override

from monitoring.services import fleet_page, live_state
from tests.monitoring.nows import now, npu, process


def page(*nows, at=1002.0):
    return fleet_page.page_servers(nows, at)


def test_an_npu_is_six_numbers_and_unknown_is_none():
    unknown = npu(occ="unreadable", health=None, aicore=None, used=None, temp=None, power=None)
    (server,) = page(now(npus=[npu(occ="ours", aicore=83, used=32768, temp=57.6, power=301.4), unknown]))
    assert server["npus"] == [[83, 50, 58, 301, 1, 0], [None, None, None, None, 6, 0]]


def test_the_shortcut_agrees_with_live_state_for_every_metric():
    chip = npu(aicore=41, used=20000, total=44280, temp=52, power=None)
    assert fleet_page.page_npu(chip)[:4] == [
        None if amount is None else round(amount)
        for amount in (live_state.value(chip, metric) for metric in fleet_page.METRIC_AT)
    ]


def test_first_is_the_place_in_the_order_of_colour_steps():
    servers = page(now(1, npus=[npu(0), npu(1)]), now(2, npus=[]), now(5, npus=[npu(0)]))
    assert [server["first"] for server in servers] == [0, 2, 2]


def test_the_block_names_the_layout_that_ingest_names():
    nows = [now(1, npus=[npu(0), npu(1)]), now(4)]
    assert fleet_page.block(page(*nows), 1002.0)["gen"] == live_state.layout_generation([(1, 2), (4, 0)])


def test_two_chips_of_every_card_share_a_square():
    dual = [npu(i, npu_id=i // 2, chip=i % 2) for i in range(4)]
    assert fleet_page.dies(dual) == 2
    assert fleet_page.dies([npu(0), npu(1)]) == 1
    assert fleet_page.dies([npu(i, npu_id=0, chip=i) for i in range(4)]) == 1
    assert fleet_page.dies([]) == 1


def test_power_adds_up_what_is_known_and_is_unknown_where_nothing_is():
    some, none = page(now(1, npus=[npu(0, power=100), npu(1, power=None)]), now(2, npus=[npu(0, power=None)]))
    assert (some["power_w"], none["power_w"]) == (100, None)


def test_a_silent_server_has_no_present_figures():
    (server,) = page(now(state="silent", npus=[npu(aicore=50)]), at=1100.0)
    assert fleet_page.summary(server) == {"aicore": None, "hbm": None, "hottest": None, "power_w": None}
    assert server["age"] == 100.0


def test_a_server_never_heard_has_no_age():
    (server,) = page(now(state="never", seen=None))
    assert server["age"] is None


def test_the_holder_names_jobs_foreigners_and_faults():
    held = now(
        npus=[npu(0, occ="ours"), npu(1, occ="foreign"), npu(2, occ="unexplained", used=30000), npu(3, health="Alarm")],
        processes=[process(0, attempt="a42-1-0badcafe"), process(1, user="li", name="train")],
    )
    with override("en"):
        text = fleet_page.holder(held)
    assert text == "job #42 · foreign: li, train, 1 NPU · NPU 3 Alarm · memory taken, no process listed"


def test_the_holder_of_an_unreadable_server_is_its_meaning_in_the_readers_language():
    error = {
        "code": -8005,
        "meaning": "dcmi-init",
        "text": "…",
        "what": ["驱动没有应答", "The driver does not answer"],
        "do": None,
    }
    with override("en"):
        assert fleet_page.holder(now(error=error)) == "The driver does not answer"
    with override("zh-hans"):
        assert fleet_page.holder(now(error=error)) == "驱动没有应答"


def test_a_meaning_that_the_parsers_know_is_said_in_words():
    error = {"code": -8005, "meaning": "driver_not_ready", "text": "…", "what": None, "do": None}
    with override("en"):
        what, do = fleet_page.error_words(error)
    assert what == "The NPU driver does not answer." and do.startswith("Restart the server")
    with override("en"):
        assert "other_thing" in fleet_page.error_words({**error, "meaning": "other_thing"})[0]


def test_counts_keep_servers_states_and_npus_apart():
    counts = fleet_page.counts(
        page(now(1, npus=[npu(0), npu(1, occ="foreign", health="Alarm")]), now(2, state="silent"))
    )
    assert (counts["servers"], counts["live"], counts["silent"]) == (2, 1, 1)
    assert (counts["npus"], counts["free"], counts["foreign"], counts["faulty"]) == (2, 1, 1, 1)


def test_an_attempt_id_that_is_none_names_no_job():
    assert [fleet_page.job_of(text) for text in ("a7-2-00ff00ff", "b7-2", "", None)] == [7, None, None, None]
