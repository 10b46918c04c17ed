import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.urls import reverse

from console.context import TEXTS
from console.models import User
from console.redis import client as redis_client
from console.streams import FLEET_NOW
from deployments.models import Job, Npu, Server
from monitoring.models import Minute
from monitoring.services import page_texts
from tests.answers import whole
from tests.conftest import ROOT
from tests.monitoring.nows import now, npu, process

pytestmark = pytest.mark.django_db
CODE = re.compile(r"""\bt\(\s*(?:\w+ \? )?"((?:[^"\\]|\\.)*)"(?: : "((?:[^"\\]|\\.)*)")?""")


@pytest.fixture
def reader(client, db):
    client.force_login(
        User.objects.create_user("vera", password="a-long-password", role="viewer"),
        "django.contrib.auth.backends.ModelBackend",
    )
    client.cookies["django_language"] = "en"
    return client


@pytest.fixture
def admin(client, db):
    client.force_login(
        User.objects.create_user("ada", password="a-long-password", role="administrator"),
        "django.contrib.auth.backends.ModelBackend",
    )
    client.cookies["django_language"] = "en"
    return client


def told(server, **reading):
    """The server's "now" as ingest leaves it in Redis, heard just now unless `seen` says otherwise."""
    seen = reading.pop("seen", datetime.now(UTC).timestamp())
    value = now(server.pk, server.name, simulated=server.simulated, rack=server.rack, seen=seen, **reading)
    redis_client().hset(FLEET_NOW, str(server.pk), json.dumps(value))


def block(page, name="fleet-data"):
    found = re.search(rf'<script id="{name}" type="application/json">(.*?)</script>', page.content.decode(), re.DOTALL)
    return json.loads(found[1])


def test_a_fleet_of_nobody_says_what_to_do(valkey, reader):
    page = reader.get("/").content.decode()
    assert "No servers yet" in page and "make up" in page and "fleet-data" not in page


def test_real_and_simulated_servers_are_never_added_up(valkey, reader):
    told(Server.objects.create(name="kp-01", rack="A1"), npus=[npu(0), npu(1)])
    told(Server.objects.create(name="demo-1", rack="S1", simulated=True), npus=[npu(i) for i in range(8)])
    page = reader.get("/")
    strips = page.context["strips"]
    assert [(strip.fleet, strip.servers.n, strip.npus) for strip in strips] == [("real", 1, 2), ("simulated", 1, 8)]
    assert "1 simulated server: everything on it is simulated" in page.content.decode()
    assert [server["sim"] for server in block(page)["servers"]] == [False, True]


def test_a_console_with_real_servers_only_has_one_strip_and_no_banner(valkey, reader):
    told(Server.objects.create(name="kp-01"), npus=[npu(0)])
    page = reader.get("/")
    assert len(page.context["strips"]) == 1 and "simulated server" not in page.content.decode()


def test_the_demo_may_go_when_a_second_real_server_has_joined(valkey, admin):
    Server.objects.create(name="console-01", is_local=True)
    Server.objects.create(name="demo-1", simulated=True)
    assert "Real servers have joined" not in admin.get("/").content.decode()
    Server.objects.create(name="kp-01")
    assert "Real servers have joined" in admin.get("/").content.decode()


def test_only_an_administrator_sees_and_may_use_the_button_that_removes_the_demo(valkey, reader):
    Server.objects.create(name="demo-1", simulated=True)
    assert reverse("monitoring:demo-remove") not in reader.get("/").content.decode()
    assert reader.post("/demo/remove").status_code == 403
    assert Server.objects.filter(simulated=True).exists()


def test_an_administrator_removes_the_demo_in_one_click(valkey, admin, settings, tmp_path):
    settings.VAR_DIR = tmp_path
    Server.objects.create(name="kp-01")
    Server.objects.create(name="demo-1", simulated=True)
    page = admin.post("/demo/remove", follow=True)
    told = page.content.decode()
    assert "1 simulated server was removed, with its jobs." in told
    assert f"delete {tmp_path}/demo/removed and start the console again" in told
    assert list(Server.objects.values_list("name", flat=True)) == ["kp-01"]
    assert admin.get("/demo/remove").status_code == 405


def test_the_address_filters_rows_before_any_script_runs(valkey, reader):
    told(Server.objects.create(name="kp-01"), npus=[npu(0, health="Alarm")])
    told(Server.objects.create(name="kp-02"), npus=[npu(0)])
    page = reader.get("/?show=faulty&fleet=real").content.decode()
    rows = dict(
        re.findall(
            r'<tr class="server live" data-id="\d+"( hidden)?>\s*<th[^>]*><a[^>]*href="/servers/([\w-]+)/"', page
        )
    )
    assert {name: bool(hidden) for hidden, name in rows.items()} == {"kp-01": False, "kp-02": True}
    assert 'data-show="faulty" aria-current="true"' in page


