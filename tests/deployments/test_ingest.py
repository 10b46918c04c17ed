import json
import random
import zlib

import pytest
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deployments import ingest
from deployments.models import Attempt, Job, JobState, LogChunk, Server
from tests.job_fixtures import Spool

pytestmark = pytest.mark.django_db


def stored_lines(attempt):
    chunks = LogChunk.objects.filter(attempt=attempt).order_by("first")
    return b"".join(zlib.decompress(bytes(chunk.data)) for chunk in chunks).decode().splitlines()


def test_lines_are_stored_once_and_in_order_whatever_is_sent_again(server, attempt, spool):
    entries = [spool.chunk(*[("o", f"line {n}") for n in range(start, start + 3)]) for start in range(0, 60, 3)]
    dice = random.Random(7)
    sent = 0
    while sent < len(entries):
        start = max(0, sent - dice.randint(0, 4))  # a shipper that goes back to an older place
        window = entries[start : start + dice.randint(1, 6)]
        done = ingest.store({server.pk: window})
        sent = (done.acked[(server.pk, attempt.pk)][0] - 1) // 3
    assert [line.split("\t")[2] for line in stored_lines(attempt)] == [f"line {n}" for n in range(60)]


def test_a_hole_changes_nothing_and_the_answer_says_where_to_go_on(server, attempt, spool):
    first, lost, third = (spool.chunk(("o", name)) for name in "abc")
    ingest.store({server.pk: [first]})
    done = ingest.store({server.pk: [third]})
    assert done.acked[(server.pk, attempt.pk)] == [2, int(lost[1][b"b0"]), False]
    assert len(stored_lines(attempt)) == 1


def test_events_fold_into_steps_report_and_state(server, attempt, spool):
    done = ingest.store(
        {
            server.pk: [
                spool.event(e="started", attempt=attempt.pk, pid=1, host="h"),
                spool.event(e="step", n=1, of=1, title=["系统", "System"], argv=["uname", "-m"]),
                spool.event(
                    e="item",
                    key="arch",
                    title=["架构", "Architecture"],
                    verdict="warning",
                    found="x86_64",
                    wanted="aarch64",
                    remedy=["换", "Change"],
                    job=None,
                ),
                spool.event(e="step_end", n=1, state="succeeded", exit=0, took_s=0.1),
            ]
        }
    )
    job = Job.objects.get(pk=attempt.job_id)
    assert job.state == JobState.RUNNING and set(done.jobs) == {job.pk}
    done = ingest.store({server.pk: [spool.event(e="ended", state="succeeded", exit=0, reason=None)]})
    attempt.refresh_from_db()
    job.refresh_from_db()
    assert (job.state, attempt.done, attempt.exit_code) == (JobState.SUCCEEDED, True, 0)
    assert job.started_at < job.ended_at
    assert attempt.report[0]["verdict"] == "warning" and attempt.report[0]["line"] == 3
    step = attempt.steps.get()
    assert (step.title_zh, step.state, step.first_line, step.last_line, step.argv) == (
        "系统",
        "succeeded",
        2,
        4,
        ["uname", "-m"],
    )
    assert done.acked[(server.pk, attempt.pk)][2] is True


def test_a_lost_job_takes_its_true_state_when_the_end_arrives_late(server, attempt, spool):
    Job.objects.filter(pk=attempt.job_id).update(state=JobState.LOST, reason=["静默", "silent"])
    ingest.store(
        {server.pk: [spool.event(e="started"), spool.event(e="ended", state="failed", exit=3, reason=["坏", "bad"])]}
    )
    job = Job.objects.get(pk=attempt.job_id)
    assert (job.state, job.reason) == (JobState.FAILED, ["坏", "bad"])


def test_an_old_attempt_does_not_change_the_job(server, attempt, spool):
    Attempt.objects.create(pk="a1-2-00000002", job=attempt.job, n=2)
    ingest.store({server.pk: [spool.event(e="ended", state="failed", exit=1)]})
    assert Job.objects.get(pk=attempt.job_id).state == JobState.QUEUED
    assert Attempt.objects.get(pk=attempt.pk).state == JobState.FAILED


def test_a_server_cannot_write_to_the_jobs_of_another(attempt, spool):
    other = Server.objects.create(name="kp-66")
    done = ingest.store({other.pk: [spool.chunk(("o", "forged")), spool.event(e="ended", state="succeeded")]})
    assert stored_lines(attempt) == [] and done.chunks == []
    assert Job.objects.get(pk=attempt.job_id).state == JobState.QUEUED
    assert done.acked[(other.pk, attempt.pk)][2] is True  # it is told to forget what nobody knows


def test_nothing_is_stored_after_the_end(server, attempt, spool):
    ingest.store({server.pk: [spool.event(e="ended", state="succeeded", exit=0), spool.chunk(("o", "more"))]})
    assert len(stored_lines(attempt)) == 1


