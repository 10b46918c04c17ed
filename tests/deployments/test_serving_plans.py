"""Plans for serving as a page, REST and a command answer them."""

import io
import json

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone, translation

from console.errors import ConsoleError
from console.models import ApiToken, User
from deployments.models import Artifact, ArtifactPlace, Npu, Server
from deployments.services import serving_plans
from tests.deployments import models_on_disk

SUMMARY = {
    "layers": 28, "hidden": 3584, "heads": 28, "kv_heads": 4, "head_dim": 128, "vocab": 152_064, "dtype": "BF16",
    "max_position": 32_768, "weight_bytes": 15_231_233_024, "quant_type": "", "remote_code": True,
}  # fmt: skip


@pytest.fixture(autouse=True)
def in_english():
    with translation.override("en"):
        yield


@pytest.fixture
def seven(db):
    return Artifact.objects.create(name="seven", fingerprint="7" * 64, format="hf", summary=SUMMARY, bytes=16 * 10**9)


def test_a_known_model_needs_no_row(django_assert_num_queries, db):
    with django_assert_num_queries(0):
        asked = serving_plans.ask({"model": "Qwen/Qwen3-32B"})
        found = serving_plans.as_json(asked, serving_plans.answer(asked))
    assert found["chip"] == "910B3" and found["npus"] == 8 and found["plans"][0]["goals"] == ["fewest", "context"]
    assert sum(found["plans"][0]["memory_mb"].values()) == pytest.approx(65_536, abs=8)


def test_a_model_that_lies_here_by_number_and_name(seven):
    for words in (str(seven.pk), "seven"):
        asked = serving_plans.ask({"model": words, "quant": "w8a8"})
        assert asked.artifact == seven and asked.spec.quant == "w8a8" and asked.spec.remote_code
        assert asked.spec.weight_mb == pytest.approx(15_231_233_024 / 2**20 * 1.06 / 2)


def test_a_server_s_own_npus(seven):
    server = Server.objects.create(name="kp-01")
    for n in range(4):
        Npu.objects.create(
            server=server, device_index=n, npu_id=n, chip_id=0, bus_id=f"0000:0{n}:00.0", name="910B4",
            memory_total_mb=32_768,
        )  # fmt: skip
    asked = serving_plans.ask({"model": "seven", "server": "kp-01"})
    assert (asked.chip, asked.wish.hbm_mb, asked.wish.npus, asked.wish.family) == ("910B4", 32_768, 4, "A2")


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({}, "no_model"), ({"model": "never heard of"}, "no_model"), ({"model": "seven", "chip": "H100"}, "no_chip"),
        ({"model": "seven", "npus": "0"}, "bad_number"), ({"model": "seven", "npus": "-3"}, "bad_number"),
        ({"model": "seven", "max_model_len": "1e9"}, "bad_number"), ({"model": "seven", "quant": "w2"}, "bad_choice"),
        ({"model": "seven", "utilization": "85"}, "bad_share"), ({"model": "seven", "server": "gone"}, "not_found"),
        ({"model": "seven", "utilization": "nan"}, "bad_share"),
    ],
)  # fmt: skip
def test_bad_input_is_answered_in_words(seven, given, code):
    with pytest.raises(ConsoleError) as refused:
        serving_plans.ask(given)
    assert refused.value.code == code and refused.value.what and refused.value.do


def test_a_bad_number_is_named_as_the_form_and_rest_name_it(seven):
    with pytest.raises(ConsoleError, match=r"^NPUs \(npus\) must be a whole number from 1 to 64"):
        serving_plans.ask({"model": "seven", "npus": "many"})


def test_a_server_without_npus_and_a_model_without_figures(seven):
    Server.objects.create(name="kp-02")
    with pytest.raises(ConsoleError, match="has no NPU"):
        serving_plans.ask({"model": "seven", "server": "kp-02"})
    Artifact.objects.create(name="bare", fingerprint="8" * 64, format="om", summary={})
    with pytest.raises(ConsoleError, match="layers"):
        serving_plans.ask({"model": "bare"})


def test_the_command_prints_ways_and_reasons(seven):
    out = io.StringIO()
    call_command("plan", model="seven", npus="2", stdout=out)
    assert "✓ TP 1" in out.getvalue() and "--tensor-parallel-size 1" in out.getvalue()
    out = io.StringIO()
    call_command("plan", model="deepseek-ai/deepseek-llm-67b-chat", npus="2", json=True, stdout=out)
    found = json.loads(out.getvalue())
    assert found["plans"] == [] and "w8a8" in found["refusals"][0]["do"]
    with pytest.raises(CommandError, match="There is no model"):
        call_command("plan", model="nothing")


