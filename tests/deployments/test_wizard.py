"""The page of a new deployment: plans become settings, what is typed comes back, and what is wrong is said."""

import re
from urllib.parse import parse_qs, urlsplit

import pytest
from auditlog.models import LogEntry
from django.test import Client

from console.errors import Conflict
from console.models import User
from deployments.models import Artifact, ArtifactPlace, Deployment, Npu, Server
from deployments.services import placement, serving_hardware, stacks, wizard
from deployments.serving import settings
from deployments.serving.placing import Candidate
from deployments.stacks.verdict import MATCHES, REACHABLE, Verdict
from deployments.steps import Text

SUMMARY = {
    "layers": 28, "hidden": 3584, "heads": 28, "kv_heads": 4, "head_dim": 128, "vocab": 152_064, "dtype": "BF16",
    "max_position": 32_768, "weight_bytes": 15_231_233_024, "quant_type": "",
}  # fmt: skip


@pytest.fixture
def looked(monkeypatch):
    """Placement has one server that fits and one that does not."""
    seen = []

    def look(read, artifact, *, servers, spread):
        seen.append((read, servers, spread))
        return [
            Candidate(1, "kp-01", npus=("0000:01:00.0",), fits=True, path="/models/seven", chip="910B3",
                      why=(Text("空闲", "It is free."),), stack="vllm-ascend-0.23.0"),
            Candidate(2, "kp-02", why_not=(Text("被占用", "Somebody has it."),)),
        ]  # fmt: skip

    monkeypatch.setattr(placement, "look", look)
    return seen


@pytest.fixture
def seven(db):
    server = Server.objects.create(name="kp-01", family="910B3")
    for n in range(8):
        Npu.objects.create(
            server=server, device_index=n, npu_id=n, chip_id=0, bus_id=f"0000:0{n}:00.0", name="910B3",
            memory_total_mb=65_536,
        )  # fmt: skip
    one = Artifact.objects.create(name="Seven 7B", fingerprint="7" * 64, format="hf", summary=SUMMARY, bytes=16 * 10**9)
    ArtifactPlace.objects.create(artifact=one, server=server, path="/models/seven")
    return one


@pytest.fixture
def client(db):
    made = Client(headers={"accept-language": "en"})
    made.force_login(User.objects.create_user("olga", role="operator"))
    return made


def page(client, seven, query=""):
    return client.get(f"/deployments/new?artifact={seven.pk}&{query}")


def sent(seven, **given):
    return {
        "artifact": seven.pk,
        "full": "1",
        "name": "seven-7b",
        "first": "one",
        "p-served_model_name": "seven",
        **given,
    }


def test_hardware_is_grouped_by_what_is_alike(seven):
    one = Server.objects.create(name="kp-02", family="910B3")
    for n in range(8):
        Npu.objects.create(server=one, device_index=n, npu_id=n, chip_id=0, bus_id=f"0000:0{n}:00.0", name="910B3",
                           memory_total_mb=65_536)  # fmt: skip
    Server.objects.create(name="bare")
    made = serving_hardware.of_fleet(simulated=False)
    assert [(kind.chip, kind.family, kind.npus, sorted(kind.servers)) for kind in made] == [
        ("910B3", "A2", 8, ["kp-01", "kp-02"])
    ]


def test_a_fleet_of_many_takes_as_many_queries_as_one_server(client, seven, django_assert_max_num_queries):
    for n in range(10, 40):
        one = Server.objects.create(name=f"kp-{n}", family="910B3")
        Npu.objects.create(server=one, device_index=0, npu_id=0, chip_id=0, bus_id="0000:01:00.0", name="910B3",
                           memory_total_mb=65_536)  # fmt: skip
    page(client, seven)
    with django_assert_max_num_queries(45):
        assert "1 more" not in page(client, seven).content.decode()


def test_a_viewer_is_refused(seven, looked):
    viewer = Client(headers={"accept-language": "en"})
    viewer.force_login(User.objects.create_user("vera", role="viewer"))
    assert page(viewer, seven).status_code == 403


def test_the_first_step_offers_models_that_lie_here(client, seven):
    Artifact.objects.create(name="gone", fingerprint="8" * 64, format="hf")
    text = client.get("/deployments/new").content.decode()
    assert "Seven 7B" in text and "gone" not in text


