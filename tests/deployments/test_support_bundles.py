"""Support bundles on the console: made with a click, parts from servers that may be anybody, the archive, the end."""

import hashlib
import html
import io
import json
import zipfile
from datetime import timedelta

import pytest
from auditlog.models import LogEntry
from django.utils import timezone

from console.errors import ConsoleError, Invalid, NotAllowed, NotFound
from console.models import Alert
from deployments.agent import signing
from deployments.agent.support import INDEX
from deployments.agent.support.masking import Masks
from deployments.agent.support.part import Part
from deployments.kinds.support_bundle import SOURCES
from deployments.models import Attempt, Job, JobState, PartState, Server, SupportBundle, SupportPart
from deployments.services import (
    logs,
    signed_calls,
    support_archive,
    support_bundles,
    support_own,
    support_parts,
    support_subjects,
    told,
)
from deployments.services.logs import PlainText
from deployments.steps import Text
from tests.job_fixtures import Spool

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]


@pytest.fixture(autouse=True)
def store(settings, tmp_path, monkeypatch):
    settings.VAR_DIR = tmp_path / "var"
    monkeypatch.setattr(support_parts, "SPARE", 0)
    monkeypatch.setattr("deployments.agent.support.part.SPARE", 0)
    support_bundles.inbox().mkdir(parents=True)


@pytest.fixture
def failed(server):
    """A job that failed, with a log."""
    server.hostname = "kp-01.site"
    server.facts = {"kernel": "5.10", "addresses": ["10.1.2.3"]}
    server.save()
    now = timezone.now()
    job = Job.objects.create(server=server, kind="check", state=JobState.FAILED, not_after=now, ended_at=now)
    attempt = Attempt.objects.create(pk=f"a{job.pk}-1-00000001", job=job, n=1, state=JobState.FAILED, done=True)
    spool = Spool(attempt.pk)
    _entry, fields = spool.chunk(("o", "on kp-01 (10.1.2.3) password=hunter2"), ("e", "EI0002 timed out"))
    attempt.chunks.create(first=1, n=2, data=fields[b"z"])
    attempt.next_line = 3
    attempt.save()
    return job


@pytest.fixture
def bundle(failed, operator):
    return support_bundles.make(support_subjects.of_job(failed), by=operator, case_number="SR-77")


def part_of(tmp_path, files, missing=(), names=()):
    made = Part(tmp_path / "made.zip", Masks("s", names), 1 << 20, 1e18)
    for name, text in files.items():
        made.text(name, text)
    for what in missing:
        made.lacks(what, Text("没有", "not there"))
    return made.close().read_bytes()


def attempt_of(bundle):
    return Attempt.objects.get(job__support_parts__bundle=bundle, job__support_parts__source="readings")


def send(bundle, source, data, **more):
    """As an agent does; the bytes that are there then."""
    attempt = attempt_of(bundle)
    server = attempt.job.server
    said = {"op": "support", "server": server.pk, "attempt": attempt.pk, "source": source, "begin": 0,
            "size": len(data), "sha256": hashlib.sha256(data).hexdigest(), **more}  # fmt: skip
    body = json.dumps(said)
    return signed_calls.support(body, signing.sign(server.key, body), data)


def row(bundle, source):
    return next(one for one in support_bundles.rows(bundle) if one.part.source == source)


def end_jobs(bundle, state=JobState.SUCCEEDED, reason=None):
    Job.objects.filter(support_parts__bundle=bundle).update(state=state, reason=reason)


def archive(bundle):
    return zipfile.ZipFile(io.BytesIO(b"".join(support_archive.stream(bundle))))


# ---------- made ----------


def test_a_click_queues_a_job_on_each_server_and_keeps_the_case_number(bundle, failed, operator):
    job = Job.objects.get(kind="support_bundle")
    assert job.server == failed.server and job.params["bundle"] == bundle.pk and "kp-01.site" in job.params["names"]
    assert {one.part.source for one in support_bundles.rows(bundle)} == {*SOURCES, "console"}
    assert not support_bundles.is_ready(support_bundles.rows(bundle)) and bundle.case_number == "SR-77"
    again = support_bundles.make(support_subjects.of_job(failed), by=operator)
    assert again == bundle and Job.objects.filter(kind="support_bundle").count() == 1, "somebody clicked twice"
    assert LogEntry.objects.filter(additional_data__verb="support_bundle.made").count() == 1


