import base64
import json
import random
import time
from datetime import timedelta

import pytest
from django.utils import timezone
from hypothesis import given, settings
from hypothesis import strategies as st

from console.models import Alert, User
from deployments.models import Job, Npu, Server, ServerChange
from monitoring import history
from monitoring.ingest import Telemetry, summary
from monitoring.models import Minute
from monitoring.services import fleet_steps, live_state, readings

NPU = {
    "npu": 0, "chip": 0, "phy_id": None, "name": "910B3", "health": "OK", "power_w": 93.5, "temp_c": 41,
    "hugepages_used": 0, "hugepages_total": 0, "bus_id": "0000:C1:00.0", "aicore_pct": 40, "memory_used_mb": 0,
    "memory_total_mb": 0, "hbm_used_mb": 3400, "hbm_total_mb": 65536,
}  # fmt: skip


def sample(seq=1, npus=(NPU,), processes=(), **more):
    return json.dumps(
        {"type": "sample", "seq": seq, "t": time.time(), "npus": list(npus), "processes": list(processes), **more}
    ).encode()


class Pipe:
    def __init__(self):
        self.written = {}

    def hset(self, key, mapping):
        self.written.setdefault(key, {}).update(mapping)


@pytest.fixture
def telemetry(db):
    made = Telemetry()
    made.know([Server.objects.create(name="kp-01"), Server.objects.create(name="kp-02", simulated=True)])
    return made


def first(telemetry):
    return min(telemetry.servers)


def test_a_sample_becomes_live_state_rows_and_messages(telemetry):
    pk = first(telemetry)
    telemetry.open_topics = {f"server:{pk}"}
    ((channel, data),) = telemetry.take(pk, sample(seq=5), received=1000.0)
    assert channel == f"live:server:{pk}" and json.loads(data)["seq"] == 5
    pipe = Pipe()
    channels = [channel for channel, _ in telemetry.each_second(pipe, 1000.5)]
    assert "live:fleet" in channels and "live:fleet:rows" in channels
    now = json.loads(pipe.written["fleet:now"][str(pk)])
    assert now["npus"][0]["aicore"] == 40 and now["npus"][0]["occ"] == "free" and now["seen"] == 1000.0
    telemetry.flush()
    npu = Npu.objects.get()
    assert (npu.bus_id, npu.memory_total_mb) == ("0000:C1:00.0", 65536)
    assert Server.objects.get(pk=pk).family == "910B3"
    assert Server.objects.get(pk=pk).last_seen_at.timestamp() == 1000.0


def test_an_unreadable_reading_keeps_the_devices_visible(telemetry):
    pk = first(telemetry)
    telemetry.take(pk, sample(), received=1000.0)
    telemetry.take(
        pk, sample(npus=(), error={"code": -8005, "meaning": "dcmi-init", "text": "dcmi module"}), received=1001.0
    )
    now = telemetry.nows[pk]
    assert now["error"]["text"] == "dcmi module"
    assert [(npu["bus_id"], npu["occ"], npu["temp_c"]) for npu in now["npus"]] == [("0000:C1:00.0", "unreadable", None)]
    assert now["family"] == "910B3"


@pytest.mark.parametrize(
    ("name", "used", "processes", "occupancy"),
    [
        ("910B3", 3400, [], "free"),
        ("910B3", 40000, [], "unexplained"),
        ("Ascend950PR", 5900, [], "free"),
        ("310P3", 1600, [], "free"),
        ("310P3", 9000, [], "unexplained"),
        ("910B3", None, [], "unreadable"),
        ("910B3", 40000, [{"attempt": None}], "foreign"),
        ("910B3", 40000, [{"attempt": "a1"}], "ours"),
        ("910B3", 40000, [{"attempt": "a1"}, {"attempt": None}], "foreign"),
    ],
)
def test_occupancy(name, used, processes, occupancy):
    assert live_state.occupancy(name, used, processes) == occupancy


def test_a_chip_without_hbm_shows_its_ddr():
    npu = live_state.npu_now(
        {**NPU, "hbm_used_mb": None, "hbm_total_mb": None, "memory_used_mb": 1500, "memory_total_mb": 44280}, []
    )
    assert (npu["hbm_used_mb"], npu["hbm_total_mb"]) == (1500, 44280)


