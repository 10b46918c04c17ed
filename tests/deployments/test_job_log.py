import random
from itertools import islice

import pytest

from deployments import ingest
from deployments.models import LogChunk
from deployments.services import logs


@pytest.fixture
def long_log(attempt, spool):
    """1,000 lines in chunks of differing length."""
    lines, entries, dice = iter(("o", f"line {n}") for n in range(1, 1001)), [], random.Random(7)
    while part := list(islice(lines, dice.randint(1, 90))):
        entries.append(spool.chunk(*part))
    ingest.store({attempt.job.server_id: entries})
    attempt.refresh_from_db()
    return attempt


def texts(found):
    return [line.split("\t", 2)[2] for line in found.text.split("\n")] if found.n else []


@pytest.mark.parametrize("after, n", [(0, 10), (0, 1000), (499, 3), (998, 500), (123, 456)])
def test_a_range_holds_exactly_the_lines_that_follow(long_log, after, n):
    found = logs.after(long_log, after, n)
    assert found.first == after + 1
    assert found.n == min(n, 1000 - after)
    assert found.total == 1000
    assert texts(found) == [f"line {i}" for i in range(after + 1, after + found.n + 1)]


@pytest.mark.parametrize("before, n", [(1001, 500), (2, 10), (500, 1), (300, 2000)])
def test_the_lines_before_another_end_right_at_it(long_log, before, n):
    found = logs.before(long_log, before, n)
    assert texts(found) == [f"line {i}" for i in range(max(1, before - n), before)]
    assert found.first == max(1, before - n)


def test_outside_of_a_log_there_is_nothing(long_log, attempt):
    assert logs.after(long_log, 1000).n == logs.after(long_log, 10**12).n == logs.before(long_log, 1).n == 0
    LogChunk.objects.all().delete()
    attempt.next_line = 1
    assert logs.tail(attempt).n == 0


def test_a_range_reads_few_chunks_however_long_the_log_is(long_log, django_assert_num_queries):
    with django_assert_num_queries(2):
        assert logs.after(long_log, 900, 20).n == 20


def test_long_lines_bound_an_answer_and_the_rest_follows(attempt, spool):
    ingest.store({attempt.job.server_id: [spool.chunk(("o", str(i) * 30_000)) for i in range(9)] * 1})
    for _ in range(40):
        ingest.store({attempt.job.server_id: [spool.chunk(("o", "x" * 30_000))]})
    attempt.refresh_from_db()
    seen = 0
    while (found := logs.after(attempt, seen)).n:
        assert len(found.text) <= logs.MAX_BYTES
        assert found.first == seen + 1
        seen += found.n
    assert seen == 49
    last = logs.tail(attempt, 2000)
    assert last.first + last.n - 1 == 49
    assert len(last.text) <= logs.MAX_BYTES


def test_one_line_longer_than_an_answer_is_still_given(attempt, spool, monkeypatch):
    monkeypatch.setattr(logs, "MAX_BYTES", 10)
    ingest.store({attempt.job.server_id: [spool.chunk(("o", "x" * 100), ("o", "y" * 100))]})
    attempt.refresh_from_db()
    assert logs.after(attempt, 0).n == logs.tail(attempt).n == 1


def plain(*records):
    writer = logs.PlainText()
    stamped = (f"1764500000000\t{kind}\t{text}".encode() for kind, text in records)
    return [line.split("\t", 1)[1].rstrip("\n") for line in [*writer.feed(stamped), *writer.flush()]]


def test_plain_text_keeps_only_the_last_state_of_progress():
    assert plain(("p", "1 %"), ("p", "50 %"), ("o", "100 %"), ("o", "done")) == ["100 %", "done"]
    assert plain(("p", "1 %"), ("p", "50 %"), ("s", "stopped")) == ["50 %", "[console] stopped"]
    assert plain(("p", "1 %"), ("p", "7 %")) == ["7 %"]


def test_plain_text_joins_what_was_cut_and_marks_what_was_lost():
    assert plain(("o", "a" * 5), ("+", "b" * 5), ("+", "c"), ("g", "41")) == [
        "aaaaabbbbbc",
        "[console] 41 lines were lost here",
    ]


def test_plain_text_shows_events_in_words_and_unknown_ones_as_they_are():
    step = '{"e": "step", "n": 1, "of": 2, "title": ["检查", "Check"], "argv": ["npu-smi", "info"]}'
    assert plain(("v", step)) == ["[console] step 1/2: Check $ npu-smi info"]
    assert plain(("v", "{broken")) == ["[console] {broken"]
    assert plain(("v", '{"e": "ended", "state": "failed", "reason": ["坏", "bad"]}')) == [
        "[console] ended: failed, bad"
    ]


def test_plain_text_has_iso_times():
    writer = logs.PlainText()
    assert [*writer.feed([b"1764500000123\to\thello"]), *writer.flush()] == ["2025-11-30T10:53:20.123Z\thello\n"]
    assert [*writer.feed([b"no tabs at all \xff"]), *writer.flush()] == ["-\tno tabs at all \ufffd\n"]


@pytest.mark.parametrize("stamp", ["²", "999999999999999", "٣", "-5", "", "9" * 40])
def test_plain_text_takes_any_stamp(stamp):
    writer = logs.PlainText()
    (line,) = [*writer.feed([f"{stamp}\to\thello".encode()]), *writer.flush()]
    assert line.endswith("hello\n")


def test_one_record_is_one_line_of_plain_text_whatever_its_event_holds():
    forged = (
        '{"e": "step", "n": 1, "of": 1, "title": ["", "x"], "argv": ["a\\n2025-11-30T10:53:20.123Z\\tforged\\u2028b"]}'
    )
    assert plain(("v", forged)) == ["[console] step 1/1: x $ a\\n2025-11-30T10:53:20.123Z\tforged\\nb"]
    assert plain(("v", '{"e": "item", "found": ' + "[" * 5000 + "]" * 5000 + "}"))


def test_plain_text_holds_little_of_a_line_that_goes_on_and_on():
    writer = logs.PlainText()
    records = [b"1764500000000\to\thead", *[b"1764500000000\t+\t" + b"x" * 32_000] * 200]
    longest = total = 0
    for part in writer.feed(records):
        longest, total = max(longest, len(part)), total + len(part)
    rest = "".join(writer.flush())
    assert longest < logs.MAX_HELD + 33_000 and total + len(rest) == 200 * 32_000 + len(
        "2025-11-30T10:53:20.000Z\thead\n"
    )
    assert rest.endswith("x\n") and not [*writer.flush()]