def test_a_silent_server_has_parts_that_say_so_and_the_console_gives_what_it_has(failed, operator):
    Server.objects.update(last_seen_at=timezone.now() - timedelta(hours=1))
    bundle = support_bundles.make(support_subjects.of_job(Job.objects.get(pk=failed.pk)), by=operator)
    support_own.tend()
    found = support_bundles.rows(bundle)
    assert support_bundles.is_ready(found) and "silent" in row(bundle, "plog").why.en
    name = Masks(bundle.salt).name("kp-01")
    with archive(bundle) as packed:
        text = packed.read(f"console/jobs/{failed.pk}/attempt-1.log").decode()
        assert f"console/facts/{name}.json" in packed.namelist()
        facts = packed.read(f"console/facts/{name}.json").decode()
    assert "EI0002 timed out" in text and name in text and "hunter2" not in text and "10.1.2.3" not in text + facts
    assert "kp-01" not in facts


def test_only_who_may_operate_makes_one(failed, viewer):
    with pytest.raises(NotAllowed):
        support_bundles.make(support_subjects.of_job(failed), by=viewer)
    assert not SupportBundle.objects.exists()


@pytest.mark.parametrize("given", [{"case_number": "x" * 61}, {"case_number": "a\nb"}, {"note": "x" * 4001}])
def test_what_is_kept_with_it_has_bounds(failed, operator, given):
    with pytest.raises(Invalid):
        support_bundles.make(support_subjects.of_job(failed), by=operator, **given)


def test_subjects_are_found_by_what_an_address_names(failed, operator):
    alert = Alert.objects.create(name="x", what=["坏", "bad"], do=["", ""], link="/servers/kp-01/")
    assert support_subjects.read(alert=alert.pk).servers == [failed.server]
    assert support_subjects.read(server="kp-01").logs == (f"a{failed.pk}-1-00000001",)
    Alert.objects.filter(pk=alert.pk).update(link=f"/jobs/{failed.pk}/?x=1")
    assert support_subjects.read(alert=alert.pk).job == failed
    Alert.objects.filter(pk=alert.pk).update(link="/stacks/")
    for wanted, error in (({"alert": alert.pk}, Invalid), ({}, Invalid), ({"job": 2**70}, NotFound),
                          ({"server": "none"}, NotFound), ({"deployment": "none"}, NotFound)):  # fmt: skip
        with pytest.raises(error):
            support_subjects.read(**wanted)


# ---------- parts arrive ----------


def test_a_part_comes_in_pieces_and_its_archive_has_an_index(bundle, tmp_path):
    data = part_of(tmp_path, {"npu-smi/info.txt": "serial 123\n", "npu-smi/a<b>.txt": "x\n"}, missing=["hccn_tool"])
    half = len(data) // 2
    first, rest = data[:half], data[half:]
    how = {"size": len(data), "sha256": hashlib.sha256(first).hexdigest()}
    assert send(bundle, "readings", first, **how) == half
    assert send(bundle, "readings", first, **how) == half, "the same again changes nothing"
    assert row(bundle, "readings").part.here == half
    assert send(bundle, "readings", b"", size=len(data)) == half, "a question"
    assert send(bundle, "readings", rest, begin=half, size=len(data)) == len(data)
    assert send(bundle, "readings", b"", size=len(data)) == len(data)
    there = row(bundle, "readings")
    assert there.state == PartState.ARRIVED and there.part.missing[0]["why"] == ["没有", "not there"]
    name = Masks(bundle.salt).name("kp-01")
    with archive(bundle) as packed:
        assert packed.testzip() is None
        assert packed.read(f"{name}/readings/npu-smi/info.txt") == b"serial 123\n"
        index, page = json.loads(packed.read("index.json")), packed.read("index.html").decode()
    digest = hashlib.sha256(b"serial 123\n").hexdigest()
    assert digest in page and "SR-77" in page and "hccn_tool" in page and "kp-01" not in page
    assert "不" in page or "没有" in page
    files = next(one for one in index["parts"] if one["source"] == "readings")["files"]
    assert files[0]["path"] == f"{name}/readings/npu-smi/info.txt" and files[0]["sha256"] == digest


