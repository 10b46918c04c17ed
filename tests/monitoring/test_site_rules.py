"""Rules of the site: read, tried on past logs, saved, and what happens where they are bad or hostile."""

import json

import pytest
from django.test import Client
from django.utils import timezone

from console.models import ApiToken, User
from deployments import ingest
from deployments.models import EngineChunk, EngineLog
from monitoring import diagnoses
from monitoring.diagnoses import hostile
from monitoring.models import Diagnosis
from monitoring.services import diagnosing, site_rules
from tests.deployments import benchmark_rows
from tests.job_fixtures import Spool

pytestmark = pytest.mark.django_db
LINE = "ERROR licence server lic-7.bank did not answer in 30 s"
RULE = site_rules.EXAMPLE
HOSTILE = 'id = "slow"\nsays = ["aaaa{*}a{*}a{*}a{*}b"]\ncause = { zh = "慢", en = "slow" }'


@pytest.fixture(autouse=True)
def file(settings, tmp_path):
    settings.SITE_DIAGNOSES = tmp_path / "diagnoses" / "site.toml"
    settings.SITE_DIAGNOSES.parent.mkdir()
    return settings.SITE_DIAGNOSES


@pytest.fixture
def administrator(db):
    return User.objects.create_user("ada", password="a-long-password", role="administrator")


def logged_in(user):
    client = Client()
    client.force_login(user)
    client.cookies["django_language"] = "en"
    return client


def log_of(attempt, server, line, state="failed"):
    spool, watch = Spool(attempt.pk), diagnosing.Watch()
    entries = [
        spool.chunk(("o", "begin"), ("e", line)),
        spool.event(e="ended", state=state, exit=1, reason=["失", "f"]),
    ]
    done = ingest.store({server.pk: entries})
    watch.take(chunk for _job, chunk in done.chunks)
    watch.settle([job for job in done.jobs.values() if job.is_ended])


def names(line):
    scanner = diagnoses.Scanner(site_rules.signatures())
    scanner.feed(line, 1)
    return [one.rule.id for one in scanner.findings()]


def test_a_rule_in_the_file_finds_what_ours_do_not(file, attempt, server):
    file.write_text(RULE)
    log_of(attempt, server, LINE)
    found = Diagnosis.objects.get().findings[0]
    assert found["id"] == "our-licence-server" and "lic-7.bank" in found["cause"]["en"]


def test_one_with_our_id_takes_its_place_and_off_takes_it_away(file):
    said = "bind: Address already in use"
    assert names(said) == ["port-in-use"]
    file.write_text(RULE.replace("our-licence-server", "port-in-use"))
    assert names(said) == [] and names(LINE) == ["port-in-use"]
    file.write_text('off = ["port-in-use"]')
    assert names(said) == []


