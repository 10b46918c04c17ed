"""Pages and REST of models: what they show, who may change what, and what hostile names do to them."""

import json
from datetime import timedelta

import pytest
from auditlog.models import LogEntry
from django.test import Client
from django.urls import reverse
from django.utils import timezone, translation

from console.models import ApiToken
from deployments.models import Artifact, ArtifactPlace, Job, Server
from deployments.services import model_catalogue, model_changes, model_list, model_page
from deployments.templatetags.artifacts import models_told
from deployments.templatetags.jobs import lock_words
from deployments.views import own_pages
from monitoring.services import search
from tests.deployments.model_rows import MISSING, artifact, place

HOSTILE = ["<script>alert(1)</script>", "\u202egnp.exe", "名" * 200, "a" * 200, "{{ 7|add:7 }}", '" onload="x']


@pytest.fixture
def browser(operator):
    client = Client(headers={"accept-language": "en"})
    client.force_login(operator)
    return client


@pytest.fixture
def looks(viewer):
    client = Client(headers={"accept-language": "en"})
    client.force_login(viewer)
    return client


@pytest.fixture
def rest(operator):
    _row, text = ApiToken.make(operator, "operator")
    client = Client(headers={"authorization": f"Bearer {text}", "accept-language": "en"})

    def call(method, path, body=None):
        data = json.dumps(body) if body is not None else None
        return getattr(client, method)(f"/api/v1{path}", data, content_type="application/json")

    return call


@pytest.fixture(autouse=True)
def redis_there(valkey):
    """Jobs are pushed on commit."""


def page(client, name, *args, **query):
    return client.get(reverse(f"deployments:{name}", args=args), query)


# ---------- the list ----------


def test_an_empty_list_says_what_to_do_next(browser, looks, db):
    text = page(browser, "model-list").content.decode()
    assert "No models yet" in text and 'href="#scan"' in text and "Look at the catalogue" in text
    text = page(looks, "model-list").content.decode()
    assert "An operator can look for models" in text and 'id="scan"' not in text


def test_the_list_shows_where_models_lie_and_what_is_missing(browser, server):
    whole, half, gone = artifact("whole"), artifact("half"), artifact("gone", gate={"passed": False})
    far = Server.objects.create(name="sim-1", simulated=True)
    place(whole, server)
    place(whole, far, problems=[MISSING])
    place(half, server, problems=[MISSING, MISSING])
    place(gone, server, gone_at=timezone.now())
    text = page(browser, "model-list").content.decode()
    assert "The shard a is missing." in text and "Below its budget" in text and "sim-1" in text
    assert {line.artifact.name: line.state for line in model_list.page(model_list.Filters()).lines} == {
        "whole": "whole", "half": "incomplete", "gone": "gone",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"state": "whole"}, {"a"}), ({"state": "incomplete"}, {"b"}), ({"state": "gone"}, {"c", "d", "e"}),
        ({"q": "QWEN3 moe"}, {"b"}), ({"q": "/srv/x"}, {"a"}), ({"q": "f00d"}, {"c"}), ({"q": "w4a8"}, {"c"}),
        ({"format": "quantized"}, {"c"}), ({"gate": "promotable"}, {"b", "d"}), ({"gate": "failed"}, {"c"}),
        ({"gate": "original"}, {"a"}), ({"gate": "not_evaluated"}, {"e"}), ({"fleet": "simulated"}, {"e"}),
        ({"fleet": "real"}, {"a", "b", "c", "d"}), ({"server": "kp-01"}, {"a", "b"}), ({"via": "sample"}, {"d"}),
        ({"format": "exe", "state": "x", "page": "-7"}, {"a", "b", "c", "d", "e"}), ({"q": "100%"}, set()),
        ({"page": "99999"}, {"a", "b", "c", "d", "e"}),
    ],
)  # fmt: skip
def test_filters(browser, server, query, names):
    a = artifact("a")
    place(a, server, "/srv/x/a")
    b = artifact("b", summary={"architecture": "Qwen3MoeForCausalLM"}, gate={"passed": True})
    place(b, server, problems=[MISSING])
    artifact("c", format="quantized", fingerprint="f00d" * 16, summary={"quant_type": "W4A8"}, gate={"passed": False})
    artifact("d", gate={"passed": False, "promoted": {"by": "ada"}}, via="sample")
    artifact("e", simulated=True, parent=a)
    found = page(browser, "model-list", **query)
    assert found.status_code == 200
    assert {line.artifact.name for line, _gate in found.context["lines"]} == names