def test_it_begins_with_the_best_plan_and_says_the_exact_command(client, seven, looked):
    text = page(client, seven).content.decode()
    assert 'name="name" value="seven-7b"' in text
    command = re.search(r'<pre class="command"[^>]*>(.*?)</pre>', text, re.S)[1]
    assert "vllm.entrypoints.openai.api_server" in command and "/models/seven" in command
    assert "--max-model-len 16384" in command
    assert "It is free." in text and "Somebody has it." in text and "taken" in text


def test_taking_another_plan_leads_to_an_address_with_its_settings(client, seven, looked):
    spec = wizard.spec_of(seven)
    cards = wizard.cards(spec, serving_hardware.of_fleet(simulated=False), {}, cpu=True)
    assert cards[0].plan.engine.npus == 1 and cards[-1].key == "cpu"
    last = cards[-2]
    answer = client.post("/deployments/new", sent(seven, do=f"plan-{last.key}", **{"p-env": "MY_OWN=1"}))
    query = parse_qs(urlsplit(answer.url).query)
    assert answer.status_code == 302 and "csrfmiddlewaretoken" not in query
    assert query["p-tensor_parallel_size"] == [str(last.plan.engine.tp)] and query["p-env"] == ["MY_OWN=1"]
    assert client.get(answer.url).status_code == 200


def test_the_cpu_plan_says_that_it_is_for_trying(client, seven, looked):
    answer = client.post("/deployments/new", sent(seven, do="plan-cpu"))
    text = client.get(answer.url).content.decode()
    assert "for trying, never for users" in text and "VLLM_CPU_KVCACHE_SPACE=1" in text
    tiny = wizard.propose_cpu(wizard.spec_of(Artifact(name="t", summary={**SUMMARY, "weight_bytes": 10**6}, bytes=1)))
    assert tiny["dtype"] == "float32" and tiny["enforce_eager"] is True and settings.read(tiny).max_num_seqs == 16


def test_a_guide_is_answered_and_what_it_said_stays_shown(client, seven, looked):
    answer = client.post("/deployments/new", sent(seven, do="look", guide="max_batch_size=32 swap_space=64GB"))
    text = client.get(answer.url).content.decode()
    assert 'name="p-max_num_seqs" value="32"' in text
    assert "left out" in text and "--kv-offloading-size" in text


def test_going_back_keeps_what_was_typed(client, seven, looked):
    given = {"p-max_model_len": "many", "p-extra": "--max-logprobs 5", "servers": ["kp-01"], "note": "for the team"}
    answer = client.post("/deployments/new", sent(seven, do="look", **given))
    text = client.get(answer.url).content.decode()
    assert "--max-logprobs 5" in text and "for the team" in text
    assert re.search(r'name="servers" value="kp-01" checked', text)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"p-tensor_parallel_size": "3"}, "cannot be divided by 3"),
        ({"p-tensor_parallel_size": "x"}, "not a whole number"),
        ({"p-extra": "--port 1"}, "the console gives it"),
        ({"p-env": "VLLM_ASCEND_ENABLE_NZ=1"}, "weight_nz_mode"),
        ({"p-max_model_len": "99999"}, "VLLM_ALLOW_LONG_MAX_MODEL_LEN"),
    ],
)
def test_what_would_not_serve_is_not_started(client, seven, looked, given, words):
    answer = client.post("/deployments/new", sent(seven, do="start", **given))
    text = answer.content.decode()
    assert answer.status_code in (400, 422) and words in text and "Some settings would not serve." in text
    assert words in text.partition('class="refusal"')[2].partition("</form>")[0].partition("<section")[0]
    assert not Deployment.objects.exists()


def test_it_starts_with_only_what_differs(client, seven, looked):
    given = {
        "p-tensor_parallel_size": "2",
        "p-max_num_seqs": "256",
        "servers": "kp-01",
        "replicas": "9",
        "spread": "pack",
    }
    answer = client.post("/deployments/new", sent(seven, do="start", **given))
    assert answer.status_code == 302 and answer.url == "/deployments/seven-7b/"
    made = Deployment.objects.get()
    assert made.revision.settings == {"served_model_name": "seven", "tensor_parallel_size": 2}
    assert (made.replicas, made.servers, made.spread, made.revision.artifact) == (1, ["kp-01"], "pack", seven)
    again = client.post("/deployments/new", sent(seven, do="start", first="all", replicas="3", name="other"))
    assert again.status_code == 302 and Deployment.objects.get(name="other").replicas == 3
    taken = client.post("/deployments/new", sent(seven, do="start"))
    assert taken.status_code == 409 and "already" in taken.content.decode()


