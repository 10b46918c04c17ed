"""Device, rank and peer of a line in words: which NPU, which server, what to look at on both ends."""

import pytest
from django.utils import timezone

from deployments.models import EngineLog, Npu, Server
from monitoring import diagnoses
from monitoring.services import explaining
from monitoring.services.explaining import Place
from tests.deployments.benchmark_rows import replica

pytestmark = pytest.mark.django_db


def machine(n, count=8):
    row = Server.objects.create(
        name=f"kp-0{n}", last_seen_at=timezone.now(), address_roles={f"10.0.0.{n}": "service"},
        facts={"npu_addresses": [{"device": d, "roce": f"10.20.{n}.{d}", "hccs": None} for d in range(count)]},
    )  # fmt: skip
    for d in range(count):
        Npu.objects.create(server=row, device_index=d, npu_id=d, chip_id=0, bus_id=bus(d))
    return row


def bus(d):
    return f"0000:{0xC1 + d:02X}:00.0"


def said(line, *places):
    best = diagnoses.diagnose(line)[0].as_json()
    return explaining.explained(best, places)


def test_a_device_is_counted_among_the_npus_that_were_given():
    (one,) = said(
        "RuntimeError: ACL stream synchronize failed, error code:507018, device_id=1",
        Place(machine(1), [bus(4), bus(6)]),
    )
    assert one["npu"] == bus(6) and "NPU 6, chip 0" in one["en"] and "设备 1" in one["zh"] and one["server"] == "kp-01"


def test_a_physical_number_is_the_servers_own():
    one = said("EE9999: error on phy_id(6), error code:507018", Place(machine(1), [bus(0), bus(1)]))[0]
    assert one["npu"] == bus(6)


def test_ranks_of_several_nodes_name_the_peers_server_and_both_ends():
    here, there = machine(1), machine(2)
    places = [Place(there, [bus(2), bus(3)], 1, "10.0.0.2"), Place(here, [bus(0), bus(1)], 0, "10.0.0.1")]
    line = "EI0006: Getting socket times out. Reason: rank[2] dst_rank[1] remote_ip_addr[10.20.1.1]"
    own, peer, both = said(line, *places)
    assert (own["server"], own["npu"]) == ("kp-02", bus(2))
    assert (peer["server"], peer["npu"]) == ("kp-01", bus(1))
    assert "kp-02" in both["en"] and "kp-01 (-i 1)" in both["en"] and "10.20.1.1" in both["zh"]


def test_a_peer_is_found_by_the_address_of_its_npu_or_of_its_server():
    here, there = machine(1), machine(2)
    line = "EI0006: Getting socket times out. remote_ip_addr[%s]"
    assert said(line % "10.20.2.5", Place(here, []))[0]["npu"] == bus(5)
    assert said(line % "10.0.0.2", Place(here, []))[0]["server"] == there.name
    assert "no server that the console knows" in said(line % "192.0.2.7", Place(here, []))[0]["en"]


def test_what_names_nothing_is_not_explained():
    assert said("ImportError: libatb.so: cannot open shared object file", Place(machine(1), [])) == []


def test_a_piece_knows_its_nodes_the_own_server_first():
    row, other = replica(), machine(2)
    row.nodes = [{"server": row.server_id, "name": "kp-01", "npus": ["a"], "rank": 0, "address": "x"},
                 {"server": other.pk, "name": "kp-02", "npus": ["b"], "rank": 1, "address": "y"}]  # fmt: skip
    row.save()
    piece = EngineLog.objects.create(pk=f"e{row.pk}-1-s{other.pk}", replica=row, server=other, n=1_000_001)
    assert [one.server.name for one in explaining.places_of(piece)] == ["kp-02", "kp-01"]
