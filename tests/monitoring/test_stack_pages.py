"""Pages, REST and the command line of stacks, as each role."""

import json
import re
import time
from datetime import UTC, datetime
from io import StringIO

import pytest
from auditlog.models import LogEntry
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from console.errors import Invalid
from console.models import ApiToken, User
from console.redis import client as redis_client
from console.streams import FLEET_NOW
from deployments.demo import fleet as demo_fleet
from deployments.demo import systems
from deployments.models import Npu, Server
from deployments.services import stacks
from deployments.stacks.fields import STATES
from tests.deployments.stack_facts import CHIPS, PACKAGES_0_23, facts
from tests.monitoring.nows import now, npu, process

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]
DEFAULT = "vllm-ascend-0.23.0"
PAIRED = {"driver": "25.5.2", "firmware": "7.8.0.6.201", "firmware_range": ["7.0.0–7.9.99"]}
WHOLE = {**PAIRED, "cann": ["9.1.0"], "ops": ["9.1.0"], "nnal": ["9.1.0"], "packages": PACKAGES_0_23}


def server(name, family="A2", simulated=False, **more):
    return Server.objects.create(name=name, family=CHIPS[family][0], simulated=simulated, facts=facts(family, **more))


def heard(row, **reading):
    value = now(row.pk, row.name, seen=datetime.now(UTC).timestamp(), npus=[npu()], **reading)
    redis_client().hset(FLEET_NOW, str(row.pk), json.dumps(value))


@pytest.fixture
def signed_in(client):
    def sign_in(role):
        user = User.objects.filter(username=role).first() or User.objects.create_user(role, role=role)
        client.force_login(user, "django.contrib.auth.backends.ModelBackend")
        client.cookies["django_language"] = "en"
        return client

    return sign_in


@pytest.fixture
def rest(client):
    """GET of the API as a viewer: (status, body)."""
    _row, token = ApiToken.make(User.objects.create_user("bot", role="viewer"), "viewer")

    def get(path, method="get", **more):
        headers = {"Authorization": f"Bearer {token}", "Accept-Language": "en"}
        answer = getattr(client, method)(f"/api/v1{path}", headers=headers, **more)
        return answer.status_code, answer.json()

    return get


@pytest.fixture
def fleet():
    """One server for each verdict about the default stack."""
    server("kp-match", **WHOLE)
    server("kp-reach", **PAIRED)
    server("kp-old", "A1")
    Server.objects.create(name="kp-new")


def test_the_catalogue_shows_every_stack_and_counts_servers(signed_in, fleet):
    page = signed_in("viewer").get("/stacks/").content.decode()
    assert page.count('scope="row"') == 41
    for word in ("matches", "reachable", "cannot", "unknown"):
        assert f'/stacks/{DEFAULT}/?verdict={word}"' in page
    assert 'href="/stacks/" aria-current="page"' in page  # the rail
    assert "not told" in page and "No server has a wished stack yet" in page


def test_the_catalogue_is_filtered_by_state_and_chip(signed_in):
    viewer = signed_in("viewer")
    assert viewer.get("/stacks/?state=stable&family=A5").content.decode().count('scope="row"') == 2
    for state in [*STATES, "<b>", "x" * 500]:
        assert viewer.get("/stacks/", {"state": state, "family": state}).status_code == 200


def test_a_stack_says_what_it_is_to_each_server(signed_in, fleet):
    page = signed_in("viewer").get(f"/stacks/{DEFAULT}/").content.decode()
    assert "does not support 910A" in page and "has not told of this server yet" in page
    assert "v0.23.0-a3-openeuler" in page and "≥ 25.2.X" in page
    assert "Wish vllm-ascend" not in page  # a viewer may not
    only = signed_in("viewer").get(f"/stacks/{DEFAULT}/?verdict=cannot").content.decode()
    assert "kp-old" in only and "kp-reach" not in only


def test_the_consoles_own_machine_is_the_first_and_marked(signed_in, fleet):
    Server.objects.create(name="zz-own", is_local=True, facts=facts("A2", pci=[], arch="x86_64"))
    page = signed_in("operator").get("/stacks/cpu-0.32.0/").content.decode()
    assert page.count(">this machine<") == 1 and 0 < page.index("zz-own") < page.index(">this machine<")
    assert page.index(">this machine<") < page.index("kp-reach") and ">Images<" not in page
    assert ">Images<" in signed_in("viewer").get(f"/stacks/{DEFAULT}/").content.decode()


