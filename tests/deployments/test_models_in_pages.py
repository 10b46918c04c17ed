"""Pages and REST that bring models to servers: forms, looks, copies; whom they refuse, what they fill in."""

# ruff: noqa: F811 - fixtures of model_site.py

import json
from datetime import timedelta

import pytest
from django.utils import timezone

from console import environment
from console.errors import ConsoleError
from console.models import ApiToken, User
from deployments.agent import signing
from deployments.agent.models import signed_http
from deployments.models import Artifact, Attempt, Job, JobState, Server
from deployments.services import model_copies, model_downloads, model_sources
from tests.deployments.model_site import FORM, as_operator, olga, other, own_var, server, text  # noqa: F401

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]
TOKEN = "hf_Geheim7qWx"


def looked(server, state=JobState.SUCCEEDED, room="ok", **params):
    now = timezone.now()
    given = {**FORM, "at_once": 4, "folder": "/data/models/x", "endpoint": "https://hub", **params}
    given.pop("server")
    job = Job.objects.create(
        server=server, kind="download_look", state=state, params=given, not_after=now + timedelta(days=1), ended_at=now
    )
    report = [
        {"key": "download.bytes", "title": ["大小", "Size of all"], "verdict": "ok", "found": "1.2 GB (1200000000 B)",
         "wanted": None, "remedy": None, "job": None, "line": 1},
        {"key": "download.room", "title": ["空间", "Free room"], "verdict": room, "found": "<b>2 GB</b>",
         "wanted": None, "remedy": None, "job": None, "line": 2},
    ]  # fmt: skip
    Attempt.objects.create(pk=f"a{job.pk}-1-00000001", job=job, n=1, state=state, report=report)
    return job


def handed_over(job):
    """Its attempt, which stands in the server's queue: in these tests nothing is ever committed."""
    job.attempts.update(pushed_at=timezone.now())
    return job.attempts.get()


# ---------- downloads ----------


def test_the_form_queues_a_look_that_is_filled_in(as_operator, server):
    assert "Look what would come" in text(as_operator.get("/models/download/"))
    answer = as_operator.post("/models/download/", {**FORM, "leave_out": "*.md original/*", "pickles": "1"})
    job = Job.objects.get()
    assert answer.url == f"/models/download/{job.pk}/" and (job.kind, job.locks) == ("download_look", [])
    assert job.params == {
        "source": "huggingface", "model": FORM["model"], "revision": "", "target": "", "only": [], "at_once": 4,
        "leave_out": ["*.md", "original/*"], "pickles": True, "in_place": False, "private": False,
        "folder": "/data/models/Qwen2.5-7B-Instruct", "endpoint": "https://huggingface.co",
    }  # fmt: skip
    assert f'data-job="{job.pk}"' in text(as_operator.get(answer.url))


@pytest.mark.parametrize(
    "wrong",
    [{"server": "none"}, {"server": ""}, {"model": "../x"}, {"model": ""}, {"model": "a/b/c"}, {"source": "ftp"},
     {"target": "relative"}, {"target": "/etc/models"}, {"target": "/data/../etc"}, {"at_once": "99"},
     {"at_once": "x"}, {"source": "web", "model": "ftp://x/y"}, {"source": "web", "model": "http://u:p@x/y"},
     {"source": "web", "model": "http://[x"}, {"source": "path", "model": "x"},
     {"source": "upload", "model": "../../x"},
     {"in_place": "1"}, {"revision": "--x"}, {"only": "x" * 300}, {"model": "a\tb"},
     {"source": "path", "model": "/data/m", "target": "/data/m/copy"}],
)  # fmt: skip
def test_what_cannot_be_is_a_sentence(as_operator, server, wrong):
    answer = as_operator.post("/models/download/", {**FORM, **wrong})
    assert answer.status_code in (400, 404, 409, 422), answer.status_code
    assert 'role="alert"' in answer.content.decode() and not Job.objects.exists()


def test_viewers_are_refused(client, server):
    client.force_login(User.objects.create_user("vera", role="viewer"))
    for path in ("/models/download/", "/models/copy/", "/models/upload/"):
        assert client.get(path).status_code == 403 == client.post(path, FORM).status_code or path.endswith("upload/")
    assert client.post("/models/uploads/", "{}", content_type="application/json").status_code == 403
    job = looked(server)
    assert "Fetch it" not in text(client.get(f"/models/download/{job.pk}/"))
    assert client.post(f"/models/download/{job.pk}/").status_code == 403


