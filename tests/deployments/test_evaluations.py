"""What an evaluation tells becomes rows and the gate of its artifact; pages and REST show it and ask for one."""

import json
from datetime import timedelta

import pytest
from auditlog.models import LogEntry
from django.test import override_settings
from django.utils import timezone, translation

from console.errors import Conflict, Invalid
from console.models import ApiToken, User
from deployments import ingest
from deployments.agent.items import item
from deployments.artifacts import judge
from deployments.artifacts.judge import Answer
from deployments.artifacts.prompts import Prompt
from deployments.models import Artifact, ArtifactPlace, Attempt, Evaluation, Job, Npu, Server
from deployments.services import evaluating, evaluations, model_gate, told
from tests.answers import whole
from tests.deployments.model_rows import artifact

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]


@pytest.fixture(autouse=True)
def in_english():
    with translation.override("en"):
        yield


STACKS = "/opt/ascend-console/stacks"


@pytest.fixture
def server(db):
    return Server.objects.create(name="kp-01", last_seen_at=timezone.now(), facts={"stacks_root": STACKS})


@pytest.fixture
def parent(server):
    row = Artifact.objects.create(name="Qwen3-8B", fingerprint="a" * 64, format="hf")
    ArtifactPlace.objects.create(artifact=row, server=server, path="/data/q", bytes=16_000_000_000)
    return row


@pytest.fixture
def child(server, parent):
    row = Artifact.objects.create(
        name="Qwen3-8B-w8a8", fingerprint="b" * 64, format="quantized", parent=parent, via="quantized"
    )
    ArtifactPlace.objects.create(artifact=row, server=server, path="/data/q-w8a8", bytes=9_000_000_000)
    return row


@pytest.fixture
def attempt(server, child):
    job = Job.objects.create(
        server=server, kind="evaluate", not_after=timezone.now() + timedelta(days=1),
        params={"child": "/data/q-w8a8", "parent": "/data/q", "budget_pct": 2.0, "agreement_pct": 30.0},
    )  # fmt: skip
    return Attempt.objects.create(pk=f"a{job.pk}-1-00000001", job=job, n=1)


def pair(n=1, lang="en", said="blue", child="blue", loss=-1.0):
    prompt = Prompt(f"{lang}-{n}", lang, "fact", f"The sky {n} is")
    return judge.compare(prompt, Answer(said, (said,), scored=(-1.0, 1)), Answer(child, (child,), scored=(loss, 1)))


def tell(attempt, pairs, **more):
    for n, one in enumerate(pairs, 1):
        told.hand_over(attempt, "answer", {"n": n, **one.as_json()})
    data = {"engine": "vllm", "measured": judge.measure(pairs).as_json(), "notes": [["注", "A note."]], "took_s": 12.5}
    told.hand_over(attempt, "evaluation", json.loads(json.dumps({**data, **more})))
    return Evaluation.objects.get(attempt=attempt)


def log_in(client, role="operator"):
    client.force_login(User.objects.create_user(f"u-{role}", role=role))
    client.defaults["HTTP_ACCEPT_LANGUAGE"] = "en"
    return client


def shown(answer):
    return answer.content.decode()


# ---------- what is told ----------


def test_answers_and_verdict_become_rows_and_the_gate(attempt, child, parent):
    found = tell(attempt, [pair(1), pair(2, "zh")])
    child.refresh_from_db()
    assert (found.passed, found.engine, found.artifact, found.parent, found.took_s) == (
        True,
        "vllm",
        child,
        parent,
        12.5,
    )
    assert [row.lang for row in found.answers.all()] == ["en", "zh"]
    assert child.gate["passed"] and child.gate["job"] == attempt.job_id and child.gate["measured"]["prompts"] == 2
    assert evaluations.promotable(child) and evaluations.why_not(child) == ""


def test_pages_of_models_hear_of_it(attempt, child, monkeypatch, django_capture_on_commit_callbacks):
    heard = []
    monkeypatch.setattr("console.live.publish", lambda *words: heard.append(words))
    with django_capture_on_commit_callbacks(execute=True):
        tell(attempt, [pair()])
    assert ("artifacts", "moved", {}) in heard


