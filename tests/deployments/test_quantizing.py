"""What quantizing and converting would take on a server, and what their jobs are filled in with."""

import dataclasses
import json
from pathlib import Path

import pytest
from django.utils import timezone

from console.errors import ConsoleError
from console.models import ApiToken
from deployments import kinds
from deployments.kinds import convert, quantize
from deployments.models import Artifact, ArtifactPlace, Job, Npu
from deployments.services import jobs, quantizing
from deployments.steps import read_params

ROOT = "/opt/ascend-console/stacks"
CPU = f"{ROOT}/cpu-0.32.0"
MODEL = "/data/models/Qwen2.5-7B-Instruct"
ASKED = {"model": MODEL, "target": f"{MODEL}-w8a8", "model_type": "Qwen2.5-7B-Instruct", "quant_type": "w8a8"}
SUMMARY = {
    "weight_bytes": 15_200_000_000,
    "layers": 28,
    "vocab": 152064,
    "hidden": 3584,
    "dtype": "BF16",
    "tied": False,
}


@pytest.fixture
def ready(server):
    """A server with the CPU stack in use, and a model."""
    packages = {"msmodelslim": "26.1.0", "torch": "2.13.0"}
    server.facts = {
        "arch": "x86_64", "python": "3.11.4", "stacks_root": ROOT, "stack_current": "cpu-0.32.0", "pci": [],
        "pythons": [{"path": f"{CPU}/msmodelslim/bin/python", "version": "3.11.4", "packages": packages}],
    }  # fmt: skip
    server.family, server.last_seen_at = "", timezone.now()
    server.save()
    artifact = Artifact.objects.create(name="Qwen2.5-7B-Instruct", fingerprint="ab" * 32, format="hf", summary=SUMMARY)
    ArtifactPlace.objects.create(artifact=artifact, server=server, path=MODEL)
    return server


def with_npus(server):
    """The same with an A2 and its NPUs."""
    server.family = "910B3"
    server.save()
    for n in range(2):
        Npu.objects.create(server=server, device_index=n, npu_id=n, chip_id=0, bus_id=f"0000:8{n}:00.0",
                           memory_total_mb=65536)  # fmt: skip
    return server


def refusals(made):
    return [code for code, _text in made.refusals]


def test_the_plan_knows_recipe_sizes_and_command(ready):
    made = quantizing.plan(ready, ASKED)
    assert refusals(made) == [] and made.choice.level == "verified" and made.choice.recipe.id == "qwen2.5-7b-w8a8"
    assert (
        made.tools == f"{CPU}/msmodelslim" and made.activate == f"{CPU}/activate" and made.calibration == "boolq.jsonl"
    )
    assert made.memory == (30_400_000_000, 45_600_000_000) and made.whole
    assert 8e9 < made.output.low < made.output.high < 12e9
    assert made.argv[:2] == [f"{CPU}/msmodelslim/bin/msmodelslim", "quant"]
    assert made.argv[made.argv.index("--save_path") + 1] == "/data/models/.Qwen2.5-7B-Instruct-w8a8.part"
    assert any("has no NPU" in text.en for text in made.warnings) and not made.loads
    json.dumps(quantizing.as_json(made))


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"quant_type": "w8a8_dynamic"}, "no_type"), ({"quant_type": "w4a4"}, "no_recipe"),
        ({"quant_type": "w8a16"}, "not_verified"), ({"target": f"{MODEL}/inside"}, "bad_path"),
        ({"target": "/data/有 blank"}, "bad_path"), ({"npus": ["0000:99:00.0"]}, "no_such_npu"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said_beforehand(ready, operator, more, code):
    assert refusals(quantizing.plan(ready, {**ASKED, **more})) == [code]
    with pytest.raises(ConsoleError) as refused:
        jobs.queue_job(ready, "quantize", {**ASKED, **more}, by=operator)
    assert refused.value.code == code and refused.value.what and refused.value.do
    assert not Job.objects.exists()


def test_a_job_is_filled_in_with_the_tools_own_words(ready, operator):
    asked = {**ASKED, "quant_type": "WEIGHT_QUANT, weight_bits 8, act_bits 8"}
    job = jobs.queue_job(ready, "quantize", asked, by=operator)
    assert job.params["quant_type"] == "w8a8" and job.params["tools"] == f"{CPU}/msmodelslim"
    assert job.locks == [f"artifact:{MODEL}-w8a8"]
    with pytest.raises(ConsoleError) as refused:
        jobs.queue_job(ready, "quantize", {**ASKED, "tools": "/tmp/evil"}, by=operator)
    assert refused.value.code == "filled_in"
    look = jobs.queue_job(ready, "quantize_look", {**ASKED, "quant_type": "w8a16"}, by=operator)
    assert look.locks == [] and look.params["family"] == ""


def test_npus_are_locked_and_seen_alone(ready, operator):
    with_npus(ready)
    chosen = ["0000:80:00.0", "0000:81:00.0"]
    made = quantizing.plan(ready, {**ASKED, "npus": chosen})
    assert made.family == "A2" and made.loads.startswith("W8A8") and refusals(made) == []
    assert made.argv[made.argv.index("--device") + 1] == "npu:0,1"
    job = jobs.queue_job(ready, "quantize", {**ASKED, "npus": chosen}, by=operator)
    assert set(job.locks) == {f"artifact:{MODEL}-w8a8", *(f"npu:{one}" for one in chosen)}
    run = quantize.steps(read_params(quantize.Params, job.params))[1]
    assert run.npus == chosen and "--device=npu:0,1" in run.argv and run.unattended


def test_what_vllm_does_not_load_there_is_a_warning(ready):
    with_npus(ready)
    ready.family = "310P3"
    ready.save()
    made = quantizing.plan(ready, {**ASKED, "quant_type": "w8a16", "accept": True})
    assert made.loads == "" and any("loads no w8a16 on 310P" in text.en for text in made.warnings)


def test_too_little_memory_is_a_warning(ready):
    with_npus(ready)
    Npu.objects.update(memory_total_mb=16384)
    made = quantizing.plan(ready, {**ASKED, "npus": ["0000:80:00.0"]})
    assert any("more than the chosen NPU has" in text.en for text in made.warnings)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"format": "quantized"}, "not_float"), ({"summary": {**SUMMARY, "quant_type": "FP8"}}, "fp8"),
        ({"summary": {**SUMMARY, "remote_code": True}}, "remote_code"),
    ],
)  # fmt: skip
def test_what_is_known_of_the_model_counts(ready, change, code):
    Artifact.objects.update(**change)
    assert refusals(quantizing.plan(ready, ASKED)) == [code]


