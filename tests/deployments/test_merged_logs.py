"""Logs of several servers as one by time."""

import random

import pytest

from console.errors import Invalid
from deployments.models import Batch, Server
from deployments.services import merged_logs
from deployments.services.merged_logs import Wanted
from tests.deployments.log_rows import BASE, attempt, deployment, job, piece, records, replica, stored

pytestmark = pytest.mark.django_db


@pytest.fixture
def tiny(db):
    return deployment()


def engine(tiny, n, lines, chunk=3, offset=None, **fields):
    server = Server.objects.create(name=f"kp-{n:03}", clock_offset_s=offset)
    return stored(piece(replica(tiny, n, server), **fields), records(*lines), chunk)


def texts(answer):
    return [line[4].split("\t", 2)[2] for line in answer["lines"]]


def read(tiny, **wanted):
    return merged_logs.read(merged_logs.of_deployment(tiny), Wanted(**wanted))


def test_lines_stand_by_time_whatever_log_they_are_of(tiny):
    engine(tiny, 1, [(0, "a0"), (20, "a20"), (40, "a40")])
    engine(tiny, 2, [(10, "b10"), (30, "b30"), (50, "b50")], chunk=1)
    answer = read(tiny)
    assert texts(answer) == ["a0", "b10", "a20", "b30", "a40", "b50"]
    assert [source["name"] for source in answer["sources"]] == ["#1", "#2"]
    key, log, n, ms, _record = answer["lines"][1]
    assert (key.split(".")[0], log, n, ms) == ("2", f"e{tiny.replica_set.get(n=2).pk}-1", 1, BASE + 10)


def test_paging_back_and_forth_meets_every_line_once_in_the_order_of_its_log(tiny):
    """Also where clocks jump: 12 logs whose times are anything."""
    dice = random.Random(3)
    for n in range(1, 13):
        lines = [(dice.randint(0, 5000), f"{n}:{i}") for i in range(dice.randint(0, 60))]
        engine(tiny, n, lines, chunk=dice.randint(1, 20))
    every = sum((one.total for one in merged_logs.of_deployment(tiny).sources), 0)
    answer = read(tiny, n=37)
    back = texts(answer)
    while (answer := read(tiny, before=answer["before"], n=37))["lines"]:
        back = texts(answer) + back
    forth, answer = [], read(tiny, before=answer["before"], n=37)
    while (answer := read(tiny, after=answer["after"] or answer["before"], n=41))["lines"]:
        forth += texts(answer)
    for found in (back, forth):
        assert len(found) == every == len(set(found))
        for n in range(1, 13):
            own = [int(text.split(":")[1]) for text in found if text.startswith(f"{n}:")]
            assert own == sorted(own)


def test_a_clock_that_is_known_to_be_off_is_put_right_and_said(tiny):
    engine(tiny, 1, [(0, "a"), (1000, "c")], offset=0.01)
    engine(tiny, 2, [(60_500, "b")], offset=60.0)
    engine(tiny, 3, [(700, "b2")])
    answer = read(tiny)
    assert texts(answer) == ["a", "b", "b2", "c"]
    assert answer["lines"][1][3] == BASE + 500
    assert [one["corrected"] for one in answer["sources"]] == [False, True, False]
    assert answer["sources"][2]["offset_s"] is None


def test_the_lines_of_one_log_keep_their_order_where_its_clock_goes_backwards(tiny):
    engine(tiny, 1, [(100, "a1"), (5, "a2"), (110, "a3")])
    engine(tiny, 2, [(50, "b1"), (105, "b2")])
    found = texts(read(tiny))
    assert [text for text in found if text[0] == "a"] == ["a1", "a2", "a3"]
    assert sorted(found) == ["a1", "a2", "a3", "b1", "b2"]


def test_lines_without_a_time_stay_beside_their_neighbours(tiny):
    engine(tiny, 1, [(None, "head"), (20, "timed"), (None, "under it"), (60, "later")], chunk=4)
    engine(tiny, 2, [(10, "b10"), (40, "b40")])
    answer = read(tiny)
    assert texts(answer) == ["b10", "head", "timed", "under it", "b40", "later"]
    assert answer["lines"][1][3] == 0


def test_a_log_without_any_time_stands_where_its_engine_started(tiny):
    from datetime import UTC, datetime

    lines = [(None, f"n{i}") for i in range(9)]
    engine(tiny, 1, lines, started_at=datetime.fromtimestamp((BASE + 25) / 1000, UTC))
    engine(tiny, 2, [(10, "b10"), (40, "b40")])
    assert texts(read(tiny)) == ["b10", *(f"n{i}" for i in range(9)), "b40"]


def test_bytes_that_are_no_record_are_shown_whole(tiny):
    head = engine(tiny, 1, [(0, "a")])
    stored(head, ["no tabs at all", "99999999999999999999\to\tfar", "\udcff\udcfe"])
    engine(tiny, 2, [(10, "b")])
    answer = read(tiny)
    assert [line[4] for line in answer["lines"] if line[2] > 1] == [
        "no tabs at all",
        "99999999999999999999\to\tfar",
        "��",
    ]


def test_what_goes_on_a_line_stays_with_it(tiny):
    engine(tiny, 1, [(0, "long"), (30, "goes on", "+"), (31, "and on", "+")])
    engine(tiny, 2, [(10, "b10"), (20, "b20")])
    assert texts(read(tiny)) == ["long", "goes on", "and on", "b10", "b20"]