def test_a_look_that_ended_well_is_confirmed(as_operator, server):
    look = looked(server)
    page = text(as_operator.get(f"/models/download/{look.pk}/"))
    assert "1.2 GB (1200000000 B)" in page and "&lt;b&gt;2 GB" in page and "Fetch it to kp-01?" in page
    answer = as_operator.post(f"/models/download/{look.pk}/", {"ticket": "T-1"})
    job = Job.objects.get(kind="download")
    assert answer.url == f"/jobs/{job.pk}/" and job.ticket == "T-1"
    assert job.locks == ["artifact:/data/models/Qwen2.5-7B-Instruct"]
    assert model_downloads.find_look(look.pk).bytes == 1_200_000_000


@pytest.mark.parametrize("how", [{"state": JobState.FAILED}, {"state": JobState.RUNNING}, {"room": "failed"}])
def test_a_look_that_did_not_is_not(as_operator, server, how):
    look = looked(server, **how)
    assert "Fetch it" not in text(as_operator.get(f"/models/download/{look.pk}/"))
    text(as_operator.post(f"/models/download/{look.pk}/"), 409)
    assert not Job.objects.filter(kind="download").exists()
    text(as_operator.get("/models/download/999/"), 404)


def test_two_downloads_of_one_folder_wait_for_each_other(server, olga):
    seen = model_downloads.find_look(looked(server).pk)
    first, second = model_downloads.download(seen, by=olga), model_downloads.download(seen, by=olga)
    assert (first.waiting, second.waiting) == (False, True)


def test_a_sample_model_is_filled_in(as_operator, server):
    answer = as_operator.post("/jobs/new", {"server": "kp-01", "kind": "sample_model", "full": "1", "wait": "1",
                                            "p-model": "llama", "p-layers": "2"})  # fmt: skip
    job = Job.objects.get()
    assert answer.url == f"/jobs/{job.pk}/" and job.locks == ["artifact:/data/models/sample-llama-2"]


def test_rest_looks_and_downloads(client, server, olga):
    _row, token = ApiToken.make(olga, "operator")
    headers = {"HTTP_AUTHORIZATION": f"Bearer {token}", "HTTP_ACCEPT_LANGUAGE": "en"}
    body = {"server": "kp-01", "source": "web", "model": "https://mirror.example/tiny/"}
    made = client.post("/api/v1/model-looks", json.dumps(body), content_type="application/json", **headers)
    assert made.status_code == 201 and made.json()["folder"] == "/data/models/tiny", made.content
    refused = client.post(
        "/api/v1/model-looks", json.dumps({**body, "model": "x"}), content_type="application/json", **headers
    )
    assert refused.status_code == 422 and refused.json()["error"]["code"] == "bad_model"
    look = looked(server)
    told = client.get(f"/api/v1/model-looks/{look.pk}", **headers).json()
    assert (told["bytes"], told["room"]) == (1_200_000_000, True)
    done = client.post(f"/api/v1/model-looks/{look.pk}/download", "{}", content_type="application/json", **headers)
    assert done.status_code == 201 and done.json()["kind"] == "download"
    assert client.get("/api/v1/model-sources", **headers).json()["huggingface"] == "https://huggingface.co"


# ---------- secrets ----------


def test_a_token_goes_to_the_job_that_asks_and_to_no_page(as_operator, settings, server, other):
    settings.MODEL_TOKENS = (("huggingface.co", TOKEN), ("http://10.0.0.1:8080", "other"))
    as_operator.post("/models/download/", FORM)
    job = Job.objects.get()
    assert job.params["private"] is True and TOKEN not in json.dumps(job.params)
    attempt = handed_over(job)
    sealed = model_sources.for_attempt(server, attempt.pk)
    assert TOKEN.encode() not in sealed
    assert json.loads(signing.unseal(server.key, sealed)) == {"tokens": {"huggingface.co": TOKEN}, "ca": ""}
    for who, name in ((other, attempt.pk), (server, "a999-1-00000000"), (server, "")):
        with pytest.raises(ConsoleError):
            model_sources.for_attempt(who, name)
    Attempt.objects.filter(pk=attempt.pk).update(state=JobState.SUCCEEDED)
    with pytest.raises(ConsoleError):
        model_sources.for_attempt(server, attempt.pk)
    page = text(as_operator.get("/models/download/")) + text(as_operator.get(f"/jobs/{job.pk}/"))
    assert TOKEN not in page and "huggingface.co" in page


def test_the_question_is_signed(client, server, as_operator, settings):
    settings.MODEL_TOKENS = (("huggingface.co", TOKEN),)
    as_operator.post("/models/download/", FORM)
    attempt = handed_over(Job.objects.get())
    body = json.dumps({"op": "models", "server": server.pk, "attempt": attempt.pk})
    for mac, status in ((signing.sign(server.key, body), 200), (signing.sign("00" * 32, body), 403)):
        answer = client.post("/join/models", json.dumps({"body": body, "mac": mac}), content_type="application/json")
        assert answer.status_code == status
        if status == 200:
            assert TOKEN in signing.unseal(server.key, answer.content).decode()