def test_it_travels_as_events_of_the_job(attempt, child, spool):
    lines = [json.dumps({"told": "answer", "data": {"n": 1, **pair().as_json()}}),
             json.dumps({"told": "evaluation", "data": {"measured": judge.measure([pair()]).as_json()}})]  # fmt: skip
    chunk = spool.chunk(*(("v", json.dumps({"e": "told", **item(line.encode())})) for line in lines))
    ingest.store({attempt.job.server_id: [chunk]})
    assert Evaluation.objects.get().passed and Evaluation.objects.get().answers.count() == 1


def test_the_verdict_is_made_here_and_not_by_the_server(attempt, child):
    bad = [pair(loss=-1.5)]
    found = tell(attempt, bad, passed=True, budget={"worse_pct": 1000, "agreement_pct": 0})
    child.refresh_from_db()
    assert found.passed is False and found.budget == {"worse_pct": 2.0, "agreement_pct": 30.0}
    with translation.override("en"):
        assert not evaluations.promotable(child) and f"job #{attempt.job_id}" in evaluations.why_not(child)
    assert "perplexity rose by 64.87 %" in evaluations.judged(found)[0].en


def test_a_model_that_was_never_evaluated_is_promotable_only_as_it_came(parent, child):
    assert evaluations.promotable(parent) and not evaluations.promotable(child)
    with translation.override("en"):
        assert "not evaluated" in evaluations.why_not(child)


@pytest.mark.parametrize("given", ["hf", "quantized", "adapter", "om", "mindir", "unknown"])
def test_lists_and_deployments_know_the_same_as_proved(server, given):
    alone = artifact("alone", format=given)
    state = model_gate.state(alone)
    assert evaluations.promotable(alone) == (state == "original") == (given == "hf")
    rows = Artifact.objects.filter(pk=alone.pk)
    assert [name for name, wanted in model_gate.GATES.items() if rows.filter(wanted)] == [state]


def test_a_slash_at_the_end_names_the_same_models(server, child, parent):
    here = {one.artifact_id: one.path for one in ArtifactPlace.objects.filter(server=server)}
    given = {"child": f"{here[child.pk]}/", "parent": f"{here[parent.pk]}/"}
    found = evaluating.fill(server, given)
    assert (found["child"], found["parent"]) == (here[child.pk], here[parent.pk])
    with pytest.raises(Invalid):
        evaluating.fill(server, {**given, "parent": here[child.pk]})


def test_copies_on_servers_that_are_gone_are_not_chosen(server, child):
    assert evaluating.choose(child).place is not None
    Server.objects.filter(pk=server.pk).update(decommissioned_at=timezone.now())
    assert evaluating.choose(child).place is None


def test_a_job_of_another_kind_or_server_tells_nothing_of_it(attempt, child, server):
    attempt.job.kind = "check"
    with pytest.raises(Evaluation.DoesNotExist):
        tell(attempt, [pair()])
    attempt.job.kind, attempt.job.server = "evaluate", Server.objects.create(name="kp-02")
    assert tell(attempt, [pair()]).artifact is None  # nothing lies there under that path
    child.refresh_from_db()
    assert child.gate is None


@pytest.mark.parametrize("measured", [
    None, 3, {}, {"prompts": 0},
    {"prompts": 1, "garbled": -1, "both_garbled": 0, "equal_pct": 1, "token_agreement_pct": 1},
    {"prompts": 1, "garbled": 0, "both_garbled": 0, "equal_pct": 101, "token_agreement_pct": 1},
    {"prompts": 1, "garbled": 0, "both_garbled": 0, "equal_pct": float("nan"), "token_agreement_pct": 1},
    {"prompts": 10**9, "garbled": 0, "both_garbled": 0, "equal_pct": 1, "token_agreement_pct": 1},
])  # fmt: skip
def test_numbers_that_cannot_be_make_no_verdict(attempt, child, measured, caplog):
    told.hand_over(attempt, "evaluation", {"measured": measured})
    child.refresh_from_db()
    assert child.gate is None and not Evaluation.objects.filter(passed__isnull=False).exists()