def test_an_unknown_value_in_the_address_is_answered_in_words(valkey, reader):
    Server.objects.create(name="kp-01")
    page = reader.get("/?metric=<script>alert(1)</script>").content.decode()
    assert "which this page does not know" in page and "<script>alert(1)" not in page


def test_text_from_servers_is_escaped_in_html_and_in_the_json_block(valkey, reader):
    server = Server.objects.create(name="kp-01")
    told(server, npus=[npu(0, occ="foreign")], processes=[process(name="</script><b>x", user="<u>")])
    for address in ("/", "/?view=table", "/servers/kp-01/"):
        page = reader.get(address).content.decode()
        assert "<b>x" not in page and "<u>" not in page and "&lt;b&gt;x" in page


def test_a_silent_server_shows_no_present_numbers(valkey, reader):
    told(Server.objects.create(name="kp-01"), npus=[npu(0, aicore=77)], seen=datetime.now(UTC).timestamp() - 30)
    page = reader.get("/?view=table").content.decode()
    assert 'class="server silent late"' in page and "silent for 30 s" in page
    assert re.search(r'data-field="aicore"[^>]*>—<', page)


def test_the_number_of_npus_of_a_server_never_heard_is_unknown_not_zero(valkey, reader):
    Server.objects.create(name="kp-01")
    told(Server.objects.create(name="kp-02"), npus=[])
    page = reader.get("/servers/").content.decode()
    assert re.findall(r'data-label="NPU">(.*?)<', page) == ["—", "0"]


def test_more_than_sixty_servers_are_a_wall(valkey, reader):
    Server.objects.bulk_create([Server(name=f"kp-{n}") for n in range(61)])
    assert reader.get("/").context["wall"] is True
    assert reader.get("/?view=table").context["wall"] is False


def test_a_thousand_servers_take_no_more_queries_than_one(valkey, reader, django_assert_max_num_queries):
    Server.objects.bulk_create([Server(name=f"kp-{n}", rack=f"R{n % 20}") for n in range(1000)])
    for address in ("/", "/fleet.json", "/servers/"):
        with django_assert_max_num_queries(7):
            assert reader.get(address).status_code == 200


def test_some_servers_can_be_read_again(valkey, reader):
    first, second = (Server.objects.create(name=name) for name in ("kp-01", "kp-02"))
    told(first, npus=[npu(0)])
    answer = reader.get(f"/fleet.json?ids={second.pk}").json()
    assert [server["name"] for server in answer["servers"]] == ["kp-02"] and "gen" not in answer
    assert answer["servers"][0]["first"] == 1


@pytest.mark.parametrize("ids", ["", "x", "1,,2", "-1", "1" * 30, ",".join("1" * 201)])
def test_ids_that_are_none_are_refused_in_words(valkey, reader, ids):
    answer = reader.get("/fleet.json", {"ids": ids}, headers={"Accept": "application/json"})
    assert answer.status_code == 422 and answer.json()["error"]["code"] == "bad_ids"


def test_the_csv_holds_what_the_filters_keep(valkey, reader):
    told(Server.objects.create(name="kp-01"), npus=[npu(0), npu(1)])
    told(Server.objects.create(name="demo-1", simulated=True), npus=[npu(0)])
    text = whole(reader.get("/fleet.csv?fleet=real")).decode()
    lines = text.splitlines()
    assert lines[0].startswith("\ufeffserver,state,simulated") and len(lines) == 3
    assert lines[1].startswith("kp-01,live,0,")


def test_without_redis_the_pages_show_what_the_database_knows(reader, settings):
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    Server.objects.create(name="kp-01", last_seen_at=datetime.now(UTC), family="910B3")
    assert reader.get("/").status_code == 200
    page = reader.get("/servers/kp-01/")
    assert page.status_code == 200 and page.context["now"]["npus"] == []


def test_a_server_page_shows_tiles_processes_jobs_and_links(valkey, reader, django_assert_max_num_queries):
    topology = {"npus": ["NPU0", "NPU1"], "matrix": [["X", "HCCS"], ["HCCS", "X"]]}
    server = Server.objects.create(
        name="kp-01", rack="A1", facts={"os": "openEuler 24.03", "topology": topology}, clock_offset_s=0.5
    )
    job = Job.objects.create(server=server, kind="check", not_after=datetime.now(UTC))
    Minute.objects.create(server=server, at=datetime.now(UTC), data={"n": 60, "npus": {"0.0": [50, 1, 1, 1]}})
    told(server, npus=[npu(0, occ="ours"), npu(1)], processes=[process(0, attempt=f"a{job.pk}-1-00000000")])
    with django_assert_max_num_queries(11):
        page = reader.get("/servers/kp-01/")
    text = page.content.decode()
    assert text.count('class="npu-tile"') == 2 and f'href="/jobs/{job.pk}/"' in text
    assert "HCCS" in text and "openEuler 24.03" in text and "+500 ms" in text
    assert block(page, "server-data")["sparks"]["0.0"][0][1] == 50


