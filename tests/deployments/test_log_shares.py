"""Links to one log for people without an account: who makes them, what they open, when they stop."""

import re
from datetime import timedelta

import pytest
from auditlog.models import LogEntry
from django.test import Client
from django.utils import timezone

from console.errors import ConsoleError
from deployments.models import LogShare, Server
from deployments.services import log_shares
from tests.deployments.log_rows import attempt as new_attempt
from tests.deployments.log_rows import deployment, job, piece, records, replica, stored

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def on(settings, monkeypatch):
    settings.LOG_SHARE = True
    for name in ("CALLS", "GUESSES"):
        monkeypatch.setattr(log_shares, name, log_shares.Rate(getattr(log_shares, name).per_minute))


@pytest.fixture
def run(db):
    return stored(new_attempt(job(Server.objects.create(name="kp-01"))), records((0, "one"), (1, "<script>x</script>")))


@pytest.fixture
def made(run, operator):
    return log_shares.make(run, 8, by=operator)


@pytest.fixture
def olga(operator):
    return signed_in(operator)


def signed_in(user):
    client = Client(headers={"accept-language": "en"})
    client.force_login(user)
    return client


@pytest.fixture
def anybody():
    return Client(headers={"accept-language": "en"})


def verbs():
    return [entry.additional_data["verb"] for entry in LogEntry.objects.order_by("pk") if entry.additional_data]


def test_an_operator_makes_a_link_that_anybody_opens(olga, anybody, run):
    page = olga.post(f"/jobs/{run.job_id}/share", {"hours": "24", "attempt": run.pk})
    path = re.search(r"/shared/log/[\w-]{43}", page.content.decode())[0]
    assert page["Cache-Control"] == "no-store"
    share = LogShare.objects.get()
    assert path.rsplit("/", 1)[1] not in str(LogShare.objects.values()) and len(share.digest) == 64
    shown = anybody.get(path)
    assert shown.status_code == 200 and "kp-01" in shown.content.decode()
    assert shown["X-Robots-Tag"].startswith("noindex") and shown["Referrer-Policy"] == "no-referrer"
    assert shown["Cache-Control"] == "no-store" and not shown.cookies
    lines = anybody.get(f"{path}/lines?n=1").json()
    assert (lines["first"], lines["n"], lines["total"]) == (2, 1, 2)
    assert (
        anybody.get(f"{path}/lines?after=0").json()["n"] == 2 and anybody.get(f"{path}/lines?before=2").json()["n"] == 1
    )
    assert verbs() == ["log_share.made", "log_share.opened"]


def test_a_link_opens_no_other_page(anybody, made):
    for path in ("/", f"/jobs/{made.share.attempt.job_id}/", f"/jobs/{made.share.attempt.job_id}/lines", "/jobs/"):
        assert anybody.get(path).status_code == 302, path
    for path in ("/raw", "/find", "/zip", "/lines/../../jobs"):
        assert anybody.get(made.path + path).status_code in (302, 404), path
    page = anybody.get(made.path).content.decode()
    assert not re.search(r'href="/(?!static)', page)
    assert anybody.post(made.path).status_code == 405


def test_that_it_is_opened_is_on_the_record_once_a_minute_and_counted_always(anybody, made):
    for _ in range(3):
        anybody.get(made.path)
    assert LogShare.objects.get().opens == 3 and verbs().count("log_share.opened") == 1
    LogShare.objects.update(opened_at=timezone.now() - timedelta(minutes=2))
    anybody.get(made.path)
    assert verbs().count("log_share.opened") == 2
    assert LogEntry.objects.latest("pk").additional_data["address"] == "127.0.0.1"


@pytest.mark.parametrize("token", ["x", "A" * 43, "A" * 42, "A" * 4000, "..", "%00", "A" * 42 + "%0a", "日志"])
def test_a_guessed_link_is_none(anybody, made, token):
    answer = anybody.get(f"/shared/log/{token}")
    assert answer.status_code in (400, 404)
    assert "kp-01" not in answer.content.decode()
    assert anybody.get(f"/shared/log/{token}/lines").status_code in (400, 404)


def test_a_link_that_is_over_or_withdrawn_says_so_and_shows_nothing(anybody, made, olga):
    LogShare.objects.update(until=timezone.now() - timedelta(seconds=1))
    answer = anybody.get(made.path)
    assert (
        answer.status_code == 410
        and "works no longer" in answer.content.decode()
        and "kp-01" not in answer.content.decode()
    )
    assert answer["Referrer-Policy"] == "no-referrer"
    LogShare.objects.update(until=timezone.now() + timedelta(hours=1))
    assert anybody.get(made.path).status_code == 200
    assert olga.post(f"/log-shares/{made.share.pk}/revoke").status_code == 302
    assert anybody.get(f"{made.path}/lines").json()["error"]["code"] == "link_over"
    assert olga.post(f"/log-shares/{made.share.pk}/revoke").status_code == 302  # a second time changes nothing
    assert verbs().count("log_share.revoked") == 1