@pytest.mark.parametrize("name", ["nothing", "a" * 300, "%3Cb%3E", "wish"])
def test_a_stack_that_is_none_is_answered_in_words(signed_in, name):
    for path in (f"/stacks/{name}/", f"/stacks/{name}/plan/kp-1/"):
        answer = signed_in("viewer").get(path)
        assert answer.status_code == 404 and "There is no stack" in answer.content.decode()


@pytest.mark.parametrize("query", ["?page=x", "?page=99999", "?page=-1", "?verdict=<b>", "?page=²"])
def test_odd_addresses_show_the_page_all_the_same(signed_in, fleet, query):
    assert signed_in("viewer").get(f"/stacks/{DEFAULT}/{query}").status_code == 200


def test_the_plan_shows_commands_evidence_and_what_it_waits_for(signed_in):
    row = server("kp-1", "A3", cann=["9.1.0"])
    Npu.objects.create(server=row, device_index=0, npu_id=0, chip_id=0, bus_id="0000:9D:00.0")
    heard(row, processes=[process(pid=4242, user="zhangwei", name="python")])
    page = signed_in("viewer").get(f"/stacks/{DEFAULT}/plan/kp-1/").content.decode()
    assert "Atlas-A3-hdk-npu-driver_26.0.RC1_linux-aarch64.run --nox11 --full --quiet --install-for-all" in page
    assert "ascend_toolkit_install.info</code> · version=9.1.0" in page
    assert "PID 4242 (zhangwei) python" in page and "npu:0000:9D:00.0" in page
    assert "https://pypi.org/simple" in page and "/api/v1/servers/kp-1/stack-plan?stack=" in page


def test_the_plan_of_a_server_that_is_not_heard_waits(signed_in):
    server("kp-1")
    assert (
        "Who holds its NPUs is not known" in signed_in("viewer").get(f"/stacks/{DEFAULT}/plan/kp-1/").content.decode()
    )


def test_choices_change_the_plan_and_bad_ones_are_named(signed_in):
    server("kp-1", **PAIRED)
    viewer = signed_in("viewer")
    page = viewer.get(f"/stacks/{DEFAULT}/plan/kp-1/?route=container&registry=hub.example/ascend").content.decode()
    assert "hub.example/ascend/vllm-ascend:v0.23.0-openeuler" in page and "venv --clear" not in page
    page = viewer.get(f"/stacks/{DEFAULT}/plan/kp-1/?route=venv&smoke_model=/data/tiny").content.decode()
    assert "answer one prompt with /data/tiny" in page and 'name="smoke_model" value="/data/tiny"' in page
    bad = viewer.get(f"/stacks/{DEFAULT}/plan/kp-1/", {"driver": '"><script>', "route": "x"})
    assert bad.status_code == 422
    text = bad.content.decode()
    assert "Driver version (driver): it is a version" in text and "<script>" not in text.split("<main")[1]


def test_the_choices_of_a_plan_are_words_and_those_of_npus_stand_on_plans_for_npus_alone(signed_in):
    server("kp-1", **PAIRED)
    viewer = signed_in("viewer")
    page = viewer.get(f"/stacks/{DEFAULT}/plan/kp-1/?route=container&cann=shared").content.decode()
    assert '<option value="container" selected>a container</option>' in page
    assert '<option value="wheels">its wheel, without its torch</option>' in page
    assert not re.findall(r"<option[^>]*>(?:auto|venv|own|shared|empty|wheels|by_hand)<", page)
    of_npus = {"route", "driver", "firmware", "restart", "window", "cann", "layering", "registry", "image_archive"}
    always = {"wheelhouse", "index", "extra_index", "smoke_model"}
    assert asked_for(page) == of_npus | always
    assert asked_for(viewer.get("/stacks/cpu-0.32.0/plan/kp-1/").content.decode()) == always


def asked_for(page):
    """Names of the fields of the choices."""
    form = page.partition('aria-labelledby="choices-title"')[2].partition("</form>")[0]
    return set(re.findall(r'<(?:select|input)[^>]* name="(\w+)"', form))