def test_an_unreadable_reading_is_shown_as_it_is_with_its_meaning(valkey, reader):
    error = {
        "code": -8005, "meaning": "dcmi-init", "text": "dcmi <init> failed",
        "what": ["驱动没有应答", "The driver does not answer."], "do": ["重启驱动", "Reload the driver."],
    }  # fmt: skip
    told(Server.objects.create(name="kp-01"), error=error)
    text = reader.get("/servers/kp-01/").content.decode()
    assert "The driver does not answer." in text and "Reload the driver." in text and "dcmi &lt;init&gt; failed" in text


def test_who_may_only_look_gets_no_buttons(valkey, reader):
    Server.objects.create(name="kp-01")
    assert "Check this server" not in reader.get("/servers/kp-01/").content.decode()


def test_a_server_that_is_not_there_is_answered_in_words(valkey, reader):
    page = reader.get("/servers/kp-99/")
    assert page.status_code == 404 and "kp-99" in page.content.decode()


def test_nobody_reads_the_fleet_without_signing_in(client, db):
    for address in (
        "/",
        "/servers/",
        "/fleet.json",
        "/fleet.csv",
        "/fleet/jobs.json",
        "/palette.json",
        "/servers/kp-01/now.json",
    ):
        assert client.get(address).status_code == 302


def test_the_palette_finds_servers_npus_jobs_and_pages(valkey, reader):
    server = Server.objects.create(name="kp-01", family="910B3")
    Npu.objects.create(server=server, device_index=3, npu_id=3, chip_id=0, bus_id="0000:81:00.0")
    job = Job.objects.create(server=server, kind="check", ticket="OPS-77", not_after=datetime.now(UTC))

    def found(typed):
        return [entry["url"] for entry in reader.get("/palette.json", {"q": typed}).json()["results"]]

    assert found("kp-0") == ["/servers/kp-01/"]
    assert found("81:00") == ["/servers/kp-01/#npu-3"]
    assert found(f"#{job.pk}") == found("OPS-77") == [f"/jobs/{job.pk}/"]
    assert found("jiqun") == ["/"]
    assert found("%") == []


def test_the_palette_marks_what_is_simulated(valkey, reader):
    server = Server.objects.create(name="kp-sim", simulated=True)
    Npu.objects.create(server=server, device_index=0, npu_id=0, chip_id=0, bus_id="0000:91:00.0")
    Job.objects.create(server=server, kind="check", ticket="OPS-91", not_after=datetime.now(UTC))
    for typed in ("kp-sim", "91:00", "OPS-91"):
        (entry,) = reader.get("/palette.json", {"q": typed}, headers={"Accept-Language": "en"}).json()["results"]
        assert "simulated" in str(entry), typed


def test_counts_of_jobs_are_told_apart_too(valkey, reader):
    for simulated in (True, False):
        server = Server.objects.create(name=f"kp-{simulated}".lower(), simulated=simulated)
        Job.objects.create(server=server, kind="check", state="running", not_after=datetime.now(UTC))
    assert reader.get("/fleet/jobs.json").json() == {
        "real": {"running": 1, "queued": 0},
        "simulated": {"running": 1, "queued": 0},
    }


def test_no_page_has_inline_script_or_style(valkey, admin):
    told(Server.objects.create(name="kp-01"), npus=[npu(0)])
    for address in ("/", "/?view=table", "/servers/", "/servers/kp-01/"):
        page = admin.get(address)
        text = page.content.decode()
        assert "'unsafe-inline'" not in page.headers["Content-Security-Policy"]
        assert " style=" not in text and "<style" not in text and " onclick=" not in text
        assert all("src=" in tag or "application/json" in tag for tag in re.findall(r"<script[^>]*>", text))


@pytest.mark.parametrize(
    ("files", "keys"),
    [
        (["fleet/*.js", "topics/fleet.js", "heatmap.js"], page_texts.FLEET),
        (["server/*.js", "topics/server.js"], page_texts.SERVER),
        (["frame.js", "palette.js", "texts.js"], []),
    ],
)
def test_every_text_of_a_script_is_in_the_readers_language(files, keys):
    for pattern in files:
        for path in sorted(Path(ROOT, "static/js").glob(pattern)):
            said = {text for match in CODE.findall(path.read_text()) for text in match if text}
            assert said <= {*keys, *TEXTS}, path.name
