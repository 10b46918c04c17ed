"""Joining, on the console's side: who may, what is refused, what is handed out, once."""

import html
import io
import json
import logging
import re
import subprocess
import time
from datetime import timedelta

import pytest
import redis
from django.utils import timezone

from console import streams
from console.errors import Conflict, Invalid, NotAllowed
from console.models import User
from deployments import join_texts
from deployments.agent import signing
from deployments.models import Enrolment, Job, Server
from deployments.services import join, join_script
from tests.conftest import ROOT


@pytest.fixture
def administrator(db):
    return User.objects.create_user("root", password="only-for-this-test", role="administrator")


@pytest.fixture
def page(client, administrator):
    client.force_login(administrator)
    return client


@pytest.fixture(autouse=True)
def var(settings, tmp_path):
    settings.VAR_DIR = tmp_path
    return tmp_path


def made(administrator, name="kp-01"):
    enrolment = join.make(name, by=administrator)
    enrolment.script_digest = join_script.digest(join_script.script(enrolment))
    enrolment.save()
    return enrolment


def test_only_an_administrator_makes_commands(operator, client):
    with pytest.raises(NotAllowed):
        join.make("kp-01", by=operator)
    client.force_login(operator)
    assert client.get("/servers/join/").status_code == 403
    assert client.post("/servers/join/", {"name": "kp-01"}).status_code == 403
    assert not Server.objects.exists()


def test_a_name_left_empty_is_told_as_such(page):
    text = page.post("/servers/join/", {"name": " "}, headers={"Accept-Language": "en"}).content.decode()
    assert "No name was given." in text and "“”" not in text


@pytest.mark.parametrize("name", ["", "-a", "a b", "$(reboot)", "'; rm -rf /", "a\nb", "x" * 64, "中文", "../etc"])
def test_a_name_that_cannot_be_one_is_refused(administrator, name):
    with pytest.raises(Invalid):
        join.make(name, by=administrator)
    assert not Server.objects.exists()


def test_names_of_our_own_are_taken(administrator):
    Server.objects.create(name="demo-1", simulated=True)
    Server.objects.create(name="here", is_local=True)
    for name in ("demo-1", "here", "join"):
        with pytest.raises(Conflict):
            join.make(name, by=administrator)


def test_the_page_shows_the_command_and_its_refusals(page):
    answer = page.post("/servers/join/", {"name": "kp-01", "labels": "env"})
    assert answer.status_code == 422
    assert "env" in answer.content.decode()
    answer = page.post("/servers/join/", {"name": "kp-01", "rack": "A1", "labels": "env=prod, team=nlp"}, follow=True)
    enrolment = Enrolment.objects.get()
    assert enrolment.token in answer.content.decode()
    assert enrolment.server.labels == {"env": "prod", "team": "nlp"}
    assert enrolment.token not in json.dumps([*Enrolment.objects.values("digest", "salt", "script_digest")])


@pytest.mark.parametrize(
    "said", [{"labels": "<b>=1"}, {"labels": "demo_holder=x"}, {"rack": "A1\u202e"}, {"labels": "site=\x1b[2J"}]
)
def test_what_no_editor_takes_is_not_taken_at_joining(page, said):
    """Else nobody could change anything of that server before it was mended."""
    assert page.post("/servers/join/", {"name": "kp-01", **said}).status_code == 422
    assert not Server.objects.exists()


def test_every_value_in_the_script_is_quoted(administrator, settings, tmp_path):
    enrolment = join.make("kp-01", by=administrator)
    settings.PUBLIC_URL = "http://localhost'$(touch owned)"  # settings would refuse it; the quoting holds all the same
    text = join_script.script(enrolment)
    head = text.split("\nset -u\n")[0]
    shell = subprocess.run(["sh"], input=head + '\nprintf %s "$CONSOLE"', capture_output=True, text=True, cwd=tmp_path)
    assert shell.stdout == settings.PUBLIC_URL
    assert not (tmp_path / "owned").exists()
    assert subprocess.run(["sh", "-n"], input=text, text=True).returncode == 0
    assert text.rstrip().endswith("\nmain")  # a script cut on its way does nothing