def test_two_thousand_models_take_as_many_queries_as_fifty(
    browser, server, django_assert_max_num_queries, django_assert_num_queries
):
    servers = [server, *(Server(name=f"n{n}") for n in range(4))]
    Server.objects.bulk_create(servers[1:])
    Artifact.objects.bulk_create(
        Artifact(name=f"m{n}", fingerprint=f"{n:064x}", format="hf", summary={"architecture": "X"}) for n in range(2000)
    )
    rows = Artifact.objects.all()
    ArtifactPlace.objects.bulk_create(
        ArtifactPlace(artifact=one, server=at, path=f"/data/{one.pk}") for one in rows for at in servers
    )
    with django_assert_num_queries(3):
        found = model_list.page(model_list.read_filters({"q": "data", "state": "whole"}))
    assert found.total == 2000 and len(found.lines) == 50 and len(found.lines[0].places) == 5
    with django_assert_max_num_queries(12):
        text = page(browser, "model-list", page="40").content.decode()
    assert "Page 40 of 40, 2000 models" in text and "and 2 more" in text


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_shown_and_do_nothing(browser, server, name):
    one = artifact(name, summary={"architecture": name[:100], "pickles": [name]}, source=name, notes=name)
    child = artifact(name + "2"[:0], parent=one, via="quantized", format="quantized")
    place(one, server, f"/data/{name}"[:1000], problems=[["x", [name, name], True]])
    for found in (
        page(browser, "model-list"), page(browser, "model-detail", one.pk), page(browser, "model-detail", child.pk),
        page(browser, "model-edit", one.pk), page(browser, "model-delete", one.places.get().pk),
        page(browser, "model-catalogue", q=name[:90]),
    ):  # fmt: skip
        text = found.content.decode()
        assert found.status_code == 200 and "<script>alert" not in text and 'onload="x' not in text
        assert "7|add" in text or "14" not in name


# ---------- one model ----------


def test_a_model_shows_its_numbers_places_and_jobs(browser, server):
    now = timezone.now()
    made = Job.objects.create(server=server, kind="model_scan", not_after=now, params={"folder": "/data"})
    one = artifact(made_by=made, via="downloaded", source="https://hub.example/x", digest="d" * 64)
    place(one, server, job=made)
    text = page(browser, "model-detail", one.pk).content.decode()
    assert "57,344 B" in text and "Qwen2ForCausalLM" in text and "tensor parallelism splits it" in text
    assert "https://hub.example/x" in text and "d" * 64 in text and f"#{made.pk}" in text and "made it" in text
    mla = artifact("mla", summary={"kv_lora_rank": 512, "qk_rope_head_dim": 64, "layers": 61, "head_dim": None})
    text = page(browser, "model-detail", mla.pk).content.decode()
    assert "70,272 B" in text and "each NPU of a tensor-parallel group holds all of it" in text
    assert page(browser, "model-detail", 99999).status_code == 404


def test_hybrids_are_counted_by_their_full_layers(browser, server):
    one = artifact("Qwen3-Next-80B-A3B-Instruct", summary={"layers": 48, "kv_heads": 2, "head_dim": 256})
    assert page(browser, "model-detail", one.pk).context["numbers"].kv_bytes == 24576
    sparse = artifact("DeepSeek-V4-Flash", summary={"layers": 43, "kv_heads": 1, "head_dim": 512})
    assert page(browser, "model-detail", sparse.pk).context["numbers"].kv_bytes is None


