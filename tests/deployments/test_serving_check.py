"""Settings by REST: what there is, what is wrong, and the command that comes of it."""

import json

import pytest
from django.test import Client

from console.models import ApiToken, User
from deployments.models import Npu, Server


@pytest.fixture
def ask(db):
    _row, token = ApiToken.make(User.objects.create_user("vera", role="viewer"), "viewer")
    client = Client(headers={"authorization": f"Bearer {token}", "accept-language": "en"})

    def post(**body):
        return client.post("/api/v1/serving-settings/check", json.dumps(body), content_type="application/json")

    post.client = client
    return post


def test_the_schema_names_every_setting_in_both_languages(ask):
    found = ask.client.get("/api/v1/serving-settings").json()
    one = next(row for row in found["settings"] if row["name"] == "max_num_seqs")
    assert (one["default"], one["default_on_cpu"], one["limits"]["least"]) == (256, 16, 1)
    assert all(len(row["label"]) == 2 for row in found["settings"])
    assert {"name", "type", "default"} <= set(found["additional"][0]) and "VLLM_API_KEY" in found["refused_variables"]


def test_what_is_right_comes_back_with_its_command(ask):
    found = ask(settings={"tensor_parallel_size": 2, "max_num_seqs": 256}, model="Qwen/Qwen3-32B", chip="910B3").json()
    assert found["ok"] is True and found["family"] == "A2" and found["npus"] == 2
    assert found["settings"] == {"tensor_parallel_size": 2}
    assert found["command"][:3] == ["python", "-m", "vllm.entrypoints.openai.api_server"]
    assert found["environment"]["HF_HUB_OFFLINE"] == "1"


def test_a_guide_and_words_are_understood_and_judged(ask):
    found = ask(
        guide="max_batch_size=32 swap_space=64GB npu_ids=[0,1,2]", words="--port 1", model="Qwen/Qwen3-32B"
    ).json()
    assert found["settings"]["max_num_seqs"] == 32
    assert {row["field"] for row in found["problems"]} == {"tensor_parallel_size", "extra"}
    assert [row["field"] for row in found["guide"]] == ["max_num_seqs", "", "tensor_parallel_size"]


def test_a_server_s_memory_is_counted(ask):
    server = Server.objects.create(name="kp-01", family="910B4")
    Npu.objects.create(server=server, device_index=0, npu_id=0, chip_id=0, bus_id="0000:01:00.0", name="910B4",
                       memory_total_mb=32_768)  # fmt: skip
    found = ask(settings={}, model="Qwen/Qwen3-32B", server="kp-01").json()
    assert [row["field"] for row in found["problems"]] == ["tensor_parallel_size"]
    assert "lacks" in found["problems"][0]["what"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"model": "never heard of"}, "no_model"), ({"server": "gone"}, "not_found"), ({"chip": "H100"}, "no_chip"),
        ({"words": "--x 'a"}, "bad_words"),
    ],
)  # fmt: skip
def test_bad_input_is_answered_in_words(ask, body, code):
    error = ask(**body).json()["error"]
    assert error["code"] == code and error["what"] and error["do"]


def test_settings_that_cannot_be_read_have_no_command(ask):
    found = ask(settings={"device": ["npu"], "additional": {"a": {"b": [[[[[1]]]]]}}, "extra": "x"}).json()
    assert found["ok"] is False and found["command"] is None
    assert {row["field"] for row in found["problems"]} == {"device", "extra"}