def test_parts_that_never_came_say_why(bundle):
    end_jobs(bundle)
    assert row(bundle, "plog").state == PartState.MISSING and "ended" in row(bundle, "plog").why.en
    end_jobs(bundle, JobState.LOST, ["失联", "lost for long"])
    assert row(bundle, "plog").why.en == "lost for long"


def test_nothing_is_taken_that_was_not_asked_signed_or_fits(bundle, tmp_path, server):
    data = part_of(tmp_path, {"a": "x"})
    attempt = attempt_of(bundle)
    body = json.dumps({"op": "support", "server": server.pk, "attempt": attempt.pk, "source": "plog", "begin": 0,
                       "size": len(data), "sha256": hashlib.sha256(data).hexdigest()})  # fmt: skip
    for wrong in (lambda: signed_calls.support(body, signing.sign("ff" * 32, body), data),
                  lambda: signed_calls.support(body, signing.sign(server.key, body), data + b"!"),
                  lambda: send(bundle, "plog", data, begin=-1), lambda: send(bundle, "plog", data, begin="0"),
                  lambda: send(bundle, "nonsense", data), lambda: send(bundle, "console", data),
                  lambda: send(bundle, "plog", data, attempt="a1-1-x\0"),
                  lambda: send(bundle, "plog", data, size=1 << 40), lambda: send(bundle, "plog", data, size=0),
                  lambda: send(bundle, "plog", data, size=len(data) - 1)):  # fmt: skip
        with pytest.raises(ConsoleError):
            wrong()
    other = Server.objects.create(name="kp-02")
    theirs = json.dumps({**json.loads(body), "server": other.pk})
    with pytest.raises(NotAllowed):
        signed_calls.support(theirs, signing.sign(other.key, theirs), data)
    end_jobs(bundle)
    with pytest.raises(NotAllowed):
        send(bundle, "plog", data)


def test_a_store_that_is_full_is_told_and_nothing_half_stays(bundle, tmp_path, monkeypatch, settings):
    data = part_of(tmp_path, {"a": "x"})
    settings.SUPPORT_BUNDLES_GB = 0
    with pytest.raises(Invalid) as refused:
        send(bundle, "plog", data)
    assert refused.value.status == 507
    settings.SUPPORT_BUNDLES_GB = 1
    monkeypatch.setattr(support_parts, "SPARE", 1 << 62)
    with pytest.raises(Invalid):
        send(bundle, "plog", data)


def raw_zip(names, index='{"entries": [], "missing": []}'):
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as packed:
        for name in names:
            packed.writestr(name, "x")
        if index is not None:
            packed.writestr(INDEX, index)
    return memory.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        b"no zip at all",
        raw_zip(["../../etc/cron.d/x"]),
        raw_zip(["/etc/passwd"]),
        raw_zip(["a\\..\\b"]),
        raw_zip(["a"], index=None),
        raw_zip(["a"], index="[1]"),
        raw_zip(["a"], index='{"entries": 5}'),
        raw_zip(["a"], index="[" * 100_000),
        raw_zip(["con\x1btrol"]),
        raw_zip(["a"]).replace(b"PK\x01\x02", b"PK\x01\x03"),
    ],
)
def test_a_part_that_no_agent_of_ours_packs_is_dropped_with_a_reason(bundle, data):
    send(bundle, "plog", data)
    there = row(bundle, "plog")
    assert there.state == PartState.MISSING and "cannot be read" in there.why.en
    assert not support_bundles.path_of(there.part).exists()
    with archive(bundle) as packed:
        assert set(packed.namelist()) == {"index.html", "index.json"}