def test_name_and_notes_are_changed_and_audited(browser, looks, rest, server):
    one = artifact("old")
    address = reverse("deployments:model-edit", args=[one.pk])
    assert browser.post(address, {"name": "  new   name ", "notes": "n"}).status_code == 302
    one.refresh_from_db()
    assert (one.name, one.notes) == ("new name", "n")
    entry = LogEntry.objects.filter(additional_data__verb="model.edited").get()
    assert entry.additional_data["name"] == ["old", "new name"]
    assert browser.post(address, {"name": "", "notes": ""}).status_code == 422
    assert browser.post(address, {"name": "\u202e", "notes": ""}).status_code == 422
    assert looks.post(address, {"name": "x"}).status_code == 403
    assert rest("patch", f"/models/{one.pk}", {"notes": "m"}).json() == {"id": one.pk, "name": "new name", "notes": "m"}
    assert rest("patch", f"/models/{one.pk}", {"nme": "m"}).status_code == 422
    assert rest("patch", f"/models/{one.pk}", {"notes": "m" * 5000}).json()["error"]["code"] == "too_long"


# ---------- looking for models ----------


def test_a_scan_is_queued_for_a_folder_or_where_most_models_lie(browser, looks, server, settings):
    address = reverse("deployments:model-scan")
    assert looks.post(address, {"server": "kp-01"}).status_code == 403
    browser.post(address, {"server": "kp-01"})
    assert Job.objects.latest("pk").params == {"folder": settings.MODELS_ROOT, "digests": False}
    for n, folder in enumerate(["/srv/m", "/data/models", "/data/models"]):
        place(artifact(f"x{n}"), server, f"{folder}/x{n}")
    browser.post(address, {"server": "kp-01", "digests": "1"})
    assert Job.objects.latest("pk").params == {"folder": "/data/models", "digests": True}
    before = Job.objects.count()
    for wrong in ({"folder": "models"}, {"folder": "/etc"}, {"server": "none"}, {"folder": "/a/../b"}):
        told = browser.post(address, {"server": "kp-01", **wrong}, follow=True)
        assert 'class="banner error"' in told.content.decode()
    assert Job.objects.count() == before


def test_known_copies_are_read_again_in_one_job(browser, server, rest):
    address = reverse("deployments:model-scan")
    assert rest("post", "/models/scan", {"server": "kp-01", "again": True}).json()["error"]["code"] == "no_models"
    paths = [place(artifact(f"x{n}"), server, f"/data/x{n}").path for n in range(3)]
    browser.post(address, {"server": "kp-01", "again": "1"})
    params = Job.objects.latest("pk").params
    assert [params["folder"], *params["also"]] == paths
    browser.post(address, {"server": "kp-01", "again": "1", "path": "/data/x1"})
    assert Job.objects.latest("pk").params == {"folder": "/data/x1", "also": [], "digests": False, "known": True}
    made = rest("post", "/models/scan", {"server": "kp-01", "folder": "/srv"})
    assert made.status_code == 201 and made.json()["params"]["folder"] == "/srv"


def test_very_many_copies_are_looked_for_in_the_folders_that_hold_them():
    many = [f"/data/{n % 7}/m{n}" for n in range(900)]
    assert model_changes.wide(many) == [f"/data/{n}" for n in range(7)]
    assert model_changes.outermost(["/a", "/a-b", "/a/c", "/a/c/d"]) == ["/a-b", "/a"]
    assert len(model_changes.wide([f"/{n}" for n in range(900)])) == model_changes.MOST_FOLDERS


# ---------- deleting ----------


