"""Search in stored logs: by text and expression, going down and up, in parts, by level and process; hostile lines."""

import random
import re
import time
import zlib
from collections import Counter
from types import SimpleNamespace

import pytest
from django.test import Client

from console import regexes
from console.errors import Invalid
from deployments import ingest, log_levels
from deployments.models import LogChunk
from deployments.services import log_search
from deployments.services.log_search import Query
from tests.conftest import ROOT
from tests.job_fixtures import Spool

pytestmark = pytest.mark.django_db


def written(attempt, server, *records, each=7):
    """The records in chunks of `each`; the attempt as it is read afterwards."""
    spool = Spool(attempt.pk)
    entries = [spool.chunk(*records[at : at + each]) for at in range(0, len(records), each)]
    ingest.store({server.pk: entries})
    attempt.refresh_from_db()
    return attempt


def lines(found):
    return [hit.line for hit in found.hits]


@pytest.fixture
def log(attempt, server):
    """100 lines; every tenth, from 5 on, says needle."""
    rows = [("o", f"line {n} {'Needle' if n % 10 == 5 else 'hay'}") for n in range(1, 101)]
    return written(attempt, server, *rows)


def test_all_are_found_and_counted(log):
    found = log_search.search(log, Query("needle"))
    assert lines(found) == list(range(5, 100, 10)) and found.count == 10
    assert (found.scanned_to, found.total, found.complete) == (100, 100, True)
    assert found.hits[0].spans == [[7, 13]]


def test_case_counts_where_it_is_asked_for(log):
    assert log_search.search(log, Query("needle", case=True)).count == 0
    assert log_search.search(log, Query("Needle", case=True)).count == 10


@pytest.mark.parametrize(("line", "after", "before"), [(45, 55, 35), (44, 45, 35), (99, None, 95), (1, 5, None)])
def test_the_next_and_the_one_before(log, line, after, before):
    down = log_search.search(log, Query("needle"), after=line, n=1, stop=True)
    up = log_search.search(log, Query("needle"), before=line, n=1)
    assert (lines(down) or [None])[0] == after and (lines(up) or [None])[-1] == before


def test_hits_beyond_the_number_asked_for_are_counted_alone(log):
    found = log_search.search(log, Query("needle"), n=3)
    assert (len(found.hits), found.count) == (3, 10)


def test_a_search_ends_in_time_and_goes_on(log):
    all_lines, after, count, rounds = [], 0, 0, 0
    while True:
        found = log_search.search(log, Query("needle"), after=after, budget_s=-1)
        all_lines += lines(found)
        count, rounds, after = count + found.count, rounds + 1, found.scanned_to
        if found.complete:
            break
    assert all_lines == list(range(5, 100, 10)) and count == 10 and rounds == 15
    up, before = [], 101
    while True:
        found = log_search.search(log, Query("needle"), before=before, budget_s=-1)
        up = lines(found) + up
        before = found.scanned_to
        if found.complete:
            break
    assert up == all_lines


def test_what_grows_meanwhile_is_found_next(log, server):
    found = log_search.search(log, Query("needle"))
    log.next_line = 51  # as it was when the search began
    early = log_search.search(log, Query("needle"))
    assert (early.count, early.scanned_to, early.complete) == (5, 50, True) and found.count == 10


def test_an_expression_sees_the_text_of_a_line_alone(attempt, server):
    log = written(attempt, server, ("o", "rank 3 failed"), ("e", "no rank"), ("o", "rank 12 failed"))
    assert lines(log_search.search(log, Query(r"^rank \d+ failed$", regex=True))) == [1, 3]
    assert log_search.search(log, Query(r"^\d+\t", regex=True)).count == 0


@pytest.mark.parametrize("bad", ["needle(", "(?=x)", "a{1000}{1000}", r"(a)\1", "x" * 501, "\\"])
def test_an_expression_that_cannot_be_used_is_refused_in_words(log, bad):
    with pytest.raises(Invalid):
        log_search.search(log, Query(bad, regex=True))


def test_a_catastrophic_expression_costs_no_more_than_the_line_is_long():
    began = time.monotonic()
    assert regexes.compiled(r"(a+)+$").search(b"a" * 200_000 + b"b") is None
    assert regexes.compiled(r"(x+x+)+y").search(b"x" * 200_000) is None
    assert time.monotonic() - began < 2


def test_colours_do_not_hide_a_word_and_spans_count_as_scripts_do(attempt, server):
    log = written(attempt, server, ("o", "\x1b[31mnee\x1b[1mdle\x1b[0m"), ("o", "加载😀 needle"), ("o", "x"))
    found = log_search.search(log, Query("needle"))
    assert [hit.spans for hit in found.hits] == [[[0, 6]], [[5, 11]]]