@pytest.mark.parametrize("words", ["host", "h t x", "http://u@h t", "h/x t", "h 't"])
def test_tokens_that_cannot_be_read_stop_the_start_without_being_shown(monkeypatch, words):
    monkeypatch.setenv("MODEL_TOKENS", words)
    with pytest.raises(environment.BadSetting) as caught:
        environment.tokens("MODEL_TOKENS", most=20)
    assert "'t" not in str(caught.value)
    monkeypatch.setenv("MODEL_TOKENS", "Hub.example tok http://10.0.0.1:80 u:p")
    assert environment.tokens("MODEL_TOKENS", most=20) == (("hub.example", "tok"), ("http://10.0.0.1:80", "u:p"))


# ---------- copies ----------


def test_a_copy_is_two_jobs_that_share_a_key(as_operator, server, other):
    form = {"from": "kp-01", "path": "/data/models/tiny/", "server": "kp-02"}
    answer = as_operator.post("/models/copy/", form)
    serving, copying = Job.objects.get(kind="model_serve"), Job.objects.get(kind="model_copy")
    assert answer.url == f"/jobs/{copying.pk}/"
    assert (serving.server, serving.params["model"], serving.params["port"]) == (server, "/data/models/tiny", 8700)
    assert (copying.params["address"], copying.params["folder"]) == ("10.9.1.4", "/opt/ascend-console/models/tiny")
    keys = [
        json.loads(signing.unseal(job.server.key, model_sources.for_attempt(job.server, handed_over(job).pk)))["key"]
        for job in (serving, copying)
    ]
    seed = json.loads(model_sources.own_file())["seed"]  # for the agent beside the console
    assert keys[0] == keys[1] == signed_http.key_of(seed, serving.params["pair"])
    assert keys[0] not in json.dumps([serving.params, copying.params])


def test_the_page_of_a_model_fills_a_copy_in(as_operator, server):
    page = text(as_operator.get("/models/copy/?artifact=3&server=kp-01&path=/data/models/tiny"))
    assert 'name="from" list="servers" value="kp-01"' in page and 'value="/data/models/tiny"' in page


def test_two_copies_from_one_server_take_two_ports(server, other, olga):
    wish = model_copies.Wish(server, "/data/models/tiny", other)
    ports = [model_copies.copy(wish, by=olga)[1].params["port"] for _n in range(2)]
    assert ports == [8700, 8701]
    Job.objects.filter(kind="model_serve").update(state=JobState.SUCCEEDED)
    assert model_copies.free_port(server) == 8700


@pytest.mark.parametrize(
    "wrong",
    [{"server": "kp-01"}, {"path": "x"}, {"from": "kp-02", "server": "kp-01"}, {"port": "x"}, {"port": "99999"},
     {"target": "/etc"}, {"server": "none"}, {"address": "a b"}],
)  # fmt: skip
def test_a_copy_that_cannot_be_leaves_no_job(as_operator, server, other, wrong):
    form = {"from": "kp-01", "path": "/data/models/tiny", "server": "kp-02", **wrong}
    answer = as_operator.post("/models/copy/", form)
    assert answer.status_code >= 400 and 'role="alert"' in answer.content.decode()
    assert not Job.objects.exists()


def test_a_silent_end_of_a_copy_leaves_no_job(server, other, olga):
    Server.objects.filter(pk=other.pk).update(last_seen_at=timezone.now() - timedelta(hours=1))
    other.refresh_from_db()
    with pytest.raises(ConsoleError):
        model_copies.copy(model_copies.Wish(server, "/data/m", other), by=olga)
    assert not Job.objects.exists()


def test_the_only_real_server_is_filled_in(as_operator, server):
    filled = f'value="{server.name}" required'
    Server.objects.create(name="sim-1", simulated=True)
    pages = ("/models/download/", "/jobs/new?kind=sample_model", "/models/")
    assert [filled in text(as_operator.get(page)) for page in pages] == [True] * 3
    Server.objects.create(name="second")
    assert [filled in text(as_operator.get(page)) for page in pages] == [False] * 3


def test_the_verdict_of_a_job_links_to_the_model_it_made(as_operator, server):
    job = looked(server)
    Job.objects.filter(pk=job.pk).update(kind="sample_model", params={})
    made = Artifact.objects.create(name="sample-<b>", fingerprint="1" * 64, format="hf", made_by=job)
    Artifact.objects.create(name="other-model", fingerprint="2" * 64, format="hf")
    page = text(as_operator.get(f"/jobs/{job.pk}/"))
    assert f'<a href="/models/{made.pk}/"><bdi>sample-&lt;b&gt;</bdi></a>' in page and "other-model" not in page
