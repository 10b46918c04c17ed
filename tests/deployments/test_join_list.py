"""Lists of hosts: who may, what is confirmed, how a list ends."""

import json
import re
import subprocess
from datetime import timedelta

import pytest
from django.utils import timezone

from console.errors import Conflict, Invalid, NotAllowed, NotFound
from console.models import Alert
from deployments import join_texts, topics
from deployments.models import Enrolment, HostKey, JoinMany, JoinRow, Server
from deployments.models.join_many import Phase, RowState
from deployments.services import join, join_many, ssh
from tests.conftest import free_port
from tests.deployments.join_lists import (  # noqa: F401
    KEY,
    OTHER,
    PASSWORD,
    asking,
    codes,
    fixture_administrator,
    fixture_english,
    fixture_host,
    fixture_page,
    fixture_started,
    made,
    states,
)
from tests.waiting import until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("english")]


# ---------- who, and what is written ----------


@pytest.mark.parametrize("who", ["operator", "viewer"])
def test_only_administrators_see_and_change_lists(request, client, administrator, who):
    many = asking(administrator)
    person = request.getfixturevalue(who)
    with pytest.raises(NotAllowed):
        join_many.confirm(many, {1}, by=person)
    with pytest.raises(NotAllowed):
        made(person)
    client.force_login(person)
    for path in ("", "template.csv", f"{many.pk}/", f"{many.pk}/lines/1/"):
        assert client.get(f"/servers/join/many/{path}").status_code == 403
    for path in ("", f"{many.pk}/confirm", f"{many.pk}/cancel", f"{many.pk}/retry", f"{many.pk}/lines/1/trust"):
        assert client.post(f"/servers/join/many/{path}", {"text": "kp-01"}).status_code == 403
    for topic in (f"join-many:{many.pk}", "join:1"):
        (kind,) = [one for one in topics.TOPICS if re.fullmatch(one.pattern, topic)]
        match = re.fullmatch(kind.pattern, topic)
        assert not kind.may(person, match) and kind.may(administrator, match)
    assert states(many) == ["keyed", "keyed"]


def test_nothing_begins_before_the_list_was_seen_as_it_is(page, started):
    text = "kp-01\nkp 02\nkp-01,,2222\n"
    shown = page.post("/servers/join/many/", {"text": text, "user": "root", "at_once": "5"})
    body = shown.content.decode()
    assert "neither an address" in body and "same name is in line 1" in body
    assert "Read the host key of 1 host" in body and not JoinMany.objects.exists()
    seen = re.search(r'name="seen" value="(\w+)"', body)[1]
    given = {"text": text + "kp-09\n", "user": "root", "at_once": "5", "act": "start", "seen": seen}
    assert "kp-09" in page.post("/servers/join/many/", given).content.decode()
    assert not JoinMany.objects.exists()
    answer = page.post("/servers/join/many/", given | {"text": text.replace("\n", "\r\n")})
    many = JoinMany.objects.get()
    assert answer.headers["Location"] == f"/servers/join/many/{many.pk}/"
    assert [(row.n, row.name) for row in many.rows.all()] == [(1, "kp-01")]  # lines with problems are left out
    assert started == [(many.pk, None)] and many.at_once == 5


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"text": ""}, "names no host"),
        ({"text": "host,colour\nkp-01,red"}, "colour"),
        ({"text": "kp-01", "user": "o p"}, "no name of a user"),
        ({"text": "kp-01", "prefix": "relative"}, "absolute path"),
    ],
)
def test_a_bad_form_is_answered_in_words(page, started, given, told):
    assert told in page.post("/servers/join/many/", {"user": "root", "at_once": "5", **given}).content.decode()
    assert not JoinMany.objects.exists()


@pytest.mark.parametrize("at_once", ["0", "51", "x", "-1", "²", "9999"])
def test_how_many_at_once_is_bounded(page, started, at_once):
    shown = page.post("/servers/join/many/", {"text": "kp-01", "user": "root", "at_once": at_once}).content.decode()
    given = {"text": "kp-01", "user": "root", "at_once": at_once, "act": "start"}
    given["seen"] = re.search(r'name="seen" value="(\w+)"', shown)[1]
    refused = page.post("/servers/join/many/", given)
    assert refused.status_code == 422 and "at once is not between" in refused.content.decode()
    assert not JoinMany.objects.exists()


def test_a_file_is_read_and_the_template_is_a_file(page, started, tmp_path):
    answer = page.get("/servers/join/many/template.csv")
    assert answer.status_code == 200 and "servers.csv" in answer.headers["Content-Disposition"]
    file = tmp_path / "hosts.csv"
    file.write_bytes("主机,机架\nkp-07,东一\n".encode("gb18030"))
    with file.open("rb") as content:
        body = page.post("/servers/join/many/", {"user": "root", "at_once": "5", "file": content}).content.decode()
    assert "kp-07" in body and "东一" in body