def test_chinese_and_what_is_no_utf8_are_found(attempt, server):
    log = written(attempt, server, ("o", "建链超时 rank 7"))
    raw = b"1700000000000\to\tbroken \xff\xfe needle\n"
    LogChunk.objects.create(attempt=log, first=2, n=1, data=zlib.compress(raw))
    log.next_line = 3
    assert lines(log_search.search(log, Query("建链"))) == [1]
    assert lines(log_search.search(log, Query("needle"))) == [2]


def test_progress_counts_as_it_was_last(attempt, server):
    rows = [("p", "shards 1/3"), ("p", "shards 2/3"), ("o", "shards 3/3"), ("p", "graphs 1/2"), ("s", "shards done")]
    log = written(attempt, server, *rows)
    assert lines(log_search.search(log, Query("shards"))) == [3, 5]
    assert lines(log_search.search(log, Query("graphs"))) == [4]


def test_events_are_found_by_their_words_not_by_their_form(attempt, server):
    spool = Spool(attempt.pk)
    event = {"e": "item", "verdict": "failed", "title": ["驱动", "Driver"], "found": "24.1", "wanted": "25.0"}
    ingest.store({server.pk: [spool.event(**event)]})
    attempt.refresh_from_db()
    for text, n in (("驱动", 1), ("driver", 1), ("24.1", 1), ("verdict", 0), ('"e"', 0)):
        assert log_search.search(attempt, Query(text)).count == n, text
    assert lines(log_search.first_error(attempt)) == [1]


def test_a_very_long_line_is_looked_through_in_its_parts(attempt, server):
    spool = Spool(attempt.pk)
    entries = [spool.chunk(("o", "a" * 30_000), ("+", "b" * 30_000)) for _ in range(20)]
    entries.append(spool.chunk(("+", "needle" + "c" * 20_000)))
    ingest.store({server.pk: entries})
    attempt.refresh_from_db()
    assert lines(log_search.search(attempt, Query("needle"))) == [41]


def test_an_answer_is_bounded(attempt, server):
    spool = Spool(attempt.pk)
    ingest.store({server.pk: [spool.chunk(*[("o", "needle " + "x" * 30_000)] * 4) for _ in range(30)]})
    attempt.refresh_from_db()
    found = log_search.search(attempt, Query("needle"), n=1000, stop=True)
    assert sum(len(hit.record) for hit in found.hits) < 1.1 * log_search.MOST_BYTES and not found.complete
    up = log_search.search(attempt, Query("needle"), before=121, n=1000)
    assert sum(len(hit.record) for hit in up.hits) < 1.1 * log_search.MOST_BYTES and not up.complete


LEVELS = [
    ("ERROR 11-20 10:00:00 [core.py:7] x", "error"), ("ValueError: no such file", "error"), ("all is well", ""),
    ("Traceback (most recent call last):", "error"), ("[failed] driver  24.1", "error"), ("no errors: 0", ""),
    ("WARNING 11-20 x", "warning"), ("WARN x", "warning"), ("[warning] swap  on", "warning"), ("INFO 11-20 x", "info"),
    ("DEBUG x", "debug"), ("fatal: ERRORS", ""), ("gcc: error: no input", "error"), ("INFO ERROR both", "error"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "level"), LEVELS)
def test_levels(text, level):
    assert log_levels.of("o", text.encode()) == level


def test_the_viewer_judges_levels_alike():
    script = (ROOT / "static/js/log/records.js").read_text()
    for name, ours in (("ERROR", log_levels.ERROR), ("WARNING", log_levels.WARNING)):
        theirs = re.search(rf"^const {name} = /(.*)/;$", script, re.M)[1]
        assert theirs.replace("\\[", "[").replace("\\]", "]") == ours.decode().replace("\\[", "[").replace("\\]", "]")


@pytest.mark.parametrize(
    ("text", "process"),
    [
        ("[rank3]: boom", "3"), ("[Rank 12] x", "12"), ("(EngineCore_DP0 pid=4711) INFO x", "EngineCore_DP0"),
        ("(Worker_TP3 pid=7) INFO x", "Worker_TP3"), ("(APIServer pid=7) INFO x", "APIServer"), ("INFO x", ""),
        ("[TP1] x", "TP1"), ("(anything pid=3) x", ""),
    ],
)  # fmt: skip
def test_processes(text, process):
    assert log_levels.process_of(text.encode()) == process


@pytest.fixture
def engine(attempt, server):
    rows = [("o", f"(Worker_TP{n % 2} pid=7) {'ERROR' if n == 33 else 'INFO'} step {n}") for n in range(40)]
    return written(attempt, server, *rows)


