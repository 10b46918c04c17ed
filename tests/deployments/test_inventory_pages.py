"""Pages and REST of the inventory: as each role, allowed and refused; bad input gets a sentence."""

import json
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.utils import timezone

from console.models import ApiToken, User
from deployments.models import Job, Npu, SavedFilter, Server, ServerChange
from deployments.services import clones, filters, history, inventory, servers
from tests.answers import whole

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]
BUS = "0000:C1:00.0"


@pytest.fixture(autouse=True)
def english(settings, tmp_path):
    settings.LANGUAGE_CODE = "en"
    settings.VAR_DIR = tmp_path


@pytest.fixture
def administrator(db):
    return User.objects.create_user("root", password="only-for-this-test", role="administrator")


@pytest.fixture
def kp(server):
    server.facts = {
        "os": "openEuler", "driver": "25.5.0", "firmware": "7.3", "paired": False, "firmware_range": ["7.5–7.9"],
        "addresses": [{"interface": "eth0", "address": "192.0.2.7", "default": True, "local": False}],
        "pythons": [{"path": "/usr/bin/python3.11", "version": "3.11", "packages": {"torch_npu": "2.9.0"}}],
        "pci": [{"bus_id": BUS, "device": "d802", "family": "910B"}], "unknown": {"cann": ["没有找到", "not found"]},
    }  # fmt: skip
    server.save()
    Npu.objects.create(server=server, device_index=0, npu_id=0, chip_id=0, bus_id=BUS)
    return server


def check_page(client, path, status=200, **sent):
    answer = client.post(path, sent) if sent else client.get(path)
    assert answer.status_code == status, answer.content.decode()[:2000]
    return answer.content.decode()


@pytest.mark.parametrize("before", ["1" * 19 + "x", "9" * 5000, "²"])
def test_a_page_of_the_history_that_there_is_not_is_the_first(client, viewer, kp, before):
    client.force_login(viewer)
    assert client.get(f"/servers/kp-01/history?before={before}").status_code == 200


GETS = ("edit", "history", "drain", f"cordon?bus_id={BUS}", "maintenance", "decommission", "facts")


def test_every_page_is_for_those_who_may(client, kp, viewer, operator, administrator):
    allowed = {viewer: {"history", "facts"}, operator: set(GETS) - {"decommission"}, administrator: set(GETS)}
    for user, may in allowed.items():
        client.force_login(user)
        for name in GETS:
            check_page(client, f"/servers/kp-01/{name}", 200 if name in may else 403)
            if name in may:
                check_page(client, f"/servers/nobody/{name}", 404)
        check_page(client, "/servers/edit?server=kp-01", 403 if user == viewer else 200)
        check_page(client, "/servers/gone/")


def test_what_a_viewer_sends_changes_nothing(client, kp, viewer):
    client.force_login(viewer)
    sent = {"reason": "x", "bus_id": BUS, "rack": "B", "site": "x", "sure": "1", "server": "kp-01", "confirm": "kp-01"}
    for path in ("servers/kp-01/edit", "servers/kp-01/drain", "servers/kp-01/cordon", "servers/kp-01/maintenance",
                 "servers/kp-01/decommission", "servers/edit", "changes/00/undo", "servers/kp-01/drain/end",
                 "servers/kp-01/uncordon"):  # fmt: skip
        check_page(client, f"/{path}", 403, **sent)
    assert not ServerChange.objects.exists()