@pytest.mark.parametrize("n", [0, -1, 501, "1", None, True, 10**30])
def test_answers_without_a_number_are_not_kept(attempt, n, caplog):
    told.hand_over(attempt, "answer", {**pair().as_json(), "n": n})
    assert not Evaluation.objects.filter(answers__isnull=False).exists()


def test_hostile_answers_are_bounded_and_shown_as_text(client, attempt, child):
    hostile = {"n": 1, "prompt": "<script>alert(1)</script>" + "p" * 99_999, "parent": ["x"], "child": "\x00\ud800<b>",
               "lang": "xx", "garbled": ["marks", {}, "no such"], "both_garbled": "marks", "tokens": -3,
               "same_tokens": 10**30, "differs_at": "x", "parent_perplexity": float("inf"), "equal": 1}  # fmt: skip
    told.hand_over(attempt, "answer", hostile)
    found = tell(attempt, [], measured=judge.measure([pair()]).as_json(), notes=[["a"], 3, ["<i>", "<i>"]], took_s="x")
    row = found.answers.get()
    assert row.data["garbled"] == ["marks"] and row.data["both_garbled"] == [] and len(row.data["prompt"]) == 10_000
    told.hand_over(attempt, "answer", {**pair().as_json(), "n": 2, "child_perplexity": 5e-324})
    assert found.answers.get(n=2).data["child_perplexity"] is None
    text = shown(log_in(client).get(f"/evaluations/{found.pk}/"))
    assert "<script>alert(1)" not in text and "&lt;script&gt;" in text and "&lt;i&gt;" in text
    assert client.get(f"/evaluations/{found.pk}.json").json()["answers"][0]["parent"] == ""


# ---------- the form ----------


def test_the_form_names_copies_and_what_will_run(client, child, parent, server):
    text = shown(log_in(client).get(f"/models/evaluate?artifact={child.pk}"))
    assert "kp-01: /data/q-w8a8" in text and "(made from it)" in text and "deployments.artifacts.answers" in text
    assert "Engine “reference”" in text and "NPUs" not in text.split("What is asked")[1].split("Ticket")[0]
    Npu.objects.create(server=server, npu_id=0, chip_id=0, device_index=0, bus_id="0000:81:00.0")
    text = shown(client.get(f"/models/evaluate?artifact={child.pk}&full=1&p-npus=0000:81:00.0"))
    assert "0000:81:00.0" in text and "Engine vLLM of the stack in use" in text and "Holds NPU 0000:81:00.0" in text


def test_npus_that_processes_hold_are_not_taken(client, child, server, monkeypatch):
    Npu.objects.create(server=server, npu_id=3, chip_id=0, device_index=3, bus_id="0000:81:00.0")
    Npu.objects.create(server=server, npu_id=4, chip_id=0, device_index=4, bus_id="0000:82:00.0")
    held = [{"pid": 4711, "user": "root", "npu": 3, "chip": 0}, {"npu": None}]
    monkeypatch.setattr("deployments.services.in_use.processes", lambda server: held)
    log_in(client)
    answer = client.post("/models/evaluate", {"artifact": child.pk, "p-npus": "0000:81:00.0"})
    assert answer.status_code == 409 and "4711 (root)" in shown(answer) and not Job.objects.exists()
    client.post("/models/evaluate", {"artifact": child.pk, "p-npus": "0000:82:00.0"})
    assert Job.objects.get().locks == ["npu:0000:82:00.0"]


@pytest.mark.parametrize("family, dtype, taken", [
    ("310P3", "auto", "float16"), ("310P3", "float32", "float32"), ("910B3", "auto", "auto"),
])  # fmt: skip
def test_chips_without_bfloat16_get_float16(child, server, family, dtype, taken):
    server.family = family
    params = {"child": "/c", "parent": "/p", "npus": ["0000:81:00.0"], "dtype": dtype}
    assert {**params, **evaluating.fill(server, params)}["dtype"] == taken