def test_levels_and_processes_are_counted_in_parts(engine):
    found = log_search.facets(engine)
    assert (dict(found.levels), log_search.in_order(found.ranks)) == (
        {"info": 39, "error": 1},
        ["Worker_TP0", "Worker_TP1"],
    )
    part = log_search.facets(engine, budget_s=-1)
    assert part.scanned_to == 7 and not part.complete and part.levels["info"] == 7


def test_a_filter_takes_level_process_and_text_together(engine):
    assert lines(log_search.search(engine, Query(level="error"))) == [34]
    assert log_search.search(engine, Query(rank="Worker_TP0")).count == 20
    assert lines(log_search.search(engine, Query("step 33", level="error", rank="Worker_TP1"))) == [34]
    assert log_search.search(engine, Query("step 33", rank="Worker_TP0")).count == 0


def test_ranks_stand_in_the_order_of_their_numbers():
    assert log_search.in_order({"10", "2", "Worker_TP10", "Worker_TP9"}) == ["2", "10", "Worker_TP9", "Worker_TP10"]


def test_two_queries_whatever_the_length(log, django_assert_max_num_queries):
    with django_assert_max_num_queries(2):
        log_search.search(log, Query("needle"))


# ---------- as the viewer asks ----------


@pytest.fixture
def ask(log, viewer):
    client = Client()
    client.force_login(viewer)
    headers = {"Accept": "application/json"}

    def asked(service, status=200, **given):
        answer = client.get(f"/jobs/{log.job_id}/{service}", given, headers=headers)
        assert answer.status_code == status, answer.content
        return SimpleNamespace(**answer.json())

    return asked


def test_the_viewer_is_told_hits_counts_and_where_to_go_on(ask):
    told = ask("find", q="needle", n=2)
    assert (told.count, told.scanned_to, told.total, told.complete) == (10, 100, 100, True)
    assert [hit["n"] for hit in told.hits] == [5, 15]
    assert [hit["n"] for hit in ask("find", q="needle", n=1, after=20, stop=1).hits] == [25]
    assert [hit["n"] for hit in ask("find", q="needle", n=1, before=20).hits] == [15]


def test_a_filtered_view_keeps_the_numbers_of_its_lines(ask):
    tail = ask("filtered", q="needle", n=3)
    assert tail.lines == [75, 85, 95] and tail.text.count("Needle") == 3 and not tail.done
    older = ask("filtered", q="needle", n=30, before=75)
    assert older.lines == [5, 15, 25, 35, 45, 55, 65] and older.done
    assert ask("filtered", q="needle", after=85).lines == [95]


def test_the_first_error_and_facets(ask):
    assert ask("first-error").line is None
    assert ask("facets").complete


@pytest.mark.parametrize(
    "given", [{"q": "(", "regex": "1"}, {"q": "x" * 1001}, {"level": "loud"}, {"q": "x", "after": "-1"}]
)
def test_what_cannot_be_asked_is_refused_in_words(ask, given):
    assert ask("find", 422, **given).error["what"]


def test_who_is_not_signed_in_finds_nothing(log):
    assert Client().get(f"/jobs/{log.job_id}/find", {"q": "x"}).status_code in (302, 401, 403)


def test_counts_of_a_whole_chunk_are_those_of_its_lines_judged_one_by_one():
    chance = random.Random(11)
    words = ("INFO", "DEBUG", "TRACE", "WARN", "WARNING", "ERROR", "fooError: x", "Exception: ", "[failed] ", "error: ",
             "[warning] ", "xINFO", "INFOx", "_DEBUG", "TRACE1", "UNWARN", "\x1b[31mINFO\x1b[0m", "IN\x1b[1mFO", "é",
             " ", "FATAL", "(Worker_TP3 pid=7)", "[rank12]", "[DP1]", '{"e":"item","verdict":"failed"}')  # fmt: skip
    kinds = ("o", "e", "s", "p", "+", "g", "v", "")
    for _ in range(200):
        records = [
            f"{chance.choice(('1764500000000', '0', 'x'))}\t{chance.choice(kinds)}\t"
            f"{chance.choice(('', ' ')).join(chance.choices(words, k=chance.randint(0, 4)))}".encode()
            for _ in range(60)
        ]
        found = log_search.Facets()
        log_search._count(found, records)
        one_by_one = Counter()
        for record in records:
            kind = record.split(b"\t")[1].decode()
            if kind in ("o", "e", "s"):
                one_by_one[log_levels.of(kind, log_search.shown(record))] += 1
            elif kind in ("v", "g"):
                one_by_one[log_levels.of(kind, record[16:])] += 1
        del one_by_one[""]
        assert found.levels == one_by_one
        assert found.ranks <= {"Worker_TP3", "12", "DP1"}