def test_a_link_goes_with_its_job_and_with_whoever_made_it(anybody, made, operator):
    operator.is_active = False
    operator.save()
    assert anybody.get(made.path).status_code == 410
    made.share.attempt.job.delete()
    assert anybody.get(made.path).status_code == 404 and not LogShare.objects.exists()


def test_where_links_are_off_none_is_made_and_none_opens(anybody, olga, made, settings):
    settings.LOG_SHARE = False
    assert anybody.get(made.path).status_code == 404
    pk = made.share.attempt.job_id
    refused = olga.post(f"/jobs/{pk}/share", {"hours": "1"}, headers={"Accept": "application/json"})
    assert refused.status_code == 409 and "LOG_SHARE=1" in refused.json()["error"]["do"]
    page = olga.get(f"/jobs/{pk}/").content.decode()
    assert "LOG_SHARE=1" in page and f'action="/jobs/{pk}/share"' not in page


def test_links_are_off_unless_the_site_says_otherwise():
    from pathlib import Path

    assert 'env.flag("LOG_SHARE", False)' in Path("console/settings.py").read_text()


def test_the_job_page_lists_links_and_no_token(olga, made):
    page = olga.get(f"/jobs/{made.share.attempt.job_id}/").content.decode()
    assert f"/log-shares/{made.share.pk}/revoke" in page and made.token not in page and made.share.digest not in page


def test_a_viewer_neither_makes_nor_withdraws_nor_sees_links(viewer, made):
    victor = signed_in(viewer)
    pk = made.share.attempt.job_id
    assert victor.post(f"/jobs/{pk}/share", {"hours": "1"}).status_code == 403
    assert victor.post(f"/log-shares/{made.share.pk}/revoke").status_code == 403
    assert 'id="shares"' not in victor.get(f"/jobs/{pk}/").content.decode()
    assert log_shares.find(made.share.pk).works


@pytest.mark.parametrize("hours", ["", "0", "169", "-1", "x", "1e3", "99999", "١"])
def test_how_long_it_works_is_bounded(olga, run, hours):
    answer = olga.post(f"/jobs/{run.job_id}/share", {"hours": hours}, headers={"Accept": "application/json"})
    assert answer.status_code == 422 and answer.json()["error"]["do"] and not LogShare.objects.exists()


def test_there_are_not_many_links_to_one_log(run, operator):
    for _ in range(log_shares.MOST_AT_ONCE):
        log_shares.make(run, 1, by=operator)
    with pytest.raises(ConsoleError, match="Withdraw one"):
        log_shares.make(run, 1, by=operator)


def test_who_guesses_is_stopped_and_others_read_on(anybody, made):
    for n in range(30):
        last = anybody.get(f"/shared/log/{n:043}")
    assert last.status_code == 429 and anybody.get(made.path).status_code == 429
    assert anybody.get(f"{made.path}/lines").json()["error"]["code"] == "too_many"
    assert anybody.get(made.path, REMOTE_ADDR="10.0.0.9").status_code == 200


def test_the_rate_forgets_after_a_minute_and_holds_few_addresses(monkeypatch):
    rate = log_shares.Rate(2)
    now = [60.0]
    monkeypatch.setattr(log_shares.time, "monotonic", lambda: now[0])
    rate.count("a"), rate.count("a")
    assert rate.is_over("a") and not rate.is_over("b")
    monkeypatch.setattr(rate, "MOST_KEPT", 1)
    rate.count("b")
    assert rate.counts == {"a": 2}
    now[0] = 120.0
    assert not rate.is_over("a")


def test_the_log_of_a_replica_is_shared_by_its_piece(olga, anybody):
    server = Server.objects.create(name="kp-02")
    row = replica(deployment(), 1, server)
    olga_page = olga.post("/deployments/tiny/replicas/1/share", {"hours": "1"}, headers={"Accept": "application/json"})
    assert olga_page.status_code == 404  # there is no log yet
    stored(piece(row), records((0, "engine")))
    page = olga.post("/deployments/tiny/replicas/1/share", {"hours": "1"})
    path = re.search(r"/shared/log/[\w-]{43}", page.content.decode())[0]
    assert "kp-02" in anybody.get(path).content.decode()
    assert "engine" in anybody.get(f"{path}/lines").json()["text"]
    assert "/log-shares/" in olga.get("/deployments/tiny/replicas/1/log").content.decode()
    assert olga.post(f"/log-shares/{LogShare.objects.get().pk}/revoke").url.endswith("/replicas/1/log#shares")


def test_wrong_numbers_behind_a_link_are_answered_in_words(anybody, made):
    for query in ("n=x", "after=-1", "before=9e9", "after=" + "9" * 30):
        assert anybody.get(f"{made.path}/lines?{query}").json()["error"]["do"], query


def test_no_log_of_ours_holds_a_token(made):
    import logging

    from console.quiet import WithoutTokens

    record = logging.makeLogRecord({"msg": "Not Found: %s", "args": (f"{made.path}/raw",)})
    WithoutTokens().filter(record)
    assert record.getMessage() == "Not Found: /shared/log/…/raw"
