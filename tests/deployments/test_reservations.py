"""NPUs and ports that are promised: never to two, named in every refusal, free when their owner is gone."""

import threading
from datetime import timedelta

import pytest
from django.db import OperationalError, connection
from django.utils import timezone
from django.utils.translation import override

from console.errors import Conflict, Invalid
from deployments.models import Hold, Job, Npu, PortLease, Replica, Reservation, Server
from deployments.services import holds, jobs, npu_choice, ports, reservations, serve_jobs, waiting
from tests.deployments.handed import finish, handed, kinds_of_tests  # noqa: F401
from tests.deployments.serving_rows import bus_id, deployment, npu_server, replica

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey", "kinds_of_tests")]


@pytest.fixture
def kp(db):
    return npu_server("kp-1")


@pytest.fixture
def chat(db):
    return deployment("chat")


def tomorrow():
    return timezone.now() + timedelta(days=1)


def refused(act, *words):
    with override("en"), pytest.raises(Conflict) as error:
        act()
    assert all(word in error.value.what for word in words), error.value.what
    return error.value


def test_who_comes_second_is_told_who_has_it(kp, chat):
    first, second = replica(chat, kp), replica(chat, kp, 2)
    reservations.take(first, kp, [bus_id(0), bus_id(1).lower()])
    reservations.take(first, kp, [bus_id(0)])  # again: nothing changes
    error = refused(lambda: reservations.take(second, kp, [bus_id(2), bus_id(1)]), bus_id(1), "replica 1 of chat")
    assert error.code == "npu_reserved"
    assert Reservation.objects.count() == 2, "all or none"
    assert {npu: holder.pk for npu, holder in reservations.of(kp).items()} == dict.fromkeys(
        (bus_id(0), bus_id(1)), first.pk
    )
    assert reservations.release(first) == 2
    reservations.take(second, kp, [bus_id(1)])


def test_a_replica_that_is_gone_holds_nothing(kp, chat):
    first, second = replica(chat, kp), replica(chat, kp, 2)
    reservations.take(first, kp, [bus_id(0)])
    Replica.objects.filter(pk=first.pk).update(state="failed")
    assert reservations.of(kp) == {}
    reservations.take(second, kp, [bus_id(0)])
    assert Reservation.objects.get().replica_id == second.pk


def test_on_several_servers_all_or_none(kp, chat):
    other = npu_server("kp-2")
    first, second = replica(chat, kp), replica(chat, other, 2)
    reservations.take(second, other, [bus_id(0)])
    both = [reservations.Wanted(one.pk, [bus_id(0)]) for one in (kp, other)]
    refused(lambda: reservations.take_all(first, both), "kp-2")
    assert reservations.of(kp) == {}


def test_npus_that_are_not_there_are_refused_in_words(kp, chat):
    for name in ("0000:FF:00.0", "", "x" * 400):
        with pytest.raises(Invalid):
            reservations.take(replica(chat, kp, 90 + len(name)), kp, [name])
    kp.npus.filter(device_index=3).update(seen_at=timezone.now() - timedelta(hours=1))
    with pytest.raises(Invalid):
        reservations.take(replica(chat, kp), kp, [bus_id(3)])


def test_chips_that_share_a_bus_id_are_told_apart(chat):
    dual = npu_server("kp-9", count=1)
    row = dual.npus.get()
    Npu.objects.create(server=dual, device_index=1, npu_id=0, chip_id=1, bus_id=row.bus_id, seen_at=row.seen_at)
    names = reservations.names_on(dual)
    assert names == [f"{bus_id(0)}/0", f"{bus_id(0)}/1"]
    reservations.take(replica(chat, dual), dual, names[:1])
    reservations.take(replica(chat, dual, 2), dual, names[1:])
    refused(lambda: jobs.check_cordons(dual, [f"npu:{bus_id(0)}"]), "replica 1 of chat")