def test_the_last_copy_is_deleted_by_name_only(browser, looks, server, rest):
    one = artifact("Qwen 千问")
    here = place(one, server)
    address = reverse("deployments:model-delete", args=[here.pk])
    assert looks.get(address).status_code == 403
    text = browser.get(address).content.decode()
    assert "There is no other whole copy" in text and "Type its name: Qwen 千问" in text and "for good" in text
    refused = browser.post(address, {"confirm": "qwen"})
    assert refused.status_code == 409 and "Type the name of the model exactly" in refused.content.decode()
    assert rest("post", f"/models/copies/{here.pk}/delete", {}).json()["error"]["code"] == "name_needed"
    assert not Job.objects.exists()
    browser.post(address, {"confirm": " Qwen 千问 ", "ticket": "T-1"})
    job = Job.objects.get()
    assert job.kind == "model_delete" and job.locks == [f"artifact:{here.path}"] and job.ticket == "T-1"
    assert job.params["path"] == here.path and job.params["fingerprint"] == one.fingerprint


def test_another_whole_copy_is_named_and_children_too(browser, server):
    one = artifact("parent")
    here, other = place(one, server), place(one, Server.objects.create(name="kp-02"), "/srv/other")
    for n in range(7):
        artifact(f"child{n}", parent=one)
    text = browser.get(reverse("deployments:model-delete", args=[here.pk])).content.decode()
    assert "1 other whole copy stays: kp-02 /srv/other" in text and "Type its name" not in text
    assert "“child6” was made of this model." in text and "2 more were made of it." in text
    other.problems = [MISSING]
    other.save()
    assert "Type its name" in browser.get(reverse("deployments:model-delete", args=[here.pk])).content.decode()


@pytest.mark.parametrize("named", [{"path": "/data/m/x"}, {"list": ["/data/m"]}, {"a": {"b": "/data/m"}}])
def test_what_a_job_works_with_is_not_deleted(browser, rest, server, named):
    here = place(artifact("m"), server, "/data/m")
    busy = Job.objects.create(server=server, kind="check", params=named, not_after=timezone.now() + timedelta(1))
    text = browser.get(reverse("deployments:model-delete", args=[here.pk])).content.decode()
    assert f"Job #{busy.pk}" in text and "It is in use" in text
    refused = rest("post", f"/models/copies/{here.pk}/delete", {"confirm": "m"})
    assert refused.status_code == 409 and refused.json()["error"]["code"] == "model_in_use"
    uses = rest("get", f"/models/copies/{here.pk}/uses").json()
    assert uses["last"] is True and uses["uses"][0]["blocks"] is True
    Job.objects.update(state="succeeded")
    assert rest("post", f"/models/copies/{here.pk}/delete", {"confirm": "m"}).status_code == 201


def test_a_path_of_another_server_blocks_nobody(server, rest):
    here = place(artifact("m"), server, "/data/m")
    params = {"model": "/data/m", "folder": "/data/other", "server": "kp-02"}
    job = Job.objects.create(server=server, kind="model_copy", params=params, not_after=timezone.now())
    assert rest("get", f"/models/copies/{here.pk}/uses").json()["uses"] == []
    job.params["folder"] = "/data/m"
    job.save()
    assert rest("get", f"/models/copies/{here.pk}/uses").json()["uses"][0]["blocks"]


def test_of_two_copies_that_are_to_go_the_second_is_the_last(server, rest):
    one = artifact("m")
    first, second = place(one, server, "/data/m"), place(one, server, "/srv/m")
    assert rest("post", f"/models/copies/{first.pk}/delete", {}).status_code == 201
    refused = rest("post", f"/models/copies/{second.pk}/delete", {})
    assert refused.json()["error"]["code"] == "name_needed"
    Job.objects.update(state="failed")
    assert rest("post", f"/models/copies/{second.pk}/delete", {}).status_code == 201


def test_a_copy_on_a_server_that_is_gone_is_no_other_copy(server, rest, browser):
    one = artifact("m")
    gone = Server.objects.create(name="kp-09", decommissioned_at=timezone.now())
    place(one, gone, "/srv/m")
    assert "kp-09" not in browser.get(reverse("deployments:model-list")).content.decode()
    here = place(one, server, "/data/m")
    assert rest("get", f"/models/copies/{here.pk}/uses").json()["last"] is True