def test_a_copy_that_is_not_whole_is_refused(ready):
    ArtifactPlace.objects.update(problems=[["missing_shard", ["缺少分片", "The shard x is missing."], True]])
    assert refusals(quantizing.plan(ready, ASKED)) == ["missing_shard"]


def test_without_the_tool_the_way_to_it_is_named(ready):
    ready.facts = {**ready.facts, "pythons": []}
    ready.save()
    made = quantizing.plan(ready, ASKED)
    assert "no_msmodelslim" in refusals(made) and made.argv == []


def test_another_version_of_the_tool_is_asked_on_the_server(ready):
    ready.facts["pythons"][0]["packages"]["msmodelslim"] = "27.0"
    ready.save()
    made = quantizing.plan(ready, ASKED)
    assert made.choice is None and any("look first" in text.en for text in made.warnings) and refusals(made) == []


@pytest.mark.parametrize(
    ("name", "found"),
    [("Qwen3-30B-A3B", "Qwen3-30B"), ("Qwen2.5-7B-Instruct-copy", "Qwen2.5-7B-Instruct"), ("my-model", "")],
)  # fmt: skip
def test_the_likely_model_type_is_proposed(name, found):
    assert quantizing.likely_type(name) == found


def test_msmodelslim_goes_beside_the_stack_in_use(ready, operator):
    ready.facts = {**ready.facts, "pythons": []}
    ready.save()
    job = jobs.queue_job(ready, "quantizer", {}, by=operator)
    assert job.params["stack"] == "cpu-0.32.0" and "stack" in job.locks
    plan = json.loads(job.params["plan"])
    words = [word for step in plan for word in step["argv"]]
    assert "msmodelslim==26.1.0" in words and "torch==2.13.0" in words
    assert plan[-1]["argv"][-2:] == ["again", CPU]
    ready.facts = {**ready.facts, "stack_current": ""}
    ready.save()
    with pytest.raises(ConsoleError) as refused:
        jobs.queue_job(ready, "quantizer", {}, by=operator)
    assert refused.value.code == "no_stack"


# ---------- converting ----------


def test_a_line_of_the_guide_is_answered_with_the_right_choice(ready, operator):
    line = 'export(ms_model, file_name="deepseek.om", file_format="MINDIR")'
    with pytest.raises(ConsoleError) as refused:
        jobs.queue_job(ready, "convert", {"model": MODEL, "target": "/data/om", "how": line}, by=operator)
    assert refused.value.code == "no_way" and "onnx_om" in refused.value.what