def test_only_ticked_keys_are_kept_and_credentials_only_handed_over(page, started, administrator):
    many = asking(administrator)
    path = f"/servers/join/many/{many.pk}/confirm"
    assert "SHA256:" in page.get(f"/servers/join/many/{many.pk}/").content.decode()
    for given, told in (
        ({"password": "pw-77-x"}, "No host key was accepted"),
        ({"row": "1"}, "Neither a password nor a key"),
        ({"row": ["9", "x", "²"], "password": "pw-77-x"}, "No host key was accepted"),
        ({"row": "1", "private_key": "no key pw-77-x"}, "no private key"),
        ({"row": "1", "password": "pw-77\nx"}, "line break"),
    ):
        refused = page.post(path, given)
        assert refused.status_code == 422 and told in refused.content.decode(), told
        assert "pw-77" not in refused.content.decode()
    assert started == [] and not HostKey.objects.exists()
    assert page.post(path, {"row": "1", "password": "pw-77-x", "sudo_password": "s-88-y"}).status_code == 302
    assert started == [(many.pk, ssh.Credentials(password="pw-77-x", sudo_password="s-88-y"))]
    assert [key.host for key in HostKey.objects.all()] == ["kp-01.invalid"]
    assert states(many) == ["ready", "left_out"]
    refused = page.post(path, {"row": "2", "password": "pw-77-x"})
    assert refused.status_code == 409 and len(started) == 1


def test_an_encrypted_key_wants_its_passphrase(page, started, administrator):
    import asyncssh

    many = asking(administrator)
    key = asyncssh.generate_private_key("ssh-ed25519").export_private_key(passphrase="opens it", rounds=16).decode()
    path = f"/servers/join/many/{many.pk}/confirm"
    refused = page.post(path, {"row": "1", "private_key": key, "passphrase": "no"})
    assert refused.status_code == 422 and "passphrase" in refused.content.decode()
    given = {"row": "1", "private_key": key.replace("\n", "\r\n"), "passphrase": "opens it"}
    assert page.post(path, given).status_code == 302
    assert ssh.load_key(started[0][1].private_key, "opens it")


def test_what_is_not_there_is_refused_in_words(page, administrator):
    many = made(administrator)
    for path in ("999/", f"{2**63}/", f"{many.pk}/lines/99/", f"{many.pk}/lines/{2**40}/"):
        assert page.get(f"/servers/join/many/{path}").status_code == 404
    with pytest.raises(NotFound):
        topics.present_join_many(re.fullmatch(r"join-many:(?P<id>\d+)", "join-many:999"))


# ---------- keys ----------


def test_a_known_key_is_ticked_and_another_one_refused_until_the_old_is_forgotten(page, administrator):
    many = asking(administrator)
    join_many.confirm(many, {1}, by=administrator)
    again = asking(administrator)
    assert [row.key_known for row in again.rows.all()] == [True, False]
    assert page.get(f"/servers/join/many/{again.pk}/").content.decode().count(" checked") == 1
    third = made(administrator)
    for row in third.rows.all():
        join_many.keyed(row, OTHER)
    assert states(third) == ["failed", "keyed"] and codes(third) == ["key_changed", None]
    join_many.finish(third)
    row = third.rows.first()
    assert ssh.fingerprint(KEY) in row.problem["detail"] and ssh.fingerprint(OTHER) in row.problem["detail"]
    body = page.get(f"/servers/join/many/{third.pk}/").content.decode()
    assert "another key than the one that was confirmed" in body and "Forget the old key of kp-01" in body
    warning = Alert.objects.get(name="host-key-changed", subject="host:kp-01.invalid")
    assert warning.link == f"/servers/join/many/{third.pk}/"
    page.post(f"/servers/join/many/{third.pk}/lines/1/trust")
    assert not Alert.objects.filter(ended_at=None).exists()
    assert not HostKey.objects.filter(host="kp-01.invalid").exists()
    with pytest.raises(Conflict):
        join_many.trust_anew(third.rows.first(), by=administrator)


# ---------- how a list ends ----------


def test_what_an_ended_process_leaves_is_interrupted_and_can_be_tried_again(page, administrator, started):
    many = asking(administrator)
    join_many.confirm(many, {1, 2}, by=administrator)
    join_many.claim(many)
    JoinMany.objects.filter(pk=many.pk).update(beat_at=timezone.now() - timedelta(seconds=20))
    body = page.get(f"/servers/join/many/{many.pk}/").content.decode()
    assert "keeps no credentials" in body and "Try 2 hosts again" in body
    page.post(f"/servers/join/many/{many.pk}/retry")
    many.refresh_from_db()
    assert many.phase == Phase.READING and states(many) == ["new", "new"]
    assert started[-1] == (many.pk, None)
    page.post(f"/servers/join/many/{many.pk}/retry")
    assert len(started) == 1  # it is under way
    assert many.rows.filter(state=RowState.NEW).count() == 2