def test_starts_of_an_engine_are_one_source_and_each_line_names_its_piece(tiny):
    server = Server.objects.create(name="kp-1")
    row = replica(tiny, 1, server)
    for n in (1, 2, 3):
        stored(piece(row, n), records(*[(n * 100 + i, f"{n}.{i}") for i in range(4)]), 3)
    answer = read(tiny, n=6)
    assert texts(answer) == ["2.2", "2.3", "3.0", "3.1", "3.2", "3.3"]
    assert answer["lines"][0][1:3] == [f"e{row.pk}-2", 3]
    assert texts(read(tiny, before=answer["before"])) == ["1.0", "1.1", "1.2", "1.3", "2.0", "2.1"]


def test_the_end_moves_also_into_a_new_start_and_a_new_replica(tiny):
    head = engine(tiny, 1, [(0, "a")])
    answer = read(tiny)
    assert read(tiny, after=answer["after"])["lines"] == []
    stored(piece(head.replica, 2), records((50, "anew")))
    engine(tiny, 2, [(40, "another")])
    following = read(tiny, after=answer["after"])
    assert texts(following) == ["another", "anew"]
    assert read(tiny, after=following["after"])["lines"] == []


def test_a_log_that_is_switched_off_is_not_read(tiny):
    engine(tiny, 1, [(0, "a")])
    engine(tiny, 2, [(1, "b")])
    first = merged_logs.of_deployment(tiny).sources[0].key
    answer = read(tiny, off=frozenset([first, "no such"]))
    assert texts(answer) == ["b"] and answer["total"] == 1 and len(answer["sources"]) == 2


def test_the_nodes_of_one_replica_are_a_source_each(tiny):
    one, two = (Server.objects.create(name=name) for name in ("kp-1", "kp-2"))
    nodes = [{"server": server.pk, "name": server.name, "npus": [], "rank": n} for n, server in enumerate((one, two))]
    row = replica(tiny, 1, one, nodes=nodes)
    replica(tiny, 2, two)
    stored(piece(row, 1), records((0, "first")))
    stored(piece(row, 2, server=two), records((1, "second")))
    many = merged_logs.of_deployment(tiny, 1)
    assert [source.name for source in many.sources] == ["#1 kp-1", "#1 kp-2"]
    assert texts(merged_logs.read(many, Wanted())) == ["first", "second"]


def test_jobs_of_a_batch_with_all_their_attempts(tiny):
    batch = Batch.objects.create(kind="check")
    for n, name in enumerate(("kp-1", "kp-2")):
        row = job(Server.objects.create(name=name), batch=batch, wave=n)
        for k in (1, 2):
            stored(attempt(row, k), records((k * 100 + n, f"{name} {k}")))
    answer = merged_logs.read(merged_logs.of_batch(batch), Wanted())
    assert texts(answer) == ["kp-1 1", "kp-2 1", "kp-1 2", "kp-2 2"]
    assert answer["sources"][0]["log"] == f"/jobs/{batch.jobs.get(server__name='kp-1').pk}/?attempt="


def test_two_hundred_replicas_in_a_fixed_number_of_queries(tiny, django_assert_max_num_queries):
    for n in range(1, 206):
        engine(tiny, n, [(n + i * 300, f"{n}:{i}") for i in range(4)], chunk=4)
    with django_assert_max_num_queries(10):
        many = merged_logs.of_deployment(tiny)
        answer = merged_logs.read(many, Wanted(n=150))
    assert len(many.sources) == 200 and many.left_out == 5
    assert many.sources[0].name == "#6" and len(answer["lines"]) == 150
    times = [line[3] for line in answer["lines"]]
    assert times == sorted(times)
    assert len(answer["before"]) < 8000  # an address that servers take
    with django_assert_max_num_queries(6):
        assert merged_logs.read(merged_logs.of_deployment(tiny), Wanted(after=answer["after"]))["lines"] == []


def test_long_lines_bound_an_answer(tiny):
    engine(tiny, 1, [(i, "x" * 30_000) for i in range(60)], chunk=2)
    answer = read(tiny, n=2000)
    assert 30 <= len(answer["lines"]) < 40
    assert read(tiny, before=answer["before"], n=2000)["lines"][-1][2] == answer["lines"][0][2] - 1


@pytest.mark.parametrize("place", ["x", "1.1:e1-1", "a:b.-1", "1.1:e1-1.1~", "1.1:e1-1.9999999999999999", "a" * 50_000])
def test_a_place_that_is_none_is_refused_in_words(tiny, place):
    engine(tiny, 1, [(0, "a")])
    with pytest.raises(Invalid):
        read(tiny, before=place)
    with pytest.raises(Invalid):
        read(tiny, after=place)


def test_a_place_far_beyond_the_end_or_of_a_piece_that_is_gone_does_no_harm(tiny):
    head = engine(tiny, 1, [(0, "a"), (1, "b")])
    key = merged_logs.of_deployment(tiny).sources[0].key
    assert texts(read(tiny, before=f"{key}:{head.pk}.999999999999")) == ["a", "b"]
    assert read(tiny, after=f"{key}:{head.pk}.999999999999")["lines"] == []
    assert texts(read(tiny, after=f"{key}:e999-1.5")) == ["a", "b"]
    assert texts(read(tiny, before=f"77.1:{head.pk}.5")) == []


def test_as_text_each_line_has_its_time_and_its_source(tiny):
    engine(tiny, 1, [(0, "a\x1b[31m"), (None, "b")])
    text = merged_logs.plain_text(read(tiny))
    assert text == "2025-11-30T10:53:20.000Z\t#1\ta\x1b[31m\n-\t#1\tb\n"