def test_the_form_queues_a_job_with_the_sites_budget(client, child, server):
    with override_settings(GATE_BUDGET=0.05, GATE_AGREEMENT=0.5):
        answer = log_in(client).post("/models/evaluate", {"artifact": child.pk, "ticket": "T-1"})
    job = Job.objects.get()
    assert answer.status_code == 302 and answer.url == f"/jobs/{job.pk}/"
    assert (job.params["budget_pct"], job.params["agreement_pct"], job.params["stacks"]) == (5.0, 50.0, STACKS)
    assert (job.params["child"], job.params["parent"], job.ticket) == ("/data/q-w8a8", "/data/q", "T-1")


@pytest.mark.parametrize("given, words", [
    ({"p-pasted": "fine\n{bad"}, "Line 2 of the prompts is no valid JSON"),
    ({"p-pasted": "x" * 10_001}, "Some parameters do not fit"),
    ({"p-max_tokens": "many"}, "is not a whole number"),
    ({"p-budget_pct": "-1"}, "must be at least 0"),
    ({"p-tool": "lm_eval"}, "go with a tool"),
    ({"p-prompts": "../x"}, "Give the whole path"),
    ({"p-tasks": "a; rm -rf /", "p-tool": "lm_eval"}, "must look like"),
])  # fmt: skip
def test_bad_input_is_answered_on_the_form(client, child, given, words):
    answer = log_in(client).post("/models/evaluate", {"artifact": child.pk, "full": "1", **given})
    assert answer.status_code == 422 and words in shown(answer).replace("&quot;", '"') and not Job.objects.exists()


def test_where_the_parent_lies_elsewhere_the_form_says_how_to_bring_it(client, child, parent):
    other = Server.objects.create(name="kp-09", last_seen_at=timezone.now())
    ArtifactPlace.objects.filter(artifact=parent).update(server=other)
    log_in(client)
    text = shown(client.get(f"/models/evaluate?artifact={child.pk}"))
    assert "The parent Qwen3-8B does not lie on kp-01, but here: kp-09:/data/q. Copy it to kp-01 first." in text
    assert client.post("/models/evaluate", {"artifact": child.pk}).status_code == 409
    ArtifactPlace.objects.filter(artifact=parent).update(gone_at=timezone.now())
    assert "lies on no server any more" in shown(client.get(f"/models/evaluate?artifact={child.pk}"))
    ArtifactPlace.objects.filter(artifact=child).update(problems=[["truncated", ["坏", "bad"], True]])
    assert "No server has a whole copy" in shown(client.get(f"/models/evaluate?artifact={child.pk}"))


def test_a_link_may_name_the_copy_by_server_and_path(client, child, server):
    other = Server.objects.create(name="kp-02", last_seen_at=timezone.now())
    ArtifactPlace.objects.create(artifact=child, server=other, path="/srv/量化 copy")
    text = shown(log_in(client).get(f"/models/evaluate?artifact={child.pk}&server=kp-02&path=/srv/量化 copy"))
    assert "selected>kp-02: /srv/量化 copy" in text and "does not lie on kp-02" in text
    assert "selected>kp-01" in shown(client.get(f"/models/evaluate?artifact={child.pk}&server=nope&path=x"))


def test_another_model_may_be_the_parent_with_a_warning(client, child, server):
    other = Artifact.objects.create(name="Llama", fingerprint="c" * 64, format="hf")
    place = ArtifactPlace.objects.create(artifact=other, server=server, path="/data/llama")
    text = shown(log_in(client).get(f"/models/evaluate?artifact={child.pk}&parent={place.pk}"))
    assert "It is not known that Qwen3-8B-w8a8 was made from Llama" in text