BAD = [
    {},
    {b"a": b"x"},
    {b"a": b"\xff", b"f": b"1", b"n": b"1", b"b0": b"0", b"b1": b"2", b"z": zlib.compress(b"a\n")},
    {b"a": b"x", b"f": b"one", b"n": b"1", b"b0": b"0", b"b1": b"2", b"z": zlib.compress(b"a\n")},
    {b"a": b"x", b"f": b"1", b"n": b"2", b"b0": b"0", b"b1": b"2", b"z": zlib.compress(b"a\n")},
    {b"a": b"x", b"f": b"1", b"n": b"1", b"b0": b"0", b"b1": b"9", b"z": zlib.compress(b"a\n")},
    {b"a": b"x", b"f": b"1", b"n": b"1", b"b0": b"0", b"b1": b"2", b"z": b"not zlib"},
    {b"a": b"x", b"f": b"1", b"n": b"1", b"b0": b"0", b"b1": b"2", b"z": zlib.compress(b"a\n")[:-3]},
    {
        b"a": b"x",
        b"f": b"1",
        b"n": b"1",
        b"b0": b"0",
        b"b1": str(64 << 20).encode(),
        b"z": zlib.compress(b"\0" * (64 << 20)),
    },
]


@pytest.mark.parametrize("fields", BAD)
def test_an_entry_that_no_agent_writes_is_dropped(server, attempt, spool, fields):
    good = spool.chunk(("o", "good"))
    with pytest.raises(ingest.BadChunk):
        ingest.read_chunk(fields)
    done = ingest.store({server.pk: [(b"1-0", fields), (b"2-0", good[1])]})
    assert done.lines == 1
    assert Server.objects.get(pk=server.pk).logs_cursor == "2-0"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
EVENT_FIELDS = [
    "n",
    "of",
    "title",
    "argv",
    "state",
    "exit",
    "key",
    "verdict",
    "found",
    "wanted",
    "remedy",
    "job",
    "rung",
    "reason",
]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(sorted(ingest.FOLDS)), st.dictionaries(st.sampled_from(EVENT_FIELDS), json_values, max_size=6))
def test_no_event_however_wrong_stops_ingest(server, kind, fields):
    attempt = Attempt.objects.create(
        pk=f"a0-{Attempt.objects.count()}-x", n=Attempt.objects.count() + 1, job=_job(server)
    )
    entry = Spool(attempt.pk).chunk(
        ("v", json.dumps({**fields, "e": kind})), ("v", "{broken"), ("v", "[1]"), ("o", "last")
    )
    assert ingest.store({server.pk: [entry]}).lines == 4


def _job(server):
    return Job.objects.filter(server=server).first() or Job.objects.create(
        server=server, kind="check", not_after=server.created_at
    )


def test_words_that_no_database_keeps_are_made_harmless(server, attempt, spool):
    """A lone surrogate breaks SQLite, a null character PostgreSQL, NaN both: one server's would stop all logs."""
    bad, job = "a\ud800b\0c", {"kind": "a\ud800b\0c", "params": {"x": float("inf")}}
    ingest.store(
        {
            server.pk: [
                spool.event(e="started", attempt=attempt.pk, pid=1, host=bad),
                spool.event(e="step", n=1, of=1, title=[bad, bad], argv=[bad]),
                spool.event(e="item", key=bad, title=[bad, []], found=bad, wanted=float("nan"), verdict={}, job=job),
                spool.event(e="ended", state="failed", exit=10**30, reason=[bad, bad]),
            ]
        }
    )
    attempt.refresh_from_db()
    (item,) = attempt.report
    assert item["found"] == "a\ufffdb\ufffdc" and item["wanted"] is None and item["job"]["params"]["x"] is None
    assert attempt.steps.get().title_en == attempt.job.reason[0] == "a\ufffdb\ufffdc"
    assert (attempt.done, attempt.exit_code) == (True, None)


@pytest.mark.parametrize("depth", range(800, 1000, 20))
def test_values_nested_as_deep_as_json_goes_stop_nobody(server, attempt, spool, depth):
    """What json.loads just takes, json.dumps and str may refuse, deeper in the stack."""
    nested = "[" * depth + "]" * depth
    record = f'{{"e": "item", "found": {nested}, "title": ["", {nested}], "job": {{"kind": "x", "p": {nested}}}}}'
    ingest.store({server.pk: [spool.chunk(("v", record)), spool.chunk(("o", "on"))]})
    assert len(stored_lines(attempt)) == 2


@pytest.mark.parametrize("ms", ["-62135596800000", "253402300799999", "9" * 40])
def test_a_time_that_no_page_can_show_is_moved_to_one_that_it_can(server, attempt, spool, ms):
    place, fields = spool.event(e="started", attempt=attempt.pk, pid=1, host="h")
    _stamp, rest = zlib.decompress(fields[b"z"]).split(b"\t", 1)
    raw = ms.encode() + b"\t" + rest
    ingest.store({server.pk: [(place, {**fields, b"b1": str(len(raw)).encode(), b"z": zlib.compress(raw)})]})
    attempt.refresh_from_db()
    assert 1970 <= attempt.started_at.year <= 9999
    timezone.localtime(attempt.started_at)


def test_no_step_runs_in_an_attempt_that_has_ended_and_an_ended_step_keeps_its_state(server, attempt, spool):
    """A runner that dies as its second step is about to begin leaves its adopter the number of the first."""
    told = [
        spool.event(e="started"),
        spool.event(e="step", n=1, of=2, title=["一", "One"], argv=["a"]),
        spool.event(e="step_end", n=1, state="succeeded", exit=0),
        spool.event(e="step", n=2, of=2, title=["二", "Two"], argv=["b"]),
        spool.event(e="step_end", n=1, state="failed", exit=None),
        spool.event(e="ended", state="failed", exit=None, reason=["死", "died"]),
    ]
    ingest.store({server.pk: told})
    assert list(attempt.steps.values_list("n", "state", "last_line")) == [(1, "succeeded", 3), (2, "failed", 6)]