def test_the_command_line_takes_every_option_and_a_path(seven, server):
    ArtifactPlace.objects.create(artifact=seven, server=server, path="/models/seven")
    out = io.StringIO()
    line = "--model /models/seven/ --chip 910B3 --hbm-mb 65536 --npus 8 --max-model-len 8192 --quant w8a8 "
    call_command("plan", *(line + "--concurrency 16 --json").split(), stdout=out)
    found = json.loads(out.getvalue())
    assert (found["model"], found["artifact"], found["quant"], found["max_model_len"]) == (
        "seven", seven.pk, "w8a8", 8192,
    )  # fmt: skip
    assert found["plans"][0]["requests_at_once"] >= 16 and "--max-num-seqs" in found["plans"][0]["flags"]
    ArtifactPlace.objects.update(gone_at=timezone.now())
    with pytest.raises(CommandError, match="There is no model"):
        call_command("plan", "--model", "/models/seven")


def test_a_folder_that_was_never_looked_at_is_planned_by_the_command_alone(db, tmp_path):
    models_on_disk.model(tmp_path / "mine")
    out = io.StringIO()
    call_command("plan", "--model", str(tmp_path / "mine"), "--npus", "2", "--json", stdout=out)
    found = json.loads(out.getvalue())
    assert (found["model"], found["artifact"]) == ("mine", None) and found["plans"][0]["npus"] == 1
    with pytest.raises(ConsoleError, match="There is no model"):
        serving_plans.ask({"model": str(tmp_path / "mine")})
    (tmp_path / "none").mkdir()
    with pytest.raises(CommandError):
        call_command("plan", "--model", str(tmp_path / "none"))


def test_the_page_and_rest(client, seven, django_assert_max_num_queries):
    client.cookies["django_language"] = "en"
    viewer = User.objects.create_user("vera", password="a-long-password", role="viewer")
    assert client.get("/models/plan/").status_code == 302
    client.force_login(viewer)
    assert "Plan before you serve" in client.get("/models/plan/").text
    with django_assert_max_num_queries(12):
        page = client.get("/models/plan/?model=seven&npus=2").text
    assert (
        f'href="/models/{seven.pk}/"' in page
        and "Fewest NPUs" in page
        and "KV cache" in page
        and "--max-model-len 16384" in page
    )
    page = client.get("/models/plan/?model=deepseek-ai/deepseek-llm-67b-chat&npus=2").text
    assert "It does not fit" in page and "Quantized to w8a8 it takes 2 NPUs." in page
    hostile = client.get("/models/plan/?model=<script>alert(1)</script>").text
    assert "There is no model" in hostile and "<script>alert" not in hostile
    _row, token = ApiToken.make(viewer, "viewer")
    client = Client(headers={"authorization": f"Bearer {token}"})
    found = client.get("/api/v1/serving-plan?model=seven&npus=2").json()
    assert found["plans"][0]["npus"] == 1 and found["artifact"] == seven.pk
    assert client.get("/api/v1/serving-plan?model=seven&npus=x").json()["error"]["code"] == "bad_number"


def test_which_releases_load_it_is_said(db):
    found = serving_plans.as_json(asked := serving_plans.ask({"model": "Qwen/Qwen3-32B"}), serving_plans.answer(asked))
    assert found["loaded_by"]["level"] == "core" and "vllm-ascend-0.23.0" in found["loaded_by"]["stacks"]
    assert not any("0.18" in name for name in found["loaded_by"]["stacks"])
    other = serving_plans.loaded_by(serving_plans.ask({"model": "Qwen/Qwen3-32B", "chip": "950PR"}))
    assert other.level == "core"
    out = io.StringIO()
    call_command("plan", "--model", "deepseek-ai/DeepSeek-R1", "--quant", "w8a8", "--servers", "2", stdout=out)
    assert "2 servers" in out.getvalue() and "vllm-ascend-0.23.0" in out.getvalue()


def test_a_chip_that_the_lists_do_not_name_gets_no_release(seven):
    r1 = serving_plans.loaded_by(serving_plans.ask({"model": "deepseek-ai/DeepSeek-R1", "chip": "310P3"}))
    assert r1.stacks == () and "not 310P" in r1.text.en
    unknown = serving_plans.loaded_by(serving_plans.ask({"model": "seven"}))
    assert unknown.stacks == () and "not known" in unknown.text.en