def test_the_cpu_stack_asks_for_nothing_that_only_npus_have(signed_in):
    server("kp-1", **PAIRED)
    asked = ["route", "driver", "firmware", "restart", "window", "cann", "layering", "registry", "image_archive"]
    for stack, there in (("cpu-0.32.0", False), (DEFAULT, True)):
        page = signed_in("viewer").get(f"/stacks/{stack}/plan/kp-1/").content.decode()
        assert [f'name="{name}"' in page for name in asked] == [there] * len(asked), stack
        assert ("a process is on the NPU" in page) is there
        assert all(f'name="{name}"' in page for name in ("wheelhouse", "index", "extra_index", "smoke_model"))
        heads = [part.partition("</h2>")[0] for part in page.split("<h2>")]
        assert ("CANN" in heads) is there


def test_text_of_servers_is_escaped(signed_in):
    server("kp-1", driver="<b>1</b>", os="<i>x")
    for path in (f"/stacks/{DEFAULT}/", f"/stacks/{DEFAULT}/plan/kp-1/"):
        page = signed_in("viewer").get(path).content.decode()
        assert "<b>1</b>" not in page and "<i>x" not in page


def test_a_wish_is_noted_for_several_servers_and_shown_as_drift(signed_in, fleet):
    operator = signed_in("operator")
    asked = {"server": ["kp-match", "kp-reach", "kp-old"], "stack": DEFAULT, "next": f"/stacks/{DEFAULT}/"}
    answer = operator.post("/stacks/wish", asked, follow=True)
    assert "3 servers are to have vllm-ascend-0.23.0." in answer.content.decode()
    assert [one.state for one in stacks.drift(stacks.rows())] == ["blocked", "drift", "in_line"]
    page = operator.get("/stacks/").content.decode()
    assert (
        "as wished 1" in page and "drifted 1" in page and "cannot be reached 1" in page and "1 without a wish" in page
    )
    verbs = [entry.additional_data for entry in LogEntry.objects.filter(additional_data__verb="server.stack_wished")]
    assert len(verbs) == 3 and verbs[0]["after"] == DEFAULT
    again = operator.post("/stacks/wish", asked, follow=True).content.decode()
    assert "Nothing to change" in again
    assert LogEntry.objects.filter(additional_data__verb="server.stack_wished").count() == 3
    drift = stacks.catalogue_json(stacks.rows())["drift"]
    assert [(one["server"], one["state"]) for one in drift] == [
        ("kp-old", "blocked"), ("kp-reach", "drift"), ("kp-match", "in_line"),
    ]  # fmt: skip
    assert "910A" in drift[0]["because"][0]["en"] and "Install CANN toolkit 9.1.0" in str(drift[1]["changes"])
    operator.post("/stacks/wish", {"server": "kp-old", "stack": ""})
    assert Server.objects.get(name="kp-old").wished_stack == ""


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"stack": DEFAULT}, "No server was chosen"),
        ({"stack": "nothing", "server": "kp-old"}, "There is no stack"),
        ({"stack": DEFAULT, "server": ["kp-old", "nobody"]}, "Nothing was changed"),
    ],
)
def test_a_wish_that_cannot_be_is_refused_in_words(signed_in, fleet, given, said):
    answer = signed_in("operator").post("/stacks/wish", {**given, "next": "https://elsewhere.example/"}, follow=True)
    assert said in answer.content.decode() and answer.redirect_chain[-1][0] == "/stacks/"
    assert not Server.objects.exclude(wished_stack="").exists()


def test_a_wish_for_too_many_is_refused(fleet):
    operator = User.objects.create_user("op", role="operator")
    with pytest.raises(Invalid):
        stacks.wish([f"kp-{n}" for n in range(stacks.MOST_WISHED + 1)], DEFAULT, by=operator)


def test_a_viewer_wishes_nothing(signed_in, fleet):
    signed_in("viewer").post("/stacks/wish", {"server": "kp-old", "stack": DEFAULT})
    assert not Server.objects.exclude(wished_stack="").exists()
    assert signed_in("viewer").get("/stacks/wish").status_code == 405


