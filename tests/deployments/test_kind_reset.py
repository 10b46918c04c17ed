"""Which NPUs are reset together, who may ask for it, and the steps."""

import pytest
from django.utils import translation

from console.errors import Conflict, ConsoleError, NotAllowed
from console.models import User
from deployments.kinds import reset
from deployments.models import Job
from deployments.services import filling, jobs, resets, servers
from tests.deployments.npu_rings import PAIRS, server_with

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]


@pytest.fixture(autouse=True)
def in_english():
    with translation.override("en"):
        yield


@pytest.fixture
def admin():
    return User.objects.create_user("root", role="administrator")


def ring(server, index=0):
    return [npu.device_index for npu in resets.together(server, server.npus.get(device_index=index))]


@pytest.mark.parametrize(
    ("topology", "chips", "index", "wanted"),
    [
        (PAIRS, 1, 0, [0, 1]),
        (PAIRS, 1, 3, [2, 3]),
        ({"links": {f"NPU{a}": {f"NPU{b}": "PHB" for b in range(4) if b != a} for a in range(4)}}, 1, 2, [2]),
        ({"links": {f"NPU{a}": {f"NPU{b}": "SYS" for b in range(8) if b != a} for a in range(8)}}, 2, 3, [2, 3]),
        # a chain is one ring; one direction is enough
        ({"links": {"NPU0": {"NPU1": "HCCS_SW"}, "NPU1": {"NPU2": "SIO"}, "NPU2": {}, "NPU3": {}}}, 1, 2, [0, 1, 2]),
        # nobody knows: all of the server
        (None, 1, 1, [0, 1, 2, 3]), ({}, 1, 1, [0, 1, 2, 3]), ({"links": {"NPU7": {}}}, 1, 1, [0, 1, 2, 3]),
        ({"links": 7}, 1, 1, [0, 1, 2, 3]), ("x", 1, 1, [0, 1, 2, 3]),
    ],
)  # fmt: skip
def test_a_ring_is_reset_together(topology, chips, index, wanted):
    assert ring(server_with(topology, chips), index) == wanted


def test_an_administrator_resets_by_bus_id_and_names_the_server_once_more(admin):
    server = server_with(PAIRS)
    job = jobs.queue_job(server, "reset", {"npu": "0000:11:00.0", "confirm": "kp-1"}, by=admin)
    assert job.locks == ["server", "npu:0000:10:00.0", "npu:0000:10:00.0/0", "npu:0000:11:00.0", "npu:0000:11:00.0/0"]
    note, free, run, exporters, back = reset.steps(jobs.checked_params(reset, job.params))
    assert run.argv == ["npu-reset", "1", "0,1"] and run.needs_root and run.to_its_end
    assert run.title.en == "Reset NPU 1 (together: 0.0, 1.0)" and exporters.always
    assert free.argv[-4:] == ["--devices", "0,1", "--places", "0.0,1.0"]
    assert note.argv[-1] == "note" and back.argv[-1] == "600"
    assert set(filling.asked(job)) == {"npu", "confirm"}
    servers.cordon(server, "0000:12:00.0", by=admin, reason="ECC")
    server.refresh_from_db()
    sick = jobs.queue_job(server, "reset", {"npu": "0000:12:00.0", "confirm": "kp-1"}, by=admin)
    assert not sick.waiting and "npu:0000:12:00.0" not in sick.locks  # a card is cordoned because it is to be reset
    servers.cordon(server, "0000:13:00.0", by=admin, reason="ECC")
    server.refresh_from_db()
    whole = jobs.queue_job(server, "reset", {"npu": "0000:12:00.0", "confirm": "kp-1"}, by=admin)
    assert whole.locks == ["server"]  # of a change of driver, and of a restart, too


def test_a_root_helper_of_another_version_is_not_asked_for_what_it_may_not_know(admin):
    server = server_with(PAIRS)
    server.facts["root"] = "old"
    server.save()
    with pytest.raises(Conflict, match="older version") as refused:
        jobs.queue_job(server, "reset", {"npu": "0000:11:00.0", "confirm": "kp-1"}, by=admin)
    assert refused.value.code == "old_root_helper" and not Job.objects.exists()
    assert jobs.queue_job(server, "reboot", {}, by=admin).pk  # each version knows that


def test_refusals(admin):
    server = server_with(PAIRS)
    good = {"npu": "0000:10:00.0", "confirm": "kp-1"}
    with pytest.raises(NotAllowed, match="for administrators"):
        jobs.queue_job(server, "reset", good, by=User.objects.create_user("li", role="operator"))
    for params, code in (({**good, "confirm": "kp-2"}, "not_confirmed"),
                         ({**good, "npu": "0000:99:00.0"}, "no_such_npu"),
                         ({**good, "npu": "0"}, "invalid_params"), ({**good, "devices": "7"}, "filled_in"),
                         ({**good, "ring": ["x"]}, "filled_in")):  # fmt: skip
        with pytest.raises(ConsoleError) as refused:
            jobs.queue_job(server, "reset", params, by=admin)
        assert refused.value.code == code
    server.simulated = True
    with pytest.raises(Conflict, match="simulated"):
        resets.fill(server, good)
    server.simulated, server.facts = False, {"topology": PAIRS}
    with pytest.raises(Conflict) as refused:
        jobs.queue_job(server, "reset", good, by=admin)
    assert refused.value.code == "no_root" and not Job.objects.exists()


def test_the_form_asks_and_names_every_npu_of_the_ring(admin, client):
    server_with(PAIRS)
    client.force_login(admin, "django.contrib.auth.backends.ModelBackend")
    client.cookies["django_language"] = "en"
    shown = client.get("/jobs/new?kind=reset&server=kp-1").content.decode()
    assert "Bus id of the NPU" in shown and "p-devices" not in shown and "p-ring" not in shown
    given = {"kind": "reset", "server": "kp-1", "p-npu": "0000:13:00.0", "p-confirm": "kp-1", "full": "1"}
    asked = client.post("/jobs/new", given).content.decode()
    assert "Reset NPU 3 (together: 2.0, 3.0)" in asked and not Job.objects.exists()
    wrong = client.post("/jobs/new", {**given, "p-confirm": "x"}).content.decode()
    assert "not the name of the server" in wrong
    client.post("/jobs/new", {**given, "confirmed": "1"})
    assert Job.objects.get().params["devices"] == "2,3"
    again = client.get(f"/jobs/new?again={Job.objects.get().pk}").content.decode()
    assert 'value="0000:13:00.0"' in again and 'value="kp-1"' not in again.partition('name="p-confirm"')[2][:200]