def test_a_command_expires_and_a_newer_one_ends_it(administrator, client, valkey):
    first = made(administrator)
    assert client.get(f"/join/{first.token}").status_code == 200
    second = made(administrator)
    refused = client.get(f"/join/{first.token}", headers={"Accept-Language": "en"})
    assert refused.status_code == 410
    assert refused.content.decode().startswith("This command for joining has expired. Make a new one for kp-01")
    Enrolment.objects.filter(pk=second.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    for part in ("", "/agent.tar.gz"):
        assert client.get(f"/join/{second.token}{part}").status_code == 410
    assert client.post(f"/join/{second.token}/config").status_code == 410
    assert Server.objects.count() == 1


def test_a_forged_token_is_answered_in_plain_words(client, db):
    for path in ("", "/agent.tar.gz", "/state", "/runtime/x86_64"):
        answer = client.get(f"/join/nobody-knows-this{path}")
        assert (answer.status_code, answer["Content-Type"]) == (404, "text/plain; charset=utf-8")


def test_no_log_tells_a_token(administrator, client, valkey):
    """Django's own lines name the address of what was refused; whoever reads them could join in its stead."""
    token = made(administrator).token
    handler = next(one for one in logging.getLogger().handlers if type(one) is logging.StreamHandler)
    before = handler.setStream(log := io.StringIO())
    try:
        assert client.get(f"/join/{token}/config").status_code == 405
        assert client.get(f"/join/{token}/runtime/x86_64").status_code == 404
    finally:
        handler.setStream(before)
    assert "/config" in log.getvalue() and token not in log.getvalue()


def test_credentials_are_handed_out_once(administrator, client, valkey):
    enrolment = made(administrator)
    before = Server.objects.get()
    config = client.post(f"/join/{enrolment.token}/config").json()
    server = Server.objects.get()
    assert config["key"] == server.key != before.key
    assert config["prefix"] == streams.prefix(server.pk)
    user, password = config["redis_url"].partition("://")[2].partition("@")[0].split(":")
    own = redis.Redis("127.0.0.1", valkey.port, username=user, password=password)
    assert own.ping()
    with pytest.raises(redis.ResponseError):
        own.get("h:999:rq:queue:jobs")
    assert client.post(f"/join/{enrolment.token}/config").status_code == 409
    assert client.get(f"/join/{enrolment.token}").status_code == 200  # run again, it repairs


def test_without_redis_the_command_stays_good(administrator, client, settings):
    enrolment = made(administrator)
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    assert client.post(f"/join/{enrolment.token}/config").status_code == 503
    assert Enrolment.objects.get().used_at is None


def test_the_key_stays_while_a_job_is_under_way(administrator, valkey):
    server = made(administrator).server
    key, password = server.key, server.redis_password
    Job.objects.create(server=server, kind="check", not_after=timezone.now() + timedelta(days=1))
    join.rotate(server)
    assert server.key == key
    assert server.redis_password != password


def test_new_credentials_end_the_connections_of_the_old(administrator, valkey):
    server = join.rotate(made(administrator).server)
    old = redis.Redis("127.0.0.1", valkey.port, username=streams.user(server.pk), password=server.redis_password)
    connection = old.connection_pool.get_connection()
    connection.send_command("PING")
    connection.read_response()
    join.rotate(server)
    with pytest.raises(redis.ConnectionError):
        connection.send_command("PING")
        connection.read_response()


def test_a_restarted_redis_still_knows_who_joined(administrator, own_valkey, settings):
    settings.REDIS_URL = own_valkey.url
    server = join.rotate(made(administrator).server)
    own_valkey.restart()
    assert redis.Redis(
        "127.0.0.1", own_valkey.port, username=streams.user(server.pk), password=server.redis_password
    ).ping()


def test_other_machines_are_kept_from_plain_http_and_from_a_redis_they_cannot_reach(administrator, client, settings):
    settings.ALLOWED_HOSTS = ["*"]
    enrolment = made(administrator)
    far = {"REMOTE_ADDR": "10.1.2.3", "headers": {"Accept-Language": "en"}}
    assert "no servers over plain HTTP" in client.get(f"/join/{enrolment.token}", **far).content.decode()
    settings.ALLOW_PLAINTEXT = True
    settings.PUBLIC_REDIS_URL = "redis://127.0.0.1:6379/0"
    assert "can be reached from its own machine only" in client.get(f"/join/{enrolment.token}", **far).content.decode()
    settings.PUBLIC_REDIS_URL = "redis://10.1.2.1:6379/0"
    assert client.get(f"/join/{enrolment.token}", **far).status_code == 200
    settings.ALLOW_PLAINTEXT = False
    settings.PUBLIC_URL = "http://10.1.2.1:8000"
    with pytest.raises(Conflict):
        join.make("kp-02", by=administrator)
    settings.PUBLIC_URL, settings.PUBLIC_REDIS_URL = "https://10.1.2.1", "rediss://10.1.2.1:6379/0"
    assert join.make("kp-02", by=administrator)


def test_problems_are_bounded_and_escaped(administrator, page):
    enrolment = made(administrator)
    for n in range(30):
        body = f"odd{'x' * (n % 9)} <script>alert(1)</script>\x1b[31m{'y' * 5000}"
        page.post(f"/join/{enrolment.token}/problem", body, content_type="text/plain")
    enrolment.refresh_from_db()
    assert len(enrolment.steps["problems"]) <= join.MAX_PROBLEMS
    shown = page.get(f"/servers/join/{enrolment.pk}/", headers={"X-Part": "1"}).content.decode()
    assert "<script>" not in shown and "\x1b" not in shown
    assert len(shown) < 20_000


def reportable():
    """Every code by which the script or the agent's installation may stop, or warn."""
    agent = ROOT / "deployments" / "agent"
    told = "".join((agent / name).read_text() for name in ("join.py", "join_checks.py", "tls_words.py"))
    script = (ROOT / "deployments" / "join" / "join.sh").read_text()
    found = re.findall(r"\bstop ([a-z_]+) (?=[\\\"])", script)
    found += re.findall(r'(?:Stopped\(|report\()\s*"([a-z_]+)"|"(tls_[a-z]+)"|"(disk)" if', told)
    return sorted({code for one in found for code in ([one] if isinstance(one, str) else one) if code})


def test_the_page_has_words_for_whatever_stops_a_server(administrator, page):
    codes = reportable()
    assert {"clock", "name", "port", "tls", "tls_clock", "python", "permission", "disk", "redis", "silent"} <= set(
        codes
    )
    for n, code in enumerate(codes):
        enrolment = made(administrator, f"kp-{n}")
        page.post(f"/join/{enrolment.token}/problem", f"{code} so it says", content_type="text/plain")
        shown = page.get(f"/servers/join/{enrolment.pk}/", headers={"X-Part": "1"}).content.decode()
        assert html.escape(str(join_texts.TROUBLE[code].what)) in shown and "so it says" in shown, code


def test_a_void_command_takes_a_server_with_it_that_never_joined(administrator, page):
    enrolment = made(administrator)
    assert page.post(f"/servers/join/{enrolment.pk}/withdraw").status_code == 302
    assert not Server.objects.exists()
    known = Server.objects.create(name="kp-05", last_seen_at=timezone.now())
    enrolment = made(administrator, "kp-05")
    page.post(f"/servers/join/{enrolment.pk}/withdraw")
    assert Server.objects.get() == known
    assert page.get(f"/join/{enrolment.token}").status_code == 410


def test_leaving_ends_the_credentials_and_keeps_the_record(administrator, page, valkey):
    enrolment = made(administrator)
    config = page.post(f"/join/{enrolment.token}/config").json()
    assert "kp-01" in page.get("/servers/kp-01/leave").content.decode()
    assert page.post("/servers/kp-01/leave").status_code == 302
    assert Server.objects.get().key != config["key"]
    assert streams.user(enrolment.server_id) not in valkey.client().acl_users()
    local = Server.objects.create(name="here", is_local=True)
    assert page.post(f"/servers/{local.name}/leave").status_code == 409


def test_a_server_says_goodbye_only_with_its_own_signature(administrator, client, valkey):
    config = client.post(f"/join/{made(administrator).token}/config").json()
    other = made(administrator, "kp-02")

    def say(**told):
        body = json.dumps({"op": "leave", "server": config["server_id"], "t": time.time(), **told})
        sent = {"body": body, "mac": signing.sign(config["key"], body)}
        return client.post("/join/left", json.dumps(sent), content_type="application/json").status_code

    assert say(server=other.server_id) == say(t=time.time() - 3600) == say(op="x") == say(server=10**30) == 403
    assert client.post("/join/left", "nonsense", content_type="application/json").status_code == 400
    token = made(administrator, "kp-02").token
    for address in ("/join/left", "/join/code", f"/join/{token}/problem"):
        assert client.post(address, {"a": "form"}).status_code == 400
    for address in ("/join/left", "/join/code"):
        assert client.post(address, "[" * 2000, content_type="application/json").status_code == 400
        deep = json.dumps({"body": "[" * 1900, "mac": "0"})
        assert client.post(address, deep, content_type="application/json").status_code == 403
    assert Server.objects.get(pk=config["server_id"]).key == config["key"]
    assert say() == 200
    assert say() == 403