def test_a_wish_for_a_stack_that_is_gone_is_said(signed_in):
    Server.objects.create(name="kp-1", wished_stack="house-9")
    page = signed_in("viewer").get("/stacks/").content.decode()
    assert "stack is gone" in page and "house-9" in page and "/stacks/house-9/" not in page


def test_the_page_of_a_server_names_its_stack(signed_in, fleet):
    viewer = signed_in("viewer")
    assert f'href="/stacks/{DEFAULT}/"' in viewer.get("/servers/kp-match/").content.decode()
    assert "/stacks/vllm" not in viewer.get("/servers/kp-old/").content.decode()
    Server.objects.update(wished_stack=DEFAULT)
    page = viewer.get("/servers/kp-reach/").content.decode()
    assert f'href="/stacks/{DEFAULT}/plan/kp-reach/"' in page and "drifted" in page
    Server.objects.update(wished_stack="<b>gone")
    assert "&lt;b&gt;gone" in viewer.get("/servers/kp-reach/").content.decode()


def test_nobody_holds_an_npu_of_a_simulated_driver_that_is_half_installed(signed_in):
    error = {"code": -8005, "meaning": "dcmi-init", "text": "dcmi module initialize failed"}
    for name, simulated in (("kp-half", True), ("kp-real", False)):
        row = server(name, simulated=simulated, driver="26.0.rc1", driver_whole=False, firmware="9.0.0.0.205")
        heard(row, error=error)
        page = signed_in("operator").get(f"/stacks/{DEFAULT}/plan/{name}/?firmware=9.0.0.0.205").content.decode()
        assert "Upgrade the driver to 26.0.rc1" in page
        assert ("Who holds its NPUs is not known" in page) is not simulated


# Of the simulated servers by number: verdict on the default stack, and what happens to the host layer.
DEMO = {1: "none", 2: "none", 3: "cannot", 5: "cannot", 6: "none", 11: "none", 12: "cannot", 13: "upgrade", 17: "none"}


@pytest.mark.parametrize(("number", "expected"), DEMO.items())
def test_the_demo_fleet_gets_plans_of_its_families(number, expected):
    member = demo_fleet.server(number - 1)
    system, has = systems.of(member), member.stack
    told = {
        "arch": "aarch64",
        "kernel": system.kernel,
        "os": system.name,
        "glibc": system.glibc,
        "python": "3.11.6",
        "driver": has.driver,
        "firmware": has.firmware,
        "firmware_range": [has.accepts.strip("[]").replace(",", "–")],
        "cann": has.cann,
        "containers": ["docker"] if system.docker else [],
    }
    row = Server(name=member.name, family=member.spec.chip, facts=told)
    made = stacks.plan.make(stacks.row_of(row).has, stacks.find(DEFAULT), stacks.catalogue())
    assert ("cannot" if made.refusals else made.mode) == expected


def test_a_site_file_is_read_while_the_console_runs_and_its_mistakes_are_named(signed_in, settings, tmp_path):
    settings.STACKS_FILE = tmp_path / "stacks.json"
    viewer = signed_in("viewer")
    assert "house-1" not in viewer.get("/stacks/").content.decode()
    settings.STACKS_FILE.write_text('[{"base": "vllm-ascend-0.23.0", "name": "house-1"}]')
    assert "house-1" in viewer.get("/stacks/").content.decode()
    settings.STACKS_FILE.write_text('[{"base": "vllm-ascend-0.23.0", "name": "house-1", "state": "<b>"}]')
    page = viewer.get("/stacks/").content.decode()
    assert "stacks.json #1 (house-1), field state" in page and "The built-in rows go on" in page
    assert "/stacks/house-1/" not in page and f"/stacks/{DEFAULT}/" in page