def test_the_form_of_a_server_saves_and_keeps_what_was_typed_wrong(client, kp, operator):
    client.force_login(operator)
    version = inventory.version_of(kp)
    sent = {"version": version, "display_name": "", "site": "bj", "rack": "B1", "labels": "env", "notes": "hello"}
    text = check_page(client, "/servers/kp-01/edit", 422, **sent)
    assert "“env” is no label." in text and 'value="bj"' in text and "hello" in text
    assert "“=prod” is no label." in check_page(client, "/servers/kp-01/edit", 422, **{**sent, "labels": "=prod"})
    sent |= {"labels": "env=prod, team=nlp", "new_address": "192.0.2.99", "role-192.0.2.7": "service"}
    sent["ticket"] = "OPS-1"
    check_page(client, "/servers/kp-01/edit", 302, **sent)
    kp.refresh_from_db()
    assert (kp.site, kp.labels, kp.notes) == ("bj", {"env": "prod", "team": "nlp"}, "hello")
    assert kp.address_roles == {"192.0.2.7": "service", "192.0.2.99": "bmc"}
    text = check_page(client, "/servers/kp-01/edit", 412, **sent)
    assert "was changed by somebody else" in text
    assert "OPS-1" in check_page(client, "/servers/kp-01/history")


def test_a_bulk_edit_is_previewed_done_and_taken_back(client, kp, operator):
    Server.objects.create(name="kp-02", rack="A1", labels={"env": "x"})
    client.force_login(operator)
    assert "No server was chosen" in check_page(client, "/servers/edit")
    assert "Edit 2 servers" in check_page(client, "/servers/edit?find=kp&fleet=both")
    assert "No server is called: nobody." in check_page(client, "/servers/edit?server=kp-01&server=nobody")
    chosen = {"server": ["kp-01", "kp-02"], "add_labels": "env=prod", "site": "bj"}
    text = check_page(client, "/servers/edit", **chosen)
    assert "2 servers would change" in text and "Change 2 servers" in text
    assert Server.objects.filter(site="bj").count() == 0
    answer = client.post("/servers/edit", {**chosen, "sure": "1"})
    text = check_page(client, answer.url)
    assert "Take it back on 2 servers" in text
    assert Server.objects.filter(site="bj").count() == 2
    check_page(client, f"{answer.url}undo", 302, back="kp-02")
    assert [row.labels for row in Server.objects.order_by("name")] == [{}, {"env": "x"}]
    assert "Nothing was chosen" in check_page(client, "/servers/edit", 422, server="kp-01")
    check_page(client, "/changes/ffff/", 404)


def test_the_command_line_says_who_is_gone(kp, capsys):
    Server.objects.create(name="sold", decommissioned_at=timezone.now())
    call_command("servers", "list")
    states = dict(line.split()[:2] for line in capsys.readouterr().out.splitlines())
    assert states["sold"] == "decommissioned" and states["kp-01"] in ("online", "offline")


def test_drain_and_cordon_are_asked_shown_and_ended(client, kp, operator):
    client.force_login(operator)
    assert "No reason was given." in check_page(client, "/servers/kp-01/drain", 422, reason=" ")
    check_page(client, "/servers/kp-01/drain", 302, reason="new <b>fans</b>")
    text = check_page(client, "/servers/kp-01/")
    assert "Drained: no job runs here." in text and "new &lt;b&gt;fans" in text
    check_page(client, "/servers/kp-01/drain/end", 302, x="1")
    check_page(client, "/servers/kp-01/cordon", 302)  # of no NPU: to the page where they are
    assert "has no NPU" in check_page(client, "/servers/kp-01/cordon", 422, bus_id="nonsense", reason="x")
    check_page(client, "/servers/kp-01/cordon", 302, bus_id=BUS, reason="ECC")
    assert Server.objects.get(pk=kp.pk).cordons[BUS]["reason"] == "ECC"
    check_page(client, "/servers/kp-01/uncordon", 302, bus_id=BUS)
    check_page(client, "/servers/kp-01/maintenance", 302, on="1", reason="BIOS")
    assert history.page(kp)[0][0].reason == "BIOS"