def test_viewers_may_look_and_not_ask(client, child, attempt):
    found = tell(attempt, [pair()])
    log_in(client, "viewer")
    assert client.get(f"/models/evaluate?artifact={child.pk}").status_code == 403
    assert client.post("/models/evaluate", {"artifact": child.pk}).status_code == 403
    assert "Passed" in shown(client.get(f"/evaluations/{found.pk}/"))
    assert client.get("/evaluations/999999/").status_code == 404 and client.get("/models/evaluate").status_code == 403


def test_addresses_that_name_nothing_are_answered(client):
    log_in(client)
    for path in ("/models/evaluate?artifact=x", "/models/evaluate?artifact=99", f"/evaluations/{10**30}/"):
        assert client.get(path).status_code == 404


# ---------- the result ----------


def test_the_page_shows_numbers_answers_plot_and_history(client, attempt, child):
    found = tell(attempt, [pair(1), pair(2, "zh", child="black"), pair(3, child="!!!!!!!!!!!!")])
    text = shown(log_in(client).get(f"/evaluations/{found.pk}/"))
    assert "answers garbled where the parent&#x27;s are not: 1" in text and "<mark>ack</mark>" in text
    assert text.count('class="of-child"') >= 3 and "A note." in text and f'href="/jobs/{attempt.job_id}/"' in text
    assert "Evaluations of this model" in text and "Promote it all the same" not in text
    for query, names in (("differs=1", {"zh-2", "en-3"}), ("garbled=1", {"en-3"}), ("lang=zh", {"zh-2"})):
        part = shown(client.get(f"/evaluations/{found.pk}/?{query}")).split('id="answers"')[1]
        assert {name for name in ("en-1", "zh-2", "en-3") if f">{name}<" in part} == names
    assert client.get(f"/jobs/{attempt.job_id}/evaluation").url == f"/evaluations/{found.pk}/"


def test_one_under_way_shows_its_answers_without_a_verdict(client, attempt):
    told.hand_over(attempt, "answer", {"n": 1, **pair().as_json()})
    text = shown(log_in(client).get(f"/evaluations/{Evaluation.objects.get().pk}/"))
    assert "Not judged yet" in text and ">en-1<" in text


def test_many_answers_are_paged_with_a_fixed_number_of_queries(client, attempt, django_assert_max_num_queries):
    found = tell(attempt, [pair(n, child="black") for n in range(1, 61)])
    log_in(client)
    with django_assert_max_num_queries(25):
        text = shown(client.get(f"/evaluations/{found.pk}/?differs=1&page=2"))
    assert ">en-21<" in text.split('id="answers"')[1] and "2 / 3" in text and "?differs=1&amp;page=3#answers" in text


def test_it_comes_as_files(client, attempt):
    found = tell(attempt, [pair(said="=1+1", child="=1+1")])
    data = log_in(client).get(f"/evaluations/{found.pk}.json").json()
    assert data["passed"] and data["verdict"].startswith("Passed") and data["answers"][0]["parent"] == "=1+1"
    text = whole(client.get(f"/evaluations/{found.pk}.csv")).decode()
    assert text.splitlines()[0].lstrip("\ufeff").startswith("n,id,lang") and "'=1+1" in text


# ---------- against the gate ----------


def test_an_administrator_promotes_with_a_reason_and_it_is_audited(client, attempt, child):
    found = tell(attempt, [pair(loss=-3.0)])
    log_in(client, "administrator")
    path = f"/models/{child.pk}/promote"
    assert "Promote it all the same" in shown(client.get(f"/evaluations/{found.pk}/"))
    client.post(path, {"reason": "  "})
    child.refresh_from_db()
    assert not evaluations.promotable(child)
    assert client.post(path, {"reason": "accepted by QA"}).url == f"/evaluations/{found.pk}/"
    child.refresh_from_db()
    assert evaluations.promotable(child) and child.gate["promoted"]["reason"] == "accepted by QA"
    entry = LogEntry.objects.get(additional_data__verb="artifact.promoted")
    assert entry.additional_data["reason"] == "accepted by QA" and entry.actor.username == "u-administrator"
    assert "Promoted against it by u-administrator: accepted by QA" in shown(client.get(f"/evaluations/{found.pk}/"))
    tell(attempt, [pair(loss=-3.0)])  # a new verdict, a new decision
    child.refresh_from_db()
    assert not evaluations.promotable(child)


