"""What hostile people and servers ask of stacks: refused in words, whoever they are."""

import contextlib
import json
import socket
import threading
import time

import pytest
from django.utils import timezone, translation

from console.models import ApiToken, User
from deployments import ingest
from deployments.agent import signing
from deployments.models import Attempt, Campaign, Job, Server, VendorPackage
from deployments.services import cleanup
from deployments.stacks import indexes
from tests.deployments.agent_bench import KEY
from tests.deployments.stack_facts import facts

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]


@pytest.fixture(autouse=True)
def in_english():
    with translation.override("en"):
        yield


@pytest.fixture
def server():
    return Server.objects.create(pk=7, name="kp-07", key=KEY, facts=facts())


@pytest.mark.parametrize("op", ["wheels", "indexes", "code", "left"])
@pytest.mark.parametrize(
    "more", [{"bundle": "\ud800"}, {"file": "\udfff.whl"}, {"attempt": "\ud800"}, {"server": 10**30}, {"server": [7]},
             {"server": True}, {"server": "7" * 5000}, {"bundle": {"a": []}, "file": [1]}, {"digest": ["x"]}],
)  # fmt: skip
def test_a_question_that_no_text_can_hold_is_refused(client, server, op, more):
    client.raise_request_exception = False
    body = json.dumps({"op": op, "server": 7, "bundle": "x", "file": "", "attempt": "", "t": 0, **more})
    raw = body.encode().decode("unicode_escape", "surrogatepass") if "\\ud" in body else body
    for text in (body, raw):
        mac = signing.sign(KEY, text) if text.isascii() else "0" * 64
        sent = json.dumps({"body": text, "mac": mac})
        answer = client.post(f"/join/{op}", sent, content_type="application/json")
        assert 400 <= answer.status_code < 500, answer.content[:200]
    sent = json.dumps({"body": body, "mac": "\ud800"})
    assert 400 <= client.post(f"/join/{op}", sent, content_type="application/json").status_code < 500


CHANGES = [  # method, path below /api/v1, body, the least role
    ("post", "/packages", {"name": "Ascend-x.run", "sha256": "1" * 64}, "administrator"),
    ("delete", "/packages/Ascend-x.run", {}, "administrator"),
    ("post", "/jobs", {"kind": "install", "server": "kp-07", "params": {"stack": "cpu-0.32.0"}}, "operator"),
    ("post", "/jobs", {"kind": "rollback", "server": "kp-07", "params": {}}, "operator"),
    ("post", "/jobs", {"kind": "uninstall", "server": "kp-07", "params": {"stack": "x"}}, "operator"),
    ("post", "/jobs", {"kind": "drivers", "server": "kp-07", "params": {"driver": "25.5.2"}}, "operator"),
    ("post", "/jobs", {"kind": "reset", "server": "kp-07", "params": {"npu": "0"}}, "administrator"),
    ("post", "/jobs", {"kind": "cleanup", "server": "kp-07", "params": {"targets": []}}, "operator"),
    ("post", "/campaigns", {"stack": "cpu-0.32.0", "select": {"names": ["kp-07"]}, "dry_run": True}, "operator"),
    ("post", "/campaigns", {"stack": "cpu-0.32.0", "select": {"names": ["kp-07"]}}, "operator"),
    ("post", "/batches", {"kind": "reset", "params": {}, "select": {"names": ["kp-07"]}}, "operator"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "body", "least"), CHANGES)
def test_no_lesser_role_changes_anything_over_rest(client, server, method, path, body, least):
    roles = ["viewer", "operator", "administrator"]
    for role in roles[: roles.index(least)]:
        strong = User.objects.create_user(f"strong-{role}", role="administrator")
        for user in (User.objects.create_user(role, role=role), strong):  # and a lesser token of a stronger account
            _row, token = ApiToken.make(user, role)
            headers = {"Authorization": f"Bearer {token}", "Accept-Language": "en"}
            answer = getattr(client, method)(
                f"/api/v1{path}", json.dumps(body), content_type="application/json", headers=headers
            )
            assert answer.status_code == 403, (role, answer.content)
    assert not Job.objects.exists()