def test_decommissioning_step_by_step(client, kp, operator, administrator):
    job = Job.objects.create(server=kp, kind="check", state="running", not_after=timezone.now() + timedelta(days=1))
    client.force_login(administrator)
    text = check_page(client, "/servers/kp-01/decommission")
    assert "1 job under way" in text and "/opt/ascend-console/bin/ascend-console leave" in text
    check_page(client, "/servers/kp-01/decommission", 302, step="drain", reason="sold")
    assert "this page goes on by itself" in check_page(client, "/servers/kp-01/decommission")
    check_page(client, "/servers/kp-01/decommission", 409, confirm="kp-01")
    Job.objects.filter(pk=job.pk).update(state="succeeded")
    assert "not the name" in check_page(client, "/servers/kp-01/decommission", 422, confirm="kp-1")
    check_page(client, "/servers/kp-01/decommission", 302, confirm="kp-01", reason="sold")
    assert "sold" in check_page(client, "/servers/gone/") and "kp-01" not in check_page(client, "/servers/")
    text = check_page(client, "/servers/kp-01/")
    assert "This server was decommissioned." in text and "New job" not in text
    check_page(client, "/servers/kp-01/history")
    client.force_login(operator)
    check_page(client, "/servers/kp-01/return", 403, x="1")


def test_the_page_of_a_quarantined_server_says_what_to_do(client, kp, viewer):
    clones.begin(kp.pk, [("m1", "boot-one", "kp-01"), ("m1", "boot-two", "<i>clone</i>")])
    client.force_login(viewer)
    text = check_page(client, "/servers/kp-01/")
    assert "Two hosts use the identity of kp-01" in text and "boot-two" in text and "&lt;i&gt;clone" in text
    assert "in quarantine" in check_page(client, "/servers/")


def test_facts_say_their_age_and_why_they_are_missing(client, kp, viewer):
    client.force_login(viewer)
    text = check_page(client, "/servers/kp-01/facts")
    for word in ("the driver does not accept this firmware", "not found", "torch-npu 2.9.0", BUS, "management (guess)"):
        assert word in text
    odd = {"pci": 7, "pythons": [1, {"packages": 3}], "unknown": 9, "boot_at": 1e300, "disks": {}}
    for facts in (odd, {}, {"os": {}}):
        Server.objects.filter(pk=kp.pk).update(facts=facts)
        check_page(client, "/servers/kp-01/facts")
        check_page(client, "/servers/kp-01/")


def test_filters_are_saved_shown_and_deleted(client, kp, operator, viewer):
    client.force_login(operator)
    check_page(
        client, "/filters/", 302, name="Prod", query="find=label%3Aenv%3Dprod", shared="1", back="//evil.example/"
    )
    assert client.post("/filters/", {"name": "x", "back": "https://evil.example/"}).url == "/"
    client.force_login(viewer)
    text = check_page(client, "/")
    assert "?find=label%3Aenv%3Dprod" in text and "shared by olga" in text
    row = SavedFilter.objects.get(name="Prod")
    check_page(client, f"/filters/{row.pk}/delete", 302, back="/")
    assert SavedFilter.objects.filter(pk=row.pk).exists()
    client.force_login(operator)
    check_page(client, f"/filters/{row.pk}/delete", 302, back="/")
    assert not SavedFilter.objects.filter(pk=row.pk).exists()


def test_the_fleet_is_found_by_site_label_and_rack(client, kp, operator):
    inventory.edit(kp, {"site": "Bei Jing", "labels": {"env": "prod"}, "rack": "A1"}, by=operator)
    Server.objects.create(name="kp-02", rack="A10", labels={"env": "production"})
    client.force_login(operator)
    for words, n in (("site:bei-jing", 1), ("label:env=prod", 1), ("label:env", 2), ("rack:a1", 1), ("kp", 2)):
        text = client.get("/fleet.csv", {"find": words})
        assert whole(text).decode().count("kp-0") == n, words
    assert "Site Bei Jing" in check_page(client, "/servers/?group=site")


# ---------- REST ----------


@pytest.fixture
def api(client, operator, viewer, administrator):
    made = {user.role: ApiToken.make(user, user.role)[1] for user in (operator, viewer, administrator)}

    def call(method, path, body=None, *, role="operator", status=200, **headers):
        answer = client.generic(
            method, f"/api/v1{path}", json.dumps(body) if body is not None else "", content_type="application/json",
            HTTP_AUTHORIZATION=f"Bearer {made[role]}", **headers,
        )  # fmt: skip
        assert answer.status_code == status, answer.content
        call.headers = answer.headers
        return answer.json()

    return call