def test_what_a_server_says_of_its_files_is_bounded_and_escaped(bundle):
    index = {"entries": [{"name": "a", "sha256": "<script>", "cut": -1, "masked": "x", "size": 10**40}],
             "missing": [{"what": "<script>alert(1)</script>", "why": ["<b>", "<b>"]}, 5, {"what": 1}]}  # fmt: skip
    send(bundle, "plog", raw_zip(["a"], json.dumps(index)))
    (entry,) = row(bundle, "plog").part.entries
    assert entry == {"name": "a", "size": 1, "sha256": "", "cut": 0, "binary": False, "masked": 0}
    assert len(row(bundle, "plog").part.missing) == 1
    with archive(bundle) as packed:
        page = packed.read("index.html").decode()
    assert "<script" not in page and html.escape("<script>alert(1)</script>") in page


def test_the_agent_of_this_machine_puts_its_parts_into_the_inbox(bundle, tmp_path, server):
    attempt, name = attempt_of(bundle), f"{'0a' * 16}.zip"
    (support_bundles.inbox() / name).write_bytes(part_of(tmp_path, {"a": "x"}))
    told.hand_over(attempt, "support_part", {"source": "plog", "inbox": name})
    assert row(bundle, "plog").state == PartState.WAITING, "no other server may name files here"
    Server.objects.update(is_local=True)
    told.hand_over(attempt_of(bundle), "support_part", {"source": "plog", "inbox": f"../{name}"})
    assert row(bundle, "plog").state == PartState.WAITING
    told.hand_over(attempt_of(bundle), "support_part", {"source": "plog", "inbox": name})
    assert row(bundle, "plog").state == PartState.ARRIVED and not list(support_bundles.inbox().iterdir())


# ---------- afterwards ----------


def test_a_bundle_is_described_and_deleted_with_its_files_and_jobs(bundle, operator, viewer, tmp_path):
    send(bundle, "plog", part_of(tmp_path, {"a": "x"}))
    support_bundles.describe(bundle, " SR-78 ", "called back", by=operator)
    assert support_bundles.listed("sr-78").get() == bundle == support_bundles.listed(f"#{bundle.pk}").get()
    for wrong in (lambda: support_bundles.describe(bundle, "", "", by=viewer),
                  lambda: support_bundles.delete(bundle, by=viewer),
                  lambda: support_archive.download(bundle, by=viewer)):  # fmt: skip
        with pytest.raises(NotAllowed):
            wrong()
    support_bundles.delete(bundle, by=operator)
    assert not SupportPart.objects.exists() and not (support_bundles.root() / str(bundle.pk)).exists()
    assert Job.objects.get(kind="support_bundle").cancel_requested_at


def test_old_bundles_go_and_the_oldest_where_they_are_too_much(failed, operator, settings):
    made = [SupportBundle.objects.create(made_by=operator) for _n in range(4)]
    for one in made:
        part = SupportPart.objects.create(bundle=one, source="plog", bytes=400_000_000, state=PartState.ARRIVED)
        support_bundles.path_of(part).parent.mkdir(parents=True)
    SupportBundle.objects.filter(pk=made[3].pk).update(created_at=timezone.now() - timedelta(days=31))
    (support_bundles.root() / "4711").mkdir()
    settings.SUPPORT_BUNDLES_GB = 1
    assert support_bundles.prune() == 2
    assert set(SupportBundle.objects.values_list("pk", flat=True)) == {made[1].pk, made[2].pk}
    assert {one.name for one in support_bundles.root().iterdir()} == {"inbox", str(made[1].pk), str(made[2].pk)}


def test_many_bundles_are_listed_in_one_query(bundle, operator, django_assert_num_queries):
    bundles = list(support_bundles.listed())
    with django_assert_num_queries(1):
        rows = support_bundles.rows_of_many(bundles)
    with django_assert_num_queries(1):
        told = support_bundles.as_json(bundle, support_bundles.rows(bundle))
    assert list(rows) == [bundle.pk] and told["id"] == bundle.pk


def test_the_log_in_the_bundle_is_the_log_of_the_console(failed):
    text = b"".join(logs.whole(failed.attempts.get())).decode()
    assert text.count("\n") == 2 and text.endswith("EI0002 timed out\n") and PlainText