@pytest.mark.parametrize(
    ("asked", "argv"),
    [
        ({"how": "onnx_om", "model": "/data/m.onnx", "input_shape": "input_ids:1,128"},
         ["atc", "--model=/data/m.onnx", "--framework=5", "--output=/data/.om.part/m", "--soc_version=Ascend910B3",
          "--input_shape=input_ids:1,128"]),
        ({"how": "air_om", "model": "/data/m.air", "soc_version": "Ascend310P3"},
         ["atc", "--model=/data/m.air", "--framework=1", "--output=/data/.om.part/m", "--soc_version=Ascend310P3"]),
        ({"how": "onnx_mindir", "model": "/data/m.onnx"},
         ["converter_lite", "--fmk=ONNX", "--modelFile=/data/m.onnx", "--outputFile=/data/.om.part/m",
          "--saveType=MINDIR"]),
        ({"how": "mindir_ascend", "model": "/data/m.mindir"},
         ["converter_lite", "--fmk=MINDIR", "--modelFile=/data/m.mindir", "--outputFile=/data/.om.part/m",
          "--saveType=MINDIR", "--optimize=ascend_oriented"]),
    ],
)  # fmt: skip
def test_the_argument_lists_of_other_tools(ready, operator, asked, argv):
    with_npus(ready)
    job = jobs.queue_job(ready, "convert", {"target": "/data/om", **asked}, by=operator)
    work = convert.steps(read_params(convert.Params, job.params))[1]
    assert work.argv[work.argv.index("--") + 1 :] == argv and f"{CPU}/activate" in work.argv
    assert work.says in (convert.ATC_SAYS, convert.LITE_SAYS)


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"how": "onnx_om", "model": "/data/folder"}, "wrong_file"),
        ({"how": "onnx_om", "model": "/data/m.onnx"}, "no_soc"),
        ({"how": "fp8_bf16", "model": MODEL, "target": f"{MODEL}/x"}, "bad_path"),
    ],
)  # fmt: skip
def test_conversions_that_cannot_be(ready, operator, asked, code):
    with pytest.raises(ConsoleError) as refused:
        jobs.queue_job(ready, "convert", {"target": "/data/om", **asked}, by=operator)
    assert refused.value.code == code


def test_a_conversion_without_a_stack_is_tried_again(server, operator):
    server.facts, server.last_seen_at = {"pci": []}, timezone.now()
    server.save()
    asked = {"how": "onnx_mindir", "model": "/data/m.onnx", "target": "/data/mindir"}
    job = jobs.queue_job(server, "convert", asked, by=operator)
    assert not any(job.params[name] for name in convert.FILLED)
    Job.objects.filter(pk=job.pk).update(state="failed")
    assert jobs.retry_job(job, by=operator).attempts.count() == 2


def test_a_slash_at_the_end_is_the_same_folder(ready, operator):
    asked = {**ASKED, "model": f"{MODEL}/", "target": "/data/new/"}
    job = jobs.queue_job(ready, "quantize", asked, by=operator)
    assert job.locks == ["artifact:/data/new"]
    assert (job.params["model"], job.params["target"]) == (MODEL, "/data/new")


@pytest.mark.parametrize(
    ("kind", "name"),
    [("quantize", "target"), ("convert", "target"), ("download", "folder"), ("sample_model", "folder"),
     ("model_copy", "folder"), ("model_delete", "path")],
)  # fmt: skip
def test_all_kinds_hold_a_model_by_the_same_name(kind, name):
    module = kinds.load(kind)
    needed = {"model": "/m", "target": "/t", "model_type": "Q", "source": "path", "server": "kp-01", "folder": "/t",
              "path": "/t", "address": "a", "port": 1, "pair": "0" * 32}  # fmt: skip
    fields = {field.name for field in dataclasses.fields(module.Params)}
    params = {key: value for key, value in needed.items() if key in fields} | {name: "/data/new/"}
    params |= {"model": "qwen2"} if kind == "sample_model" else {}
    assert module.locks(read_params(module.Params, params)) == ["artifact:/data/new"]


def test_weights_are_converted_by_the_tool_of_the_stack(ready, operator):
    job = jobs.queue_job(ready, "convert", {"model": MODEL, "target": "/data/bf16"}, by=operator)
    found = [step.argv[2:4] for step in convert.steps(read_params(convert.Params, job.params))]
    assert found == [["deployments.artifacts.convert", do] for do in ("take", "run", "finish", "tidy")]
    assert Path(job.params["tools"]).name == "msmodelslim"