def test_unknown_is_never_zero():
    nothing = live_state.npu_now({}, [])
    assert nothing["aicore"] is None and nothing["hbm_used_mb"] is None
    assert summary([nothing]) == [None] * 4
    assert all(live_state.value(nothing, metric) is None for metric in live_state.METRICS)
    assert fleet_steps.step_of(None, "aicore_pct", before=3) == fleet_steps.UNKNOWN_STEP


def test_silence_is_a_state_that_follows_from_age(telemetry):
    pk = first(telemetry)
    telemetry.take(pk, sample(), received=1000.0)
    states = [live_state.state_at(telemetry.nows[pk], at) for at in (1001.0, 1016.0, 1061.0)]
    assert states == ["live", "silent", "offline"]
    assert live_state.state_at(telemetry.nows[max(telemetry.servers)], 1000.0) == "never"
    telemetry.each_second(Pipe(), 1000.0)
    told = [json.loads(data) for channel, data in telemetry.each_second(Pipe(), 1061.0) if channel == "live:fleet"]
    assert [message["data"]["state"] for message in told] == ["offline"]


def decode(z):
    data, numbers = base64.b64decode(z), []
    number = shift = 0
    for byte in data:
        number |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            numbers.append(number)
            number = shift = 0
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def test_steps_rebuild_what_the_fleet_shows():
    dice = random.Random(3)
    steps, shown = fleet_steps.FleetSteps(), None
    for _ in range(50):
        amounts = [dice.choice([None, 0, 3, 50, 100, 200]) for _ in range(300)]
        nows = [
            {
                "id": 1,
                "npus": [
                    {"aicore": a, "hbm_used_mb": None, "hbm_total_mb": None, "temp_c": None, "power_w": None}
                    for a in amounts
                ],
            }
        ]
        changed, messages = steps.advance(nows)
        if changed:
            shown = list(steps.steps["aicore_pct"])
        else:
            place = -1
            for gap, step in decode(messages["aicore_pct"]["z"]):
                place += gap + 1
                shown[place] = step
        assert shown == steps.steps["aicore_pct"]


def test_noise_on_an_edge_sends_nothing():
    step = fleet_steps.step_of(50.0, "aicore_pct")
    assert {fleet_steps.step_of(50 + noise, "aicore_pct", before=step) for noise in (-2.9, -1, 0, 1, 2.9)} == {step}
    assert fleet_steps.step_of(80.0, "aicore_pct", before=step) == 12
    assert [fleet_steps.step_of(v, "aicore_pct") for v in (-5, 0, 100, 900)] == [0, 0, 15, 15]


def test_one_packed_row_a_minute(telemetry):
    pk = first(telemetry)
    for second, (aicore, temp) in enumerate([(10, 40), (20, 50), (30, 45)]):
        telemetry.take(
            pk, sample(seq=second, npus=({**NPU, "aicore_pct": aicore, "temp_c": temp},)), received=600.0 + second
        )
    telemetry.take(pk, sample(seq=9, npus=({**NPU, "aicore_pct": None},)), received=665.0)
    telemetry.flush()
    row = Minute.objects.get()
    assert row.data == {"n": 3, "npus": {"0.0": [20.0, 3400.0, 50, 93.5]}}
    assert row.at == history.minute_of(600.0)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["npus", "processes", "host", "error", "seq", "t", "version", "holders"]), json_values
    )
)
def test_no_sample_however_wrong_raises(fields):
    cleaned = readings.clean_sample(fields)
    server = Server(pk=1, name="x")
    now = live_state.build(server, cleaned, 1.0)
    json.dumps(now, allow_nan=False)
    assert len(summary(now["npus"])) == 4


def test_hostile_samples_are_bounded(telemetry):
    pk = first(telemetry)
    assert (
        readings.read(b"[" * 100_000) is None
        and readings.read(b"x" * (3 << 20)) is None
        and readings.read(b"\xff") is None
    )
    huge = sample(
        npus=[{**NPU, "npu": n, "name": "<script>" * 50} for n in range(500)], processes=[{"name": "x" * 999}] * 1500
    )
    telemetry.take(pk, huge, received=1.0)
    now = telemetry.nows[pk]
    assert len(now["npus"]) == readings.MAX_NPUS and len(now["processes"]) == readings.MAX_PROCESSES
    assert max(len(npu["name"]) for npu in now["npus"]) <= 40 and len(now["processes"][0]["name"]) <= 300
    telemetry.flush()
    assert Npu.objects.count() == readings.MAX_NPUS