def test_a_patch_needs_the_state_it_changes(api, kp):
    api("GET", "/servers/kp-01")
    etag = api.headers["ETag"]
    refused = api("PATCH", "/servers/kp-01", {"site": "bj"}, status=428)
    assert refused["error"]["code"] == "if_match_needed"
    changed = api("PATCH", "/servers/kp-01", {"site": "bj", "labels": {"a": "b"}}, HTTP_IF_MATCH=etag)
    assert (changed["site"], changed["labels"]) == ("bj", {"a": "b"}) and api.headers["ETag"] != etag
    api("PATCH", "/servers/kp-01", {"site": "sh"}, HTTP_IF_MATCH=etag, status=412)
    api("PATCH", "/servers/kp-01", {"site": "sh"}, HTTP_IF_MATCH="*")
    api("PATCH", "/servers/kp-01", {"name": "x"}, HTTP_IF_MATCH="*", status=422)
    api("PATCH", "/servers/kp-01", {"labels": {"a": ""}}, HTTP_IF_MATCH="*", status=422)
    api("PATCH", "/servers/kp-01", {"site": "x"}, HTTP_IF_MATCH="*", role="viewer", status=403)
    api("PATCH", "/servers/nobody", {}, HTTP_IF_MATCH="*", status=404)
    last = api("GET", "/servers/kp-01/history")["changes"][0]
    assert [last[name] for name in ("field", "before", "after", "by")] == ["site", "bj", "sh", "olga"]
    assert api("GET", "/servers?find=label:a=b")["servers"][0]["labels"] == {"a": "b"}


def test_switches_bulk_edits_and_filters_over_rest(api, kp):
    body = {"names": ["kp-01"], "add_labels": {"env": "prod"}, "dry_run": True}
    assert api("POST", "/servers/edit", body)["changed"][0]["changes"]["labels"] == [{}, {"env": "prod"}]
    made = api("POST", "/servers/edit", {**body, "dry_run": False})
    assert api("POST", f"/changes/{made['change_set']}/undo", {})["undone"] == 1
    api("POST", "/servers/edit", {"add_labels": {"env": "prod"}}, status=404)
    api("POST", "/servers/edit", {**body, "dry_run": False}, role="viewer", status=403)
    assert api("POST", "/servers/kp-01/drain", {"drain": True, "reason": "x"})["drain"] == "drained"
    assert api("POST", "/servers/kp-01/drain", {"drain": False})["drain"] == "off"
    told = api("POST", "/servers/kp-01/cordon", {"bus_id": BUS, "cordon": True, "reason": "ECC"})
    assert told["cordons"][BUS]["reason"] == "ECC"
    api("POST", "/servers/kp-01/cordon", {"bus_id": BUS, "cordon": False})
    api("POST", "/servers/kp-01/drain", {"drain": True}, status=422)
    api("POST", "/servers/kp-01/decommission", {"confirm": "kp-01"}, status=403)
    kept = api("POST", "/filters", {"name": "mine", "query": "find=x"}, status=201)
    assert [row["name"] for row in api("GET", "/filters")["filters"]] == ["mine"]
    api("DELETE", f"/filters/{kept['id']}", role="viewer", status=404)
    api("DELETE", f"/filters/{kept['id']}")


def test_decommissioning_over_rest(api, kp):
    api("POST", "/servers/kp-01/decommission", {"confirm": "no"}, role="administrator", status=422)
    told = api("POST", "/servers/kp-01/decommission", {"confirm": "kp-01"}, role="administrator", status=202)
    assert told["state"] == "decommissioned"
    assert [row["name"] for row in api("GET", "/servers/gone")["servers"]] == ["kp-01"]
    assert api("GET", "/servers")["servers"] == []
    assert api("GET", "/servers/kp-01")["decommissioned_at"]
    assert servers.drain_word(Server.objects.get()) == "off" and not filters.visible_to(User.objects.first())