def test_the_form_of_a_job_answers_a_line_of_the_guide(ready, operator, client):
    client.force_login(operator)
    line = "export(ms_model, file_name='deepseek.om', file_format='MINDIR')"
    sent = {
        "server": ready.name,
        "kind": "convert",
        "full": "1",
        "p-model": MODEL,
        "p-target": "/data/om",
        "p-how": line,
    }
    page = client.post("/jobs/new", sent)
    assert page.status_code == 422 and not Job.objects.exists()
    assert "onnx_om" in page.text and "deepseek.om" in page.text


# ---------- the page ----------


def test_the_page_shows_what_it_would_take_and_queues_it(ready, operator, client):
    client.force_login(operator)
    artifact = Artifact.objects.get()
    page = client.get(f"/models/quantize?artifact={artifact.pk}")
    assert page.status_code == 200 and "qwen2.5-7b-w8a8" in page.text and f"{MODEL}-w8a8" in page.text
    query = {"artifact": artifact.pk, "full": "1", "p-quant_type": "weight_bits 8, act_bits 16", "p-target": "/data/x",
             "p-model_type": "Qwen2.5-7B-Instruct"}  # fmt: skip
    part = client.get("/models/quantize", query, headers={"X-Part": "1"})
    assert "default-w8a16" in part.text and "<html" not in part.text
    refused = client.post("/models/quantize", query)
    assert refused.status_code == 409 and not Job.objects.exists()
    done = client.post("/models/quantize", {**query, "p-accept": "1"})
    job = Job.objects.get()
    assert done.status_code == 302 and job.kind == "quantize" and job.params["quant_type"] == "w8a16"
    client.post("/models/quantize", {**query, "do": "look"})
    assert Job.objects.first().kind == "quantize_look" or Job.objects.last().kind == "quantize_look"


@pytest.mark.parametrize("pk", ["", "x", "999999", "²", "9" * 40])
def test_a_model_that_is_none_is_a_sentence(ready, operator, client, pk):
    client.force_login(operator)
    assert client.get("/models/quantize", {"artifact": pk}).status_code == 404


def test_bad_fields_are_marked(ready, operator, client):
    client.force_login(operator)
    pk = Artifact.objects.get().pk
    sent = {"artifact": pk, "full": "1", "p-target": "relative", "p-model_type": "a b", "p-quant_type": "w8a8"}
    page = client.post("/models/quantize", sent)
    assert page.status_code == 422 and page.text.count('aria-invalid="true"') == 2 and not Job.objects.exists()


def test_a_viewer_may_not(ready, viewer, client):
    client.force_login(viewer)
    assert client.get("/models/quantize", {"artifact": Artifact.objects.get().pk}).status_code == 403


def test_rest_tells_the_plan(ready, operator, client):
    headers = {"Authorization": f"Bearer {ApiToken.make(operator, 'operator')[1]}", "Accept-Language": "en"}
    path = f"/api/v1/servers/{ready.name}/quantize-plan"
    answer = client.get(path, {**ASKED, "quant_type": "w8a16"}, headers=headers)
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert told["type"] == "w8a16" and told["recipe"]["level"] == "default" and not told["can_run"]
    assert [one["code"] for one in told["refusals"]] == ["not_verified"] and told["types"]["w8a8"] == "verified"
    assert client.get("/api/v1/servers/nobody/quantize-plan", headers=headers).status_code == 404


def test_the_sample_model_is_proposed_the_type_of_its_recipe():
    shape = {"model_type": "qwen2", "layers": 28}
    sample = Artifact(name="tiny", via="sample", summary=shape)
    assert quantizing.proposed_type(sample) in quantizing.recipes.built_in().adapters
    for other in ({"via": "found"}, {"summary": {**shape, "layers": 2}}):
        assert quantizing.proposed_type(Artifact(**{"name": "tiny", "via": "sample", "summary": shape, **other})) == ""


def test_a_server_without_the_tool_is_led_to_what_brings_it(ready, operator):
    assert quantizing.stack_for_trying(ready) == "" and quantizing.bringing_tools(ready) is None
    ready.facts = {**ready.facts, "pythons": [], "stack_current": None}
    ready.save()
    assert quantizing.stack_for_trying(ready) == "cpu-0.32.0"
    job = jobs.queue_job(ready, "install", {"stack": "cpu-0.32.0"}, by=operator)
    assert quantizing.bringing_tools(ready) == job
    Npu.objects.create(server=ready, bus_id="0000:C1:00.0", device_index=0, npu_id=0, chip_id=0)
    assert quantizing.stack_for_trying(ready) == ""