BAD = "a\ud800b\0c"


@pytest.mark.parametrize(
    "npu",
    [
        {"chip": -1}, {"npu": 10**12}, {"npu": 0.5}, {"chip": 10**6}, {"hbm_total_mb": -5}, {"hbm_total_mb": 1e14},
        {"temp_c": 10**400}, {"power_w": float("nan")}, {"name": BAD, "bus_id": BAD, "health": BAD},
    ],
)  # fmt: skip
def test_numbers_and_names_that_no_column_holds_stop_nobody(telemetry, npu):
    odd, sound = telemetry.servers
    telemetry.take(odd, sample(npus=[{**NPU, **npu}], processes=[{"npu": -1, "pid": 10**400, "name": BAD}]), 1000.0)
    telemetry.take(sound, sample(), 1000.0)
    telemetry.each_second(Pipe(), 1000.5)
    telemetry.flush()
    assert Npu.objects.filter(server=sound).exists()
    assert all(server.last_seen_at for server in Server.objects.all())


@pytest.mark.parametrize("depth", [3, *range(800, 1000, 20)])
def test_facts_of_any_shape_are_kept_as_far_as_they_can_be(telemetry, depth):
    pk = first(telemetry)
    nested = "[" * depth + "]" * depth
    facts = f'{{"hostname": {json.dumps(BAD)}, "os": "Linux", "cpus": NaN, "kernel": {nested}}}'
    telemetry.take(pk, f'{{"type": "facts", "t": 1, "facts": {facts}}}'.encode(), 1000.0)
    telemetry.flush()
    server = Server.objects.get(pk=pk)
    if server.facts:  # else it was too deep to be read at all
        assert server.hostname == "a\ufffdb\ufffdc" and server.facts["os"] == "Linux" and server.facts["cpus"] is None
    assert server.facts or depth > 3


def test_what_no_chip_and_no_host_can_say_is_unknown():
    data = sample(
        npus=[{**NPU, "temp_c": 1e9, "power_w": 1e9, "hbm_used_mb": 1e14}], host={"load1": 1e14, "cpu_pct": 5}
    )
    clean = readings.clean_sample(json.loads(data))
    assert [clean["npus"][0][name] for name in ("temp_c", "power_w", "hbm_used_mb", "aicore_pct")] == [None] * 3 + [40]
    assert (clean["host"]["load1"], clean["host"]["cpu_pct"]) == (None, 5)


# ---------- facts, cordons, cards ----------


def facts(**found):
    return json.dumps({"type": "facts", "t": 1, "facts": {"digest": "d1", "hostname": "kp-01", **found}}).encode()


def changes(pk):
    rows = ServerChange.objects.filter(server=pk).order_by("pk")
    return [(row.field, row.before, row.after, row.by_name) for row in rows]


def tell(telemetry, pk, data, at=1000.0):
    telemetry.take(pk, data, at)
    telemetry.flush()


def test_what_changes_by_itself_stands_in_the_history(telemetry):
    pk = first(telemetry)
    address = {"interface": "eth0", "address": "192.0.2.7", "local": False}
    tell(telemetry, pk, facts(driver="25.2", addresses=[address], boot_id="b1", unknown={}))
    assert changes(pk) == [], "there was nothing before"
    moved = {**address, "address": "192.0.2.8"}
    tell(telemetry, pk, facts(driver="25.5", addresses=[moved], boot_id="b2", hostname="node7", kernel="6", unknown={}))
    assert changes(pk) == [
        ("hostname", "kp-01", "node7", ""), ("driver", "25.2", "25.5", ""), ("boot_id", "b1", "b2", ""),
        ("addresses", ["192.0.2.7"], ["192.0.2.8"], ""),
    ]  # fmt: skip
    assert Server.objects.get(pk=pk).hostname == "node7"
    hung = {"driver": ["npu-smi 超时", "it did not answer"], "firmware": ["没有找到", "not found"]}
    tell(telemetry, pk, facts(driver=None, addresses=[moved], boot_id="b2", hostname="node7", unknown=hung))
    assert len(changes(pk)) == 4, "what could not be read has not changed"
    gone = {"driver": ["没有找到", "not found"]}
    Server.objects.filter(pk=pk).update(facts={"driver": "25.5"})
    tell(telemetry, pk, facts(driver=None, hostname="node7", unknown=gone))
    assert changes(pk)[-1] == ("driver", "25.5", None, "")