def test_a_job_takes_no_npu_that_is_promised(kp, chat, operator):
    mine = replica(chat, kp)
    reservations.take(mine, kp, [bus_id(0)])

    def queue(*locks):
        return jobs.queue_job(kp, "hold_locks", {"locks": list(locks)}, by=operator)

    assert refused(lambda: queue(f"npu:{bus_id(0)}"), "replica 1 of chat").code == "npu_reserved"
    queue(f"npu:{bus_id(0)}", f"engine:{mine.pk}")  # what is about the engine itself
    queue(f"npu:{bus_id(1)}")
    assert npu_choice.names_of_one(kp) == [bus_id(2), f"{bus_id(2)}/0"]


def test_a_replica_takes_no_npu_that_a_job_holds(kp, chat, operator):
    job = jobs.queue_job(kp, "hold_locks", {"locks": [f"npu:{bus_id(0)}"]}, by=operator)
    error = refused(lambda: reservations.take(replica(chat, kp), kp, [bus_id(0)]), f"#{job.pk}")
    assert error.code == "npu_locked"
    finish(job)
    reservations.take(Replica.objects.get(), kp, [bus_id(0)])


def test_a_job_that_waits_goes_on_waiting_while_its_npu_is_on_hold(kp, operator):
    first = jobs.queue_job(kp, "hold_locks", {"locks": [f"npu:{bus_id(0)}"]}, by=operator)
    second = jobs.queue_job(kp, "hold_locks", {"locks": [f"npu:{bus_id(0)}"]}, by=operator)
    hold = holds.make(kp, [bus_id(0)], team="vision", reason="demo", until=tomorrow(), by=operator)
    finish(first)
    jobs.release([kp.pk])
    assert second.pk not in handed(kp) and waiting.servers_with_room() == []
    with override("en"):
        told = jobs.as_json(Job.objects.get(pk=second.pk))["waiting"]
    assert told["why"] == "reserved" and "is kept for vision until" in told["text"]
    holds.end(hold, by=operator)
    assert second.pk in handed(kp)


def test_who_asks_whether_a_job_would_wait_hears_of_promises(kp, chat):
    reservations.take(replica(chat, kp), kp, [bus_id(0)])
    found = waiting.new(kp, "hold_locks", [f"npu:{bus_id(0)}/0"])
    assert found.why == "reserved" and found.keeper.name == "chat"
    assert waiting.must_wait(kp, "hold_locks", [f"npu:{bus_id(0)}"], True)
    refused(lambda: waiting.must_wait(kp, "hold_locks", [f"npu:{bus_id(0)}"], False), "replica 1 of chat")
    assert not waiting.must_wait(kp, "hold_locks", [f"npu:{bus_id(1)}"], False)


def at_once(count, act):
    """Call `act(n)` in so many threads at the same moment; what was raised."""
    start, errors = threading.Barrier(count), []

    def run(n):
        try:
            start.wait(30)
            while True:
                try:
                    act(n)
                    return
                except OperationalError:  # SQLite's one writer is busy: whoever asks tries again
                    continue
        except Conflict as error:
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    return errors


def test_of_many_at_once_each_npu_has_one_owner(kp, chat, operator):
    """Replicas and holds want pairs of four NPUs, two servers in either order: none is promised twice."""
    other = npu_server("kp-2")
    count = 12
    rows = [replica(chat, kp, n) for n in range(count)]

    def act(n):
        pair = [bus_id(n % 4), bus_id((n + 1) % 4)]
        if n % 3 == 2:
            holds.make(kp, pair, team=f"team {n}", reason="many", until=tomorrow(), by=operator)
        else:
            where = [kp, other] if n % 2 else [other, kp]
            reservations.take_all(rows[n], [reservations.Wanted(one.pk, pair) for one in where])

    errors = at_once(count, act)
    taken = list(Reservation.objects.values_list("server_id", "npu", "replica_id", "hold_id"))
    assert len(taken) == len({row[:2] for row in taken})
    owners = {row[2:] for row in taken}
    assert len(owners) + len(errors) == count and owners
    for owner, hold in owners:
        assert sum(row[2:] == (owner, hold) for row in taken) == (2 if hold else 4), "all or none"
    assert {error.code for error in errors} == {"npu_reserved"}
    assert Hold.objects.count() == sum(1 for _owner, hold in owners if hold), "a hold that got nothing is not there"