def test_models_are_looked_for_where_the_servers_jobs_put_them(server, settings):
    server.facts = {"models_root": "/srv/agent/models"}
    assert model_changes.root_of(server) == "/srv/agent/models"
    settings.MODELS_ROOT = "/data/models"
    assert model_changes.root_of(server) == "/data/models"


def test_a_folder_next_to_it_blocks_nobody(server, rest):
    here = place(artifact("m"), server, "/data/m")
    Job.objects.create(server=server, kind="check", params={"path": "/data/m2"}, not_after=timezone.now())
    assert rest("post", f"/models/copies/{here.pk}/delete", {"confirm": "m"}).status_code == 201


def test_only_known_copies_are_deleted_and_no_batch_does(rest, server):
    one = place(artifact("m"), server, "/data/m")
    new = {"kind": "model_delete", "server": "kp-01", "params": {"path": "/home/olga"}}
    assert rest("post", "/jobs", new).json()["error"]["code"] == "unknown_place"
    new["params"] = {"path": "/data/m", "fingerprint": "a" * 64}
    assert rest("post", "/jobs", new).json()["error"]["code"] == "filled_in"
    batch = {"kind": "model_delete", "params": {"path": "/data/m"}, "select": {"names": ["kp-01"]}}
    assert rest("post", "/batches", batch).json()["error"]["code"] == "one_by_one"
    one.gone_at = timezone.now()
    one.save()
    assert rest("post", f"/models/copies/{one.pk}/delete", {"confirm": "m"}).json()["error"]["code"] == "already_gone"
    assert rest("get", "/models/copies/999/uses").json()["error"]["code"] == "unknown_place"


def test_again_leads_to_the_question_of_that_copy(browser, server):
    here = place(artifact("m"), server, "/data/m")
    assert own_pages.address("model_delete", {"path": "/data/m"}, "kp-01") == f"/models/copies/{here.pk}/delete"
    assert own_pages.address("model_delete", {"path": "/data/n"}, "kp-01") == "/models/"
    assert own_pages.address("model_delete", {}, "kp-01") == "/models/"


def test_what_can_be_done_is_offered_where_its_page_or_kind_is_there(browser, looks, server, monkeypatch):
    one = artifact("m")
    place(one, server, "/data/m")
    routes = {"deployments:model-quantize": "/q", "deployments:model-copy": "/c"}
    monkeypatch.setattr(model_page, "address", lambda name, **query: routes.get(name, "") and f"{routes[name]}?{query}")
    shown = page(browser, "model-detail", one.pk).context["actions"]
    urls = {action.url.partition("?")[0] for action in shown}
    assert {"/q", "/c"} <= urls and all("'path': '/data/m'" in a.url for a in shown if a.url.startswith("/c"))
    assert page(looks, "model-detail", one.pk).context["actions"] == []
    ArtifactPlace.objects.update(problems=[MISSING])
    assert page(browser, "model-detail", one.pk).context["actions"] == []


# ---------- forms, catalogue, REST ----------


def test_a_form_offers_the_models_of_its_server(browser, server):
    place(artifact("m"), server, '/data/"m" <b>')
    place(artifact("n"), server, "/data/n", gone_at=timezone.now())
    found = browser.get(reverse("deployments:job-new"), {"kind": "model_delete", "server": "kp-01"})
    (field,) = [one for one in found.context["fields"] if one.name == "path"]
    assert field.choices == ['/data/"m" <b>']
    assert '<option value="/data/&quot;m&quot; &lt;b&gt;"></option>' in found.content.decode()