@pytest.mark.parametrize(("kind", "ended_s", "named"), [
    ("drivers", None, True), ("drivers", 60, True), ("drivers", 600, False), ("check", None, False),
])  # fmt: skip
def test_what_a_job_changes_has_its_number_and_who_asked_for_it(telemetry, kind, ended_s, named):
    pk = first(telemetry)
    tell(telemetry, pk, facts(driver="25.2", kernel="5"))
    ended_at = timezone.now() - timedelta(seconds=ended_s) if ended_s else None
    Job.objects.create(
        server_id=pk, kind=kind, requester=User.objects.create_user("olga", role="operator"), ticket="CHG-7",
        started_at=timezone.now() - timedelta(hours=1), ended_at=ended_at, not_after=timezone.now(),
    )  # fmt: skip
    tell(telemetry, pk, facts(driver="25.5", kernel="6"))
    rows = {row.field: (row.by_name, row.reason, row.ticket) for row in ServerChange.objects.filter(server=pk)}
    job = ("olga", f"#{Job.objects.get().pk}", "CHG-7")
    assert rows == {"driver": job if named else ("", "", ""), "kernel": ("", "", "")}


def test_facts_of_two_hosts_that_take_turns_are_no_history(telemetry):
    pk = first(telemetry)
    tell(telemetry, pk, facts(kernel="5"))
    Server.objects.filter(pk=pk).update(quarantine={"since": "2026-01-01T00:00:00+00:00", "hosts": []})
    tell(telemetry, pk, facts(kernel="6", hostname="clone"))
    assert changes(pk) == []


def test_facts_that_are_the_same_renew_their_age_only_where_they_are_known(telemetry):
    pk = first(telemetry)
    tell(telemetry, pk, facts(kernel="5"), at=1000.0)
    same = json.dumps({"type": "facts", "t": 1, "same": "d1"}).encode()
    tell(telemetry, pk, same, at=2000.0)
    assert Server.objects.get(pk=pk).facts_at.timestamp() == 2000.0
    tell(telemetry, pk, json.dumps({"type": "facts", "same": "other"}).encode(), at=3000.0)
    assert Server.objects.get(pk=pk).facts_at.timestamp() == 2000.0
    assert Server.objects.get(pk=pk).facts["kernel"] == "5"


def test_a_cordoned_npu_is_shown_so_whatever_it_does_and_as_it_is_afterwards(telemetry):
    pk = first(telemetry)
    Server.objects.filter(pk=pk).update(cordons={"0000:C1:00.0": {"reason": "x", "by": "o", "at": "t"}})
    telemetry.know(Server.objects.all())
    busy = {"npu": 0, "chip": 0, "pid": 1, "name": "python", "memory_mb": 9}
    telemetry.take(pk, sample(processes=[busy]), 1000.0)
    assert telemetry.nows[pk]["npus"][0]["occ"] == "cordoned"
    telemetry.each_second(Pipe(), 1000.0)
    Server.objects.filter(pk=pk).update(cordons={})
    telemetry.know(Server.objects.all())
    assert telemetry.nows[pk]["npus"][0]["occ"] == "foreign" and pk in telemetry.changed


def test_a_card_that_the_driver_lost_is_alerted_until_it_is_back(telemetry):
    pk = first(telemetry)
    cards = [{"bus_id": "0000:c1:00.0"}, {"bus_id": "0000:C2:00.0"}]
    tell(telemetry, pk, facts(pci=cards))
    assert not Alert.objects.exists(), "npu-smi has said nothing yet"
    tell(telemetry, pk, sample())
    alert = Alert.objects.get(name="card-lost", subject=f"server:{pk}", ended_at=None)
    assert "0000:C2:00.0" in alert.what[1] and "0000:C1:00.0" not in alert.what[1]
    tell(telemetry, pk, sample(npus=[NPU, {**NPU, "npu": 1, "bus_id": "0000:C2:00.0"}]))
    assert not Alert.objects.filter(ended_at=None).exists()


@pytest.mark.parametrize("pci", [None, 7, [7], [{"bus_id": None}], [{}]])
def test_cards_of_any_shape_are_no_loss(telemetry, pci):
    pk = first(telemetry)
    tell(telemetry, pk, facts(pci=pci))
    tell(telemetry, pk, sample())
    assert not Alert.objects.exists()