def test_of_many_at_once_each_port_has_one_owner(kp, chat, settings):
    settings.ENGINE_PORTS = (18000, 18005)
    rows = [replica(chat, kp, n) for n in range(9)]
    errors = at_once(9, lambda n: ports.lease(kp, replica=rows[n]))
    assert sorted(PortLease.objects.values_list("port", flat=True)) == list(range(18000, 18006))
    assert len(errors) == 3 and {error.code for error in errors} == {"no_port"}


def test_a_port_is_kept_for_the_life_of_its_replica(kp, chat, settings):
    settings.ENGINE_PORTS, settings.ENGINE_HCCL_PORTS = (18000, 18001), (18500, 18590)
    first, second, third = (replica(chat, kp, n) for n in range(3))
    assert [ports.lease(kp, replica=one) for one in (first, second, first)] == [18000, 18001, 18000]
    refused(lambda: ports.lease(kp, replica=third), "18000", "18001", "kp-1")
    assert [ports.lease(kp, replica=one, purpose="hccl") for one in (first, second)] == [18500, 18532]
    refused(lambda: ports.lease(kp, replica=third, purpose="hccl"))
    assert ports.lease(npu_server("kp-2"), replica=third) == 18000, "each server has its own"
    assert ports.release(replica=first, server=kp, purpose="http") == 1
    assert ports.lease(kp, replica=third) == 18000
    Replica.objects.filter(pk=second.pk).update(state="stopped")
    assert ports.lease(kp, replica=first) == 18001
    refused(lambda: ports.lease(kp, replica=first, avoid=[18001]))
    assert ports.lease(kp, replica=first) == 18001
    with pytest.raises(ValueError):
        ports.lease(kp)


def test_ports_of_engines_that_are_not_ours_are_left_alone(kp, chat):
    kp.external_engines.create(key="vllm:1", kind="vllm", port=18000)
    kp.external_engines.create(key="vllm:2", kind="vllm", port=18001, gone_at=timezone.now())
    assert ports.lease(kp, replica=replica(chat, kp)) == 18001


@pytest.mark.parametrize(
    ("roles", "local", "expected"),
    [
        ({"192.0.2.7": "service", "192.0.2.8": "management"}, True, "192.0.2.7"),
        ({"192.0.2.8": "management"}, False, "192.0.2.8"),
        ({}, True, "127.0.0.1"),
        ({}, False, "192.0.2.9"),
    ],
)
def test_the_address_that_engines_listen_on(db, roles, local, expected):
    told = {"addresses": [{"address": "192.0.2.9", "interface": "eth0", "default": True}]}
    one = Server.objects.create(name="kp-7", address_roles=roles, is_local=local, facts=told)
    assert ports.address_of(one) == expected


def test_an_address_that_nobody_knows_is_asked_for(db):
    one = Server.objects.create(name="kp-7")
    assert refused(lambda: ports.address_of(one), "kp-7").code == "no_address"
    local = Server.objects.create(name="here", is_local=True)
    assert ports.address_of(local) == "127.0.0.1"


def test_the_end_of_a_replica_that_is_gone_waits_for_nobody(kp, chat):
    first, second = replica(chat, kp, npus=[bus_id(0), bus_id(1)]), replica(chat, kp, 2)
    reservations.take(first, kp, first.npus)
    assert serve_jobs.fill_stop(kp, {"replica": first.pk})["held"] == first.npus
    Replica.objects.filter(pk=first.pk).update(state="failed")
    reservations.take(second, kp, [bus_id(1)])
    assert serve_jobs.fill_stop(kp, {"replica": first.pk})["held"] == [bus_id(0)]


ELSEWHERE = ["127.0.0.1", "::1", "169.254.169.254", "0.0.0.0", "224.0.0.1", "fe80::1%x", "evil.example", "x" * 900]


@pytest.mark.parametrize("address", ELSEWHERE, ids=range(len(ELSEWHERE)))
def test_a_server_does_not_send_requests_elsewhere_by_what_it_says_of_itself(db, address):
    told = {"addresses": [{"address": address, "interface": "eth0", "default": True}]}
    one = Server.objects.create(name="kp-7", facts=told)
    assert refused(lambda: ports.address_of(one), "kp-7").code == "no_address"