def test_where_the_file_breaks_the_last_good_rules_go_on(file, operator):
    file.write_text(RULE)
    assert names(LINE) == ["our-licence-server"]
    file.write_text("[[rule]]\nid = 'Not An Id'")
    assert names(LINE) == ["our-licence-server"]
    assert "is no id" in logged_in(operator).get("/diagnoses/site/").content.decode()
    file.unlink()
    assert names(LINE) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[rule", "cannot be used"),
        ("rule = 5", "begin each rule"),
        ("rule = [1]", "begin each rule"),
        ("rules = []", "is not known here"),
        ("off = 3", "off is a list"),
        ('off = ["nobody"]', "there is no rule nobody"),
        ("[[rule]]\n" + HOSTILE, "takes too long"),
        ("\n".join(f'[[code]]\ncode = "EI{n:04}"\ncause = {{zh="一", en="a"}}' for n in range(501)), "at most 500"),
        ("#" * 300_000, "longer than 256 kB"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused_in_words_and_kept_in_the_form(file, administrator, text, words):
    answer = logged_in(administrator).post("/diagnoses/site/", {"act": "try", "text": text, "over": ""})
    assert answer.status_code == 422 and words in answer.content.decode()
    assert not file.exists()


def test_what_does_not_come_back_is_ended():
    text = '[[rule]]\nid = "for-ever"\nsays = ["' + "aaaa" + "{*}a" * 8 + 'b"]\ncause = { zh = "慢", en = "slow" }'
    assert "for-ever" in hostile.slow(text)[0]


def test_none_of_ours_is_slow():
    for _name, template in hostile.signatures(diagnoses.bundled()[::9]):
        assert all(len(line) <= hostile.MOST_LINE for line in hostile.lines(template))


def test_rules_are_tried_on_past_logs_and_saved_as_they_were_tried(file, attempt, server, administrator, operator):
    log_of(attempt, server, LINE)
    page = logged_in(administrator)
    over = site_rules.site().digest
    tried = page.post("/diagnoses/site/", {"act": "try", "text": RULE, "over": over})
    shown = tried.content.decode()
    assert "no log in which nothing was wrong" in shown and f"#{attempt.job_id}" in shown and "L2" in shown
    assert "would be our-licence-server" in shown
    other = RULE.replace("4711", "4712")  # not tried: it is, and nothing is saved
    again = page.post("/diagnoses/site/", {"act": "save", "text": other, "over": over, "tried": tried.context["tried"]})
    assert again.status_code == 200 and not file.exists()
    sent = {"act": "save", "text": RULE, "over": over, "tried": tried.context["tried"]}
    assert logged_in(operator).post("/diagnoses/site/", sent).status_code == 422 and not file.exists()
    assert page.post("/diagnoses/site/", sent).status_code == 302
    assert file.read_text() == RULE and names(LINE) == ["our-licence-server"]
    stale = page.post("/diagnoses/site/", sent)
    assert stale.status_code == 422 and "Somebody else has changed" in stale.content.decode()


def test_a_rule_that_speaks_of_a_healthy_log_says_so(attempt, server, operator):
    log_of(attempt, server, LINE, state="succeeded")
    shown = logged_in(operator).post("/diagnoses/site/", {"act": "try", "text": RULE, "over": ""}).content.decode()
    assert "1 log in which nothing was wrong" in shown and "Administrators save" in shown


def test_engines_are_tried_on_too(server, operator):
    replica = benchmark_rows.replica(on=server)
    line = Spool("x").chunk(("e", LINE))[1][b"z"]
    for n, code in ((1, 1), (2, 0)):
        piece = EngineLog.objects.create(
            pk=f"e{replica.pk}-{n}", replica=replica, server=server, n=n, next_line=2, done=True, exit_code=code,
            ended_at=timezone.now(),
        )  # fmt: skip
        EngineChunk.objects.create(log=piece, first=1, n=1, data=line)
    shown = logged_in(operator).post("/diagnoses/site/", {"act": "try", "text": RULE, "over": ""})
    rows = shown.context["trial"].rows
    assert [(row.head.pk[-1], row.failed, row.is_first) for row in rows] == [("2", False, False), ("1", True, True)]
    assert f"/deployments/qwen/replicas/1/log?piece=e{replica.pk}-1#L1" in shown.content.decode()


def test_trying_ends_in_time_and_says_how_far_it_came(attempt, server, operator, monkeypatch):
    log_of(attempt, server, LINE)
    monkeypatch.setattr("monitoring.services.rule_trial.BUDGET_S", -1.0)
    trial = logged_in(operator).post("/diagnoses/site/", {"act": "try", "text": RULE, "over": ""}).context["trial"]
    assert (trial.looked, trial.of) == (0, 1)


def test_a_viewer_reads_and_cannot_try(viewer, file):
    file.write_text(RULE)
    client = logged_in(viewer)
    assert "our-licence-server" in client.get("/diagnoses/site/").content.decode()
    assert client.post("/diagnoses/site/", {"act": "try", "text": RULE}).status_code == 403


def test_a_full_disk_loses_nothing(file, administrator, monkeypatch):
    file.write_text(RULE)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(site_rules, "_replace", full)
    before = site_rules.site().digest
    with pytest.raises(site_rules.Unavailable, match="No space left"):
        site_rules.save("", by=administrator, over=before)
    assert file.read_text() == RULE


def test_rest_reads_tries_and_saves(file, attempt, server, administrator):
    log_of(attempt, server, LINE)
    _row, token = ApiToken.make(administrator, "administrator")
    rest = Client(headers={"Authorization": f"Bearer {token}"})
    first = rest.get("/api/v1/diagnoses/site")
    assert first.json()["rules"] == []
    body = json.dumps({"text": RULE})
    tried = rest.post("/api/v1/diagnoses/site/try", body, content_type="application/json").json()
    assert tried["looked"] == 1 and tried["logs"][0]["findings"][0]["line"] == 2
    address = "/api/v1/diagnoses/site"
    assert rest.put(address, body, content_type="application/json").status_code == 422
    put = rest.put(address, body, content_type="application/json", headers={"If-Match": first["ETag"]})
    assert put.status_code == 200 and put.json()["rules"] == ["our-licence-server"]
    assert (
        rest.put(address, body, content_type="application/json", headers={"If-Match": first["ETag"]}).status_code == 409
    )