def test_operators_do_not_promote_and_what_passed_needs_none(client, attempt, child):
    tell(attempt, [pair(loss=-3.0)])
    log_in(client).post(f"/models/{child.pk}/promote", {"reason": "please"})
    child.refresh_from_db()
    assert not evaluations.promotable(child)
    tell(attempt, [pair()])
    boss = User.objects.create_user("boss", role="administrator")
    with pytest.raises(Conflict):
        evaluations.promote(child, "why not", by=boss)


# ---------- REST ----------


def test_rest_queues_shows_and_promotes(client, attempt, child, server):
    boss = User.objects.create_user("boss", role="administrator")
    _row, token = ApiToken.make(boss, "administrator")
    call = {"HTTP_ACCEPT_LANGUAGE": "en", "HTTP_AUTHORIZATION": f"Bearer {token}", "content_type": "application/json"}
    found = tell(attempt, [pair(loss=-3.0), pair(2, "zh")])
    listed = client.get(f"/api/v1/models/{child.pk}/evaluations", **call).json()
    assert listed["promotable"] is False and [one["id"] for one in listed["evaluations"]] == [found.pk]
    assert client.get(f"/api/v1/evaluations/{found.pk}", **call).json()["measured"]["prompts"] == 2
    rows = client.get(f"/api/v1/evaluations/{found.pk}/answers?lang=zh", **call).json()
    assert rows["count"] == 1 and rows["answers"][0]["id"] == "zh-2"
    answer = client.post(f"/api/v1/models/{child.pk}/promotion", json.dumps({"reason": "tried by hand"}), **call)
    assert answer.json()["promotable"] is True
    body = json.dumps({"params": {"max_tokens": 8}})
    first = client.post(f"/api/v1/models/{child.pk}/evaluations", body, HTTP_IDEMPOTENCY_KEY="k", **call)
    again = client.post(f"/api/v1/models/{child.pk}/evaluations", body, HTTP_IDEMPOTENCY_KEY="k", **call)
    assert first.status_code == 201 and first.json()["id"] == again.json()["id"], first.content
    assert client.get("/api/v1/models/999/evaluations", **call).status_code == 404
    bad = client.post(f"/api/v1/models/{child.pk}/evaluations", json.dumps({"params": {"pasted": "{"}}), **call)
    assert bad.status_code == 422 and "Line 1" in bad.json()["error"]["what"]
    plain = client.post("/api/v1/jobs", json.dumps({"kind": "evaluate", "server": "kp-01", "params": {
        "child": "/a", "parent": "/a"}}), **call)  # fmt: skip
    assert plain.status_code == 422 and "is the model that is evaluated" in plain.json()["error"]["what"]


def test_the_copy_beside_its_parent_on_a_server_that_answers_comes_first(child, parent, server):
    silent = Server.objects.create(name="kp-00")
    alone = Server.objects.create(name="kp-02", last_seen_at=timezone.now())
    for one in (silent, alone):
        ArtifactPlace.objects.create(artifact=child, server=one, path="/data/copy")
    chosen = evaluating.choose(child)
    assert [one.server.name for one in chosen.places] == ["kp-01", "kp-02", "kp-00"] and chosen.server == server
    assert chosen.engine == "reference" and chosen.parent.artifact == parent and chosen.related


def test_the_jobs_page_leads_to_the_result(client, attempt):
    log_in(client)
    assert "of the evaluation" not in shown(client.get(f"/jobs/{attempt.job_id}/"))
    found = tell(attempt, [pair()])
    assert f'href="/evaluations/{found.pk}/"' in shown(client.get(f"/jobs/{attempt.job_id}/"))
