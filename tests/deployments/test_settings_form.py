"""The form of an engine's settings: what is typed comes back as it was, and what is wrong by its field."""

import pytest
from django.http import QueryDict
from django.utils import translation

from deployments.services import settings_form
from deployments.serving import settings


@pytest.fixture(autouse=True)
def in_english():
    with translation.override("en"):
        yield


def sent(**given):
    made = QueryDict(mutable=True)
    made.update({name.replace("__", "-"): value for name, value in given.items()})
    return made


WHOLE = {
    "served_model_name": "qwen3", "tensor_parallel_size": 4, "gpu_memory_utilization": 0.85, "enforce_eager": True,
    "prefix_caching": "off", "capture_sizes": ["1", "8"], "additional": {"weight_nz_mode": 2, "eplb_config": {"a": 1}},
    "env": {"HCCL_BUFFSIZE": "400", "MY_OWN": "a=b c"}, "extra": ["--lora-modules", "a=/x y", "--max-logprobs", "5"],
}  # fmt: skip


def test_an_address_holds_all_settings():
    assert settings_form.read(QueryDict(settings_form.query(WHOLE))).data == WHOLE


def test_the_shown_fields_sent_again_say_the_same():
    sent_again = QueryDict(mutable=True)
    sent_again["full"] = "1"
    for group in settings_form.groups(WHOLE, {}):
        for one in group.inputs:
            if one.widget != "flag" or one.value:
                sent_again[one.input_name] = "1" if one.widget == "flag" else one.value
    again = settings_form.read(sent_again)
    assert again.problems == {}
    assert settings.as_json(settings.read(again.data)) == WHOLE


def test_every_setting_is_asked_for_once():
    shown = [one.name for group in settings_form.groups({}, {}) for one in group.inputs]
    assert set(settings.FIELDS) <= set(shown) and len(shown) == len(set(shown))


def test_a_group_with_something_said_or_wrong_is_open():
    one = {group.key: group for group in settings_form.groups({"env": {"A": "1"}}, {"extra": "no"})}
    assert one["env"].is_open and one["expert"].is_open and not one["additional"].is_open and one["env"].differing == 1


@pytest.mark.parametrize(
    ("given", "field", "words"),
    [
        ({"p__max_model_len": "many"}, "max_model_len", "not a whole number"),
        ({"p__gpu_memory_utilization": "2"}, "gpu_memory_utilization", "at most 1"),
        ({"p__env": "HCCL"}, "env", "NAME=VALUE"),
        ({"p__additional": "{"}, "additional", "no JSON"),
        ({"p__additional": "[1]"}, "additional", "JSON object"),
        ({"p__extra": "--x 'a"}, "extra", "not closed"),
        ({"p__device": "gpu"}, "device", "one of"),
    ],
)
def test_what_is_wrong_is_said_at_its_field(given, field, words):
    found = settings_form.read(sent(**given))
    assert list(found.problems) == [field] and words in found.problems[field]


def test_a_guide_fills_fields_and_says_what_it_left_out():
    found = settings_form.read(sent(guide="max_batch_size=32 swap_space=64GB", p__max_model_len="4,096"))
    assert found.data == {"max_model_len": 4096, "max_num_seqs": 32}
    assert [bool(one.field) for one in found.heard] == [True, False]