PAGES = [  # path, form, the least role
    ("/stacks/cpu-0.32.0/install/kp-07/", {"seen": "x"}, "operator"),
    ("/stacks/cpu-0.32.0/rollback/kp-07/", {}, "operator"),
    ("/stacks/cpu-0.32.0/uninstall/kp-07/", {}, "operator"),
    ("/stacks/wish", {"stack": "cpu-0.32.0", "server": "kp-07"}, "operator"),
    ("/servers/kp-07/drivers/", {"driver": "25.5.2", "seen": "x"}, "operator"),
    ("/servers/kp-07/cleanup", {"action": "look"}, "operator"),
    ("/servers/kp-07/maintenance", {"on": "1"}, "operator"),
    ("/servers/kp-07/queue/pause", {}, "operator"),
    ("/campaigns/new", {"stack": "cpu-0.32.0", "names": "kp-07"}, "operator"),
    ("/jobs/new?kind=reset&server=kp-07", {"kind": "reset", "server": "kp-07"}, "administrator"),
    ("/packages/", {"name": "Ascend-x.run", "sha256": "1" * 64}, "administrator"),
]


@pytest.mark.parametrize(("path", "form", "least"), PAGES)
def test_no_lesser_role_changes_anything_on_a_page(client, server, path, form, least):
    before = list(Server.objects.values())
    for role in ["viewer", "operator", "administrator"][: 1 + (least == "administrator")]:
        user = User.objects.create_user(role, role=role)
        client.force_login(user, "django.contrib.auth.backends.ModelBackend")
        assert client.post(path, form).status_code in (302, 403, 422)  # the form again, with the refusal, is one, too
        client.get(path)
    client.logout()
    assert client.post(path, form).status_code == 302
    assert not Job.objects.exists() and not Campaign.objects.exists() and not VendorPackage.objects.exists()
    assert list(Server.objects.values()) == before


@pytest.mark.parametrize(
    "used", ["0001-01-01T00:00:00+00:00", "9999-12-31T23:59:59-14:00", "2026-01-01", "-1", "<script>alert(1)</script>"]
)
def test_a_look_with_a_moment_that_cannot_be_is_shown_without_it(client, server, used):
    user = User.objects.create_user("li", role="operator")
    client.force_login(user, "django.contrib.auth.backends.ModelBackend")
    job = Job.objects.create(
        server=server, kind="cleanup_look", params={}, locks=[], requester=user, state="succeeded",
        not_after=timezone.now(),
    )  # fmt: skip
    attempt = Attempt.objects.create(pk=f"a{job.pk}-1-0f3c5a7e", job=job, n=1, state="succeeded")
    event = {"key": "stacks.1", "title": ["/opt/x", "/opt/x"], "verdict": "ok", "found": "3 KiB (3072 B), 4"}
    ingest._item(attempt, 1, timezone.now(), {**event, "wanted": used})
    attempt.save()
    answer = client.get("/servers/kp-07/cleanup")
    assert answer.status_code == 200 and b"/opt/x" in answer.content and b"<script>alert" not in answer.content
    assert cleanup.newest(server).found[0].used_at is None


def drips(link):
    link.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    for _letter in range(100):
        time.sleep(0.05)
        link.sendall(b"a")


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        (drips, "comes to no end"), (lambda _link: time.sleep(1), "timed out"),
        (lambda link: link.sendall(b"\xff\x00\x1b[2J what\r\n\r\n"), "does not answer"),
        (lambda link: link.sendall(b"HTTP/1.1 302 x\r\nLocation: http://[::bad/\r\n\r\n"), "does not answer"),
        (lambda link: link.sendall(b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 300 + b"\r\n"), "more than 100 headers"),
        (lambda link: link.sendall(b"HTTP/1.1 503 \x1b[2Jx\r\n\r\n"), "HTTP 503"),
    ],
)  # fmt: skip
def test_an_index_that_never_ends_or_sends_rubbish_is_given_up_in_plain_words(answers, said):
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            with contextlib.suppress(OSError):
                link, _peer = listening.accept()
                with link:
                    link.recv(4096)
                    answers(link)

        threading.Thread(target=serve, daemon=True).start()
        began = time.monotonic()
        found = indexes.unheard(f"http://127.0.0.1:{listening.getsockname()[1]}/simple", (), "", 0.4)
    assert said in found and found.isprintable() and time.monotonic() - began < 3