def test_the_catalogue_knows_what_lies_here(browser, server, rest):
    one = artifact("Qwen3-8B-w8a8", format="quantized")
    place(one, server)
    place(artifact("Qwen3-14B"), server, gone_at=timezone.now())
    here = {line.row.name: [a.pk for a in line.here] for line in model_catalogue.lines("qwen3-")}
    assert here["Qwen3-8B"] == [one.pk] and here["Qwen3-14B"] == []
    text = page(browser, "model-catalogue").content.decode()
    assert "Qwen3-8B-w8a8" in text and "DeepSeek-R1" in text and "not checked" in text
    answer = rest("get", "/model-catalogue?q=qwen3-8b").json()
    (row,) = answer["models"]
    assert (
        row["id"] == "Qwen/Qwen3-8B" and row["here"] == [one.pk] and row["needs"]["bf16"]["npus"] == {"32": 1, "64": 1}
    )


def test_a_site_adds_and_replaces_rows_and_mistakes_are_named(browser, db, settings, tmp_path):
    settings.MODELS_FILE = tmp_path / "models.json"
    rows = [{"id": "ours/Finance-7B", "params_b": 7, "layers": 10, "kv_heads": 2, "head_dim": 64},
            {"id": "Qwen/Qwen3-8B", "params_b": 9}]  # fmt: skip
    settings.MODELS_FILE.write_text(json.dumps(rows))
    text = page(browser, "model-catalogue").content.decode()
    assert "Finance-7B" in text and "of this site" in text
    assert model_catalogue.models().rows["ours/Finance-7B"].kv_bytes_per_token == 5120
    assert model_catalogue.models().rows["Qwen/Qwen3-8B"].params_b == 9
    settings.MODELS_FILE.write_text(json.dumps([*rows, {"id": "x", "layers": "many"}, {"id": "<b>"}, 3, {"idd": "x"}]))
    text = page(browser, "model-catalogue").content.decode()
    assert "row 3: layers is a whole number" in text and "row 6" in text and "Finance-7B" not in text
    for broken in ("{", "[" * 100_000, "null", '{"models": 3}'):
        settings.MODELS_FILE.write_text(broken)
        assert page(browser, "model-catalogue").status_code == 200 and model_catalogue.models().problems


def test_rest_lists_and_shows_models(rest, server):
    one = artifact("m")
    child = artifact("c", parent=one, via="quantized", format="quantized", gate={"passed": True, "job": 7})
    place(one, server)
    answer = rest("get", "/models?state=whole").json()
    assert [row["id"] for row in answer["models"]] == [one.pk] and answer["total"] == 1 and answer["next"] is None
    shown = rest("get", f"/models/{one.pk}").json()
    assert shown["kv_bytes_per_token"] == 57344 and shown["places"][0]["server"] == "kp-01"
    graph = rest("get", f"/models/{child.pk}/lineage").json()
    assert [edge["how"] for edge in graph["edges"]] == ["found", "quantized", "evaluated"]
    assert rest("get", "/models/999").json()["error"]["code"] == "unknown_model"


def test_the_palette_and_the_rail_know_models(browser, db):
    text = page(browser, "model-list").content.decode()
    assert 'href="/models/" aria-current="page"' in text
    found = browser.get("/palette.json", {"q": "moxing"}).json()
    assert any(entry["url"] == "/models/" for entry in next(iter(found.values())))


def test_the_page_of_a_job_leads_on_to_its_models_and_names_their_folders(browser, server):
    scan = Job.objects.create(server=server, kind="model_scan", not_after=timezone.now())
    found = artifact("Qwen3-8B")
    place(found, server, job_id=scan.pk)
    assert [one.pk for one in models_told(scan)] == [found.pk]
    assert models_told(Job(kind="check", server=server)) == []
    with translation.override("en"):
        assert (
            lock_words(["artifact:/data/m", "npu:0000:C1:00.0", "stack"]) == "folder /data/m, NPU 0000:C1:00.0, stack"
        )


def test_the_palette_finds_models_by_a_part_of_their_name(server):
    artifact("Qwen3-8B")
    artifact("Llama-3.1-8B")
    found = search.find("qwen3")
    assert [one["title"] for one in found] == ["Qwen3-8B"]
    assert found[0]["url"] == reverse("deployments:model-detail", args=[Artifact.objects.get(name="Qwen3-8B").pk])