def test_what_comes_online_by_itself_has_joined(administrator):
    many = asking(administrator)
    join_many.confirm(many, {1, 2}, by=administrator)
    enrolment = join.make("kp-01", by=administrator)
    many.rows.filter(n=1).update(enrolment=enrolment, state=RowState.INSTALLING)
    join_many.finish(many, "interrupted")
    assert states(join_many.settle(many)) == ["failed", "failed"]
    Enrolment.objects.filter(pk=enrolment.pk).update(used_at=timezone.now())
    Server.objects.filter(name="kp-01").update(last_seen_at=timezone.now() + timedelta(seconds=1))
    assert states(join_many.settle(many)) == ["joined", "failed"]


def test_a_list_that_waits_for_its_administrator_can_be_cancelled(administrator):
    many = asking(administrator)
    join_many.cancel(many, by=administrator)
    many.refresh_from_db()
    assert many.phase == Phase.ENDED and states(many) == ["cancelled", "cancelled"]
    with pytest.raises(Conflict):
        join_many.cancel(many, by=administrator)
    assert join_many.retry(many, by=administrator) == 2


def test_old_lists_go_and_confirmed_keys_stay(administrator):
    old, young = asking(administrator), asking(administrator)
    join_many.confirm(old, {1}, by=administrator)
    for many in (old, young):
        join_many.finish(many, "cancelled")
    JoinMany.objects.filter(pk=old.pk).update(ended_at=timezone.now() - timedelta(days=91))
    assert join_many.prune() == 1
    assert JoinMany.objects.get() == young and HostKey.objects.count() == 1


def test_lines_with_problems_make_no_list(administrator):
    with pytest.raises(Invalid):
        made(administrator, "kp-01\nkp 02\n")
    assert not JoinMany.objects.exists()


# ---------- the join page's own topic ----------


def test_each_step_is_told_at_once(valkey, administrator):
    enrolment = join.make("kp-01", by=administrator)
    hears = valkey.client().pubsub(ignore_subscribe_messages=True)
    hears.subscribe(f"live:join:{enrolment.pk}")

    def told(act):
        act()
        found = until(lambda: hears.get_message(timeout=0.5), timeout=5)
        return json.loads(found["data"])["type"] == "moved"

    assert told(lambda: join.copied(enrolment))
    assert told(lambda: join.called(enrolment, "192.0.2.1"))
    assert told(lambda: join.trouble(enrolment, "python", "none"))
    assert told(lambda: join.config(enrolment))
    enrolment = Enrolment.objects.select_related("server").get(pk=enrolment.pk)
    Server.objects.filter(pk=enrolment.server_id).update(last_seen_at=timezone.now() + timedelta(seconds=1))
    from deployments.services import join_news

    assert told(lambda: join_news.watch([f"join:{enrolment.pk}", "join:x", "fleet"]))
    assert "online" in Enrolment.objects.get(pk=enrolment.pk).steps


def test_without_redis_a_step_is_noted_all_the_same(administrator, settings):
    settings.REDIS_URL = f"redis://127.0.0.1:{free_port()}/0"
    enrolment = join.make("kp-01", by=administrator)
    join.copied(enrolment)
    assert "copied" in Enrolment.objects.get(pk=enrolment.pk).steps
    assert JoinRow.objects.count() == 0


# ---------- a host that cannot reach the console cannot tell it either ----------


def test_where_no_host_calls_the_page_says_what_its_terminal_means(page, administrator):
    enrolment = join.make("kp-01", by=administrator)
    address = f"/servers/join/{enrolment.pk}/"
    join.copied(enrolment)
    assert "No host has called yet" not in page.get(address).content.decode()
    earlier = (timezone.now() - timedelta(seconds=25)).isoformat()
    Enrolment.objects.filter(pk=enrolment.pk).update(steps={"copied": earlier})
    words = page.get(address).content.decode()
    assert "No host has called yet" in words
    for said in ("Could not resolve host", "Failed to connect", "public key does not match"):
        assert said in words
    join.called(Enrolment.objects.get(pk=enrolment.pk), "192.0.2.1")
    assert "No host has called yet" not in page.get(address).content.decode()


@pytest.mark.parametrize(("address", "code"), [("no-such-host.invalid:8000", "name"), ("127.0.0.1:{port}", "port")])
def test_curl_says_it_in_the_words_of_the_page(address, code):
    url = f"https://{address.format(port=free_port())}/"
    said = subprocess.run(["curl", "-sS", "--noproxy", "*", url], capture_output=True, text=True, check=False).stderr
    assert any(word in said for words, meant in join_texts.SAID if meant == code for word in words.split(" · ")), said