def test_a_model_that_was_not_proved_needs_a_reason(client, seven, looked):
    seven.format, seven.gate = "quantized", {"passed": False}
    seven.save()
    assert "why it may be deployed all the same" in page(client, seven).content.decode()
    refused = client.post("/deployments/new", sent(seven, do="start", reason="  "))
    assert refused.status_code == 409 and not Deployment.objects.exists()
    client.post("/deployments/new", sent(seven, do="start", reason="the customer\nwaits"))
    made = Deployment.objects.get()
    assert made.revision.note == "the customer waits"
    entry = LogEntry.objects.get_for_object(made).get(additional_data__verb="deployment.created")
    assert entry.additional_data["unproved"] == "the customer waits"


def test_why_placement_refuses_all_is_shown(client, seven, monkeypatch):
    def look(*_given, **_more):
        raise Conflict("No such thing.", "Do another.")

    monkeypatch.setattr(placement, "look", look)
    assert "No such thing. Do another." in page(client, seven).content.decode()


def test_real_placement_judges_every_server(client, seven):
    text = page(client, seven).content.decode()
    assert 'name="servers" value="kp-01"' in text


def test_a_name_that_is_taken_gets_a_number(seven):
    assert wizard.proposed_name(seven) == "seven-7b"
    Deployment.objects.create(name="seven-7b")
    assert wizard.proposed_name(seven) == "seven-7b-2"


@pytest.mark.parametrize("query", ["artifact=x", "artifact=99999999999999999999", "artifact=%00"])
def test_a_strange_address_is_answered_in_words(client, query, db):
    assert client.get(f"/deployments/new?{query}").status_code in (400, 404, 422)


def test_what_is_hostile_is_never_a_fault(client, seven, looked):
    given = {"servers": ["kp 01", "x" * 400], "name": "<b>", "p-seed": "9" * 5000, "p-env": "A B=1", "spread": "no",
             "replicas": "-1", "concurrency": "1e9", "guide": "=" * 5000, "p-additional": "[" * 5000}  # fmt: skip
    for do in ("look", "plan-9-9", "start"):
        assert client.post("/deployments/new", {**sent(seven, do=do), **given}).status_code < 500
    kept = client.post(
        "/deployments/new", sent(seven, do="start", **{"p-additional": '{"pa_shape_list": ["\\u0000"]}'})
    )
    assert kept.status_code < 500 and "cannot be kept" in kept.content.decode()
    assert not Deployment.objects.exists()


def test_a_plan_says_the_longest_context_that_would_fit(client, seven, looked):
    assert "The longest that would fit: 32,768." in page(client, seven).content.decode()
    assert "Longest context that fits" in client.get(f"/models/plan/?model={seven.pk}&server=kp-01").text


def test_the_part_beside_follows_what_is_typed(client, seven, looked):
    answer = client.get(
        f"/deployments/new?artifact={seven.pk}&full=1&p-tensor_parallel_size=3", headers={"X-Part": "1"}
    )
    text = answer.content.decode()
    assert "<html" not in text and "cannot be divided by 3" in text


def test_a_server_without_a_stack_leads_to_one_that_can_be_brought_there(looked, seven, client, monkeypatch):
    """One that it matches already is none: it lies in somebody else's environment, and `install` would skip it."""
    newest = "vllm-ascend-0.23.0"
    told = {"kp-02": ("stack",), "kp-03": ("stack", "simulated"), "kp-04": ("memory",)}
    for name in told:
        Server.objects.create(name=name, family="910B3")
    no = (Text("无", "None."),)
    found = [Candidate(n, name, why_not=no, codes=codes) for n, (name, codes) in enumerate(told.items())]
    monkeypatch.setattr(placement, "look", lambda *_given, **_more: found)
    word = {newest: REACHABLE}
    monkeypatch.setattr(stacks, "verdict_of", lambda _row, stack: Verdict(word.get(stack.name, MATCHES), "venv"))
    page = client.get(f"/deployments/new?artifact={seven.pk}").text
    assert re.findall(r"/stacks/([^/]+)/plan/([^/]+)/", page) == [(newest, "kp-02")]
    assert "It waits for a stack: none fits on kp-02." in page and "wait for room" not in page