def test_rest_tells_the_catalogue_a_stack_and_a_plan(rest, fleet):
    status, body = rest("/stacks")
    assert status == 200 and body["default"] == DEFAULT and len(body["stacks"]) == 41
    row = next(stack for stack in body["stacks"] if stack["name"] == DEFAULT)
    assert row["servers"] == {"matches": 1, "reachable": 1, "cannot": 1, "unknown": 1}
    assert row["torch_npu"] == "2.10.0.post4" and row["mooncake"] == "0.3.11.post1"
    status, body = rest(f"/stacks/{DEFAULT}")
    assert {one["server"]: one["verdict"] for one in body["verdicts"]} == {
        "kp-match": "matches", "kp-reach": "reachable", "kp-old": "cannot", "kp-new": "unknown",
    }  # fmt: skip
    status, body = rest(f"/servers/kp-reach/stack-plan?stack={DEFAULT}&wheelhouse=/opt/wheels")
    assert status == 200 and body["addresses"] == [] and body["host_layer"] == "none"
    assert body["steps"][0]["evidence"]["file"] == "/usr/local/Ascend/driver/version.info"
    status, body = rest(f"/servers/kp-reach/stack-plan?stack={DEFAULT}&smoke_model=/data/tiny")
    assert next(one["argv"][-1] for one in body["steps"] if one["key"] == "one_prompt") == "/data/tiny"


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/stacks/nothing", 404, "There is no stack"),
        (f"/servers/nobody/stack-plan?stack={DEFAULT}", 404, "There is no server"),
        ("/servers/kp-old/stack-plan?stack=nothing", 404, "There is no stack"),
        ("/servers/kp-old/stack-plan", 422, "stack"),
        (f"/servers/kp-old/stack-plan?stack={DEFAULT}&route=x", 422, "route"),
        (f"/servers/kp-old/stack-plan?stack={DEFAULT}&smoke_model=../x", 422, "smoke_model"),
        (f"/servers/kp-old/stack-plan?stack={DEFAULT}&driver={'9' * 41}", 422, "driver"),
    ],
)
def test_rest_refuses_in_words(rest, fleet, path, status, said):
    found, body = rest(path)
    assert found == status and said in json.dumps(body["error"]) and body["error"]["do"]


def test_rest_notes_a_wish_for_operators_only(rest, client, fleet):
    wish = {"data": json.dumps({"stack": DEFAULT, "servers": ["kp-old"]}), "content_type": "application/json"}
    assert rest("/stack-wishes", "post", **wish)[0] == 403
    _row, token = ApiToken.make(User.objects.create_user("op", role="operator"), "operator")
    answer = client.post("/api/v1/stack-wishes", headers={"Authorization": f"Bearer {token}"}, **wish)
    assert answer.json() == {"stack": DEFAULT, "changed": ["kp-old"]}


def run(*words):
    out = StringIO()
    call_command("stacks", *words, stdout=out, stderr=out)
    return out.getvalue()


def test_the_command_line_tells_the_same(fleet):
    assert json.loads(run("--json"))["default"] == DEFAULT
    assert f"{DEFAULT:<26}stable" in run()
    assert "kp-old" in run("--server", "kp-old", "--json")
    assert f"{DEFAULT:<26}matches" in run("--server", "kp-match")
    assert "[satisfied]" in run("--server", "kp-match", "--stack", DEFAULT)
    assert json.loads(run("--server", "kp-reach", "--stack", DEFAULT, "--json"))["route"] == "venv"


@pytest.mark.parametrize(
    "words", [["--server", "nobody"], ["--server", "kp-old", "--stack", "x"], ["--stack", DEFAULT]]
)
def test_the_command_line_refuses_in_words(fleet, words):
    with pytest.raises(CommandError):
        run(*words)


def test_the_palette_finds_the_page(signed_in):
    found = signed_in("viewer").get("/palette.json?q=ruanjian").json()
    assert "/stacks/" in json.dumps(found)


def test_a_thousand_servers_are_judged_with_one_query(signed_in):
    viewer = signed_in("viewer")
    kinds = [facts(family, driver=f"25.{minor}.0", firmware="7.8.0.6.201") for family in CHIPS for minor in range(4)]
    Server.objects.bulk_create(
        Server(name=f"kp-{n}", family=CHIPS[list(CHIPS)[n % 24 // 4]][0], facts=kinds[n % 24], wished_stack=DEFAULT)
        for n in range(1000)
    )
    viewer.get("/stacks/")
    with CaptureQueriesContext(
        connection,
    ) as queries:
        before = time.perf_counter()
        assert viewer.get("/stacks/").status_code == 200
        took = time.perf_counter() - before
    assert len(queries) <= 6 and took < 2.0
    assert viewer.get(f"/stacks/{DEFAULT}/?page=2").content.decode().count('scope="row"') == 200
