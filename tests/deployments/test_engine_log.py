"""What an engine prints: in engine.log byte for byte, in pieces line for line, whatever it is and the disk does."""

import os
import time

import pytest

from deployments.agent import spool
from deployments.agent.engines import folder, logfile, pieces
from deployments.agent.engines.hearing import Hearing
from tests.deployments.engine_bench import Bench
from tests.waiting import until


@pytest.fixture
def place(tmp_path):
    (tmp_path / "engines" / "e7").mkdir(parents=True)
    (found,) = (folder.Folder(tmp_path / "engines" / "e7", tmp_path / "logs"),)
    return found


class Written:
    """A hearing without an engine: this test prints."""

    def __init__(self, place, key=""):
        self.place = place
        self.hearing = Hearing(place, key)
        self.output = self.hearing.capture.make()
        self.hearing.begin_piece()
        self.hearing.follow()

    def say(self, data):
        view = memoryview(data)
        while view:
            view = view[os.write(self.output, view[:200_000]) :]
            self.hearing.hear()
        self.hearing.catch_up()
        self.hearing.pieces.tick()

    def records(self):
        self.hearing.pieces.writer.flush()
        found = []
        for n in range(1, self.place.newest_piece() + 1):
            data = (self.place.piece_folder(n) / "lines").read_bytes()
            found += [tuple(line.split(b"\t", 2)[1:]) for line in data.split(b"\n")[:-1]]
        return found

    def lines(self):
        return [text for kind, text in self.records() if kind == b"o"]


def test_hostile_bytes_stay_as_they_are_on_the_server_and_become_text_for_the_console(place):
    written = Written(place)
    hostile = b"\x00\xff\xfe half \xe9\x87 \x1b[31mred\x1b[0m \x08\x7f\n\r\n" + "量\u2028x\n".encode() + b"o\tv\t{}\n"
    written.say(hostile)
    assert (place.path / "engine.log").read_bytes() == hostile
    lines = [text.decode() for text in written.lines()]
    assert len(lines) == 4 and lines[3] == "o\tv\t{}" and "\u2028" not in lines[2]
    assert all(char.isprintable() or char in "\t\x1b" for line in lines for char in line)


def test_a_line_without_an_end_is_cut_into_records_and_stays_one_line(place):
    written = Written(place)
    written.say(b"a" * 3_000_000)
    written.say(b"\nnext\n")
    parts = [text for kind, text in written.records() if kind in (b"o", b"+")]
    assert b"".join(parts[:-1]) == b"a" * 3_000_000 and parts[-1] == b"next"
    assert max(map(len, parts)) <= spool.MAX_TEXT


def test_the_log_turns_over_and_five_files_are_kept(place, monkeypatch):
    monkeypatch.setattr(logfile, "MAX_FILE", 100_000)
    written = Written(place)
    lines = [b"%06d %s" % (n, b"y" * 90) for n in range(12_000)]
    for start in range(0, len(lines), 500):
        written.say(b"\n".join(lines[start : start + 500]) + b"\nhalf ")
        written.say(b"a line\n")
    assert written.lines() == [
        line for n, one in enumerate(lines, 1) for line in ([one] if n % 500 else [one, b"half a line"])
    ]
    names = sorted(path.name for path in place.path.glob("engine.log*"))
    assert names == ["engine.log", "engine.log.1", "engine.log.2", "engine.log.3", "engine.log.4"]
    assert max(path.stat().st_size for path in place.path.glob("engine.log*")) < 100_000 + 2 * logfile.AT_ONCE
    assert place.newest_piece() > 5
    ended = [spool.has_ended(place.piece_folder(n)) for n in range(1, place.newest_piece() + 1)]
    assert ended == [True] * (len(ended) - 1) + [False]


def test_ten_megabytes_a_second_are_taken_without_a_pause(place):
    written = Written(place)
    block = b"".join(b"(EngineCore pid=1) INFO 03-02 10:11:12 [x.py:1] line %06d\n" % n for n in range(16_000))
    began = time.process_time()
    for _ in range(10):
        written.say(block)
    took = time.process_time() - began
    assert len(block) * 10 / took > 20_000_000, took  # of one core
    assert len(written.lines()) == 160_000


def test_a_full_disk_costs_lines_and_says_how_many(tmp_path):
    """The keeper can make no file longer than this; what the engine prints goes on."""
    bench = Bench(tmp_path)
    try:
        bench.ask_for({"access_log": False}).keep(QUICK_LIMIT="60000")
        pid = bench.until("ready")["pid"]
        for n in range(20):
            bench.say(b"".join(b"line %d %s\n" % (n * 100 + at, b"z" * 90) for at in range(100)))
        log = bench.place.path / "engine.log"
        until(lambda: int((bench.place.path / "lost").read_text()) + log.read_bytes().count(b"\nline ") >= 1999)
        assert bench.complete(max_tokens=1).status == 200 and bench.now["pid"] == pid
        bench.keepers[-1].kill()
        bench.keepers[-1].wait()
        bench.keep()  # there is room again
        bench.say(b"after it\n")
        until(lambda: "after it" in bench.said())
        kept = [line for line in bench.said() if line.endswith("z" * 90)]
        (missing,) = [int(text) for kind, text in bench.records() if kind == "g"]
        assert kept == [f"line {n} {'z' * 90}" for n in range(len(kept))] and bench.starts == 1
        assert 0 <= len(kept) + missing - 2000 <= 1  # the one that was cut is counted; its half may stand there
    finally:
        bench.close()


def test_lines_that_found_no_room_are_counted_in_the_log_and_for_the_console(place, monkeypatch):
    written = Written(place)
    written.say(b"before\n")
    moves = written.hearing.capture._move
    full = OSError(28, "No space left on device")

    def no_room():
        raise full

    monkeypatch.setattr(written.hearing.capture, "_move", no_room)
    written.say(b"lost 1\nlost 2\nlost 3\n")
    monkeypatch.setattr(written.hearing.capture, "_move", moves)
    written.hearing.capture.retry_at = 0.0
    written.say(b"after\n")
    assert written.lines() == [b"before", b"after"]
    assert (b"g", b"4") in written.records()  # and maybe the one that was cut
    assert b"-- 4 lines of output were lost here" in (place.path / "engine.log").read_bytes()
    at = pieces.position(place.piece_folder(1) / "lines", written.hearing.capture.log, 0, written.hearing.capture.size)
    assert at == written.hearing.capture.size


def test_a_console_that_is_away_for_long_costs_lines_and_no_disk(place, monkeypatch):
    monkeypatch.setattr(pieces, "MOST_UNSHIPPED", 10_000)
    written = Written(place)
    written.say(b"x" * 99 + b"\n")
    written.say((b"x" * 99 + b"\n") * 200)
    written.hearing.pieces.writer.flush()
    written.hearing.pieces.counted_at = 0.0
    written.say((b"y" * 99 + b"\n") * 50)
    monkeypatch.setattr(pieces, "MOST_UNSHIPPED", 10**9)
    written.hearing.pieces.counted_at = 0.0
    written.say(b"again\n")
    assert [kind for kind, _ in written.records()] == [b"o"] * 201 + [b"g", b"o"]
    assert written.records()[201] == (b"g", b"50") and written.lines()[-1] == b"again"
    at = pieces.position(place.piece_folder(1) / "lines", written.hearing.capture.log, 0, written.hearing.capture.size)
    assert at == written.hearing.capture.size


def test_a_record_that_was_cut_is_made_again_from_the_log(place):
    written = Written(place)
    written.say(b"one\ntwo\nthree\n")
    written.records()
    path = place.piece_folder(1) / "lines"
    os.truncate(path, path.stat().st_size - 3)
    again = Hearing(place, "")
    assert again.pieces.go_on()
    again.catch_up()
    again.pieces.writer.flush()
    assert written.lines() == [b"one", b"two", b"three"]


def test_old_pieces_without_an_end_are_ended(place):
    written = Written(place)
    written.say(b"one\n")
    written.records()
    again = Hearing(place, "")
    again.begin_piece()
    again.pieces.tick()
    assert spool.has_ended(place.piece_folder(1)) and not spool.has_ended(place.piece_folder(2))


def test_shipped_pieces_go_and_their_numbers_are_not_given_again(place):
    written = Written(place)
    written.hearing.end_piece("succeeded", 0, None, more=True)
    spool.mark_shipped(place.piece_folder(1))
    assert folder.purge(place.logs) == 0  # just now
    os.utime(place.piece_folder(1) / "shipped", (0, 0))
    assert folder.purge(place.logs) == 1 and not place.piece_folder(1).exists()
    written.hearing.begin_piece()
    assert written.hearing.pieces.n == 2


OWN = (
    b'INFO:     127.0.0.1:%d - "GET /health HTTP/1.0" 200 OK\n'
    b'(APIServer pid=5) INFO:     ::1:9 - "GET /metrics HTTP/1.0"\n'
)
THEIRS = (
    b'INFO:     127.0.0.1:5 - "GET /health HTTP/1.1" 200 OK\n'
    b'INFO:     10.0.0.9:5 - "POST /v1/completions HTTP/1.0" 200 OK\n'
)


@pytest.mark.parametrize("size", [1, 7, 61, 10_000])
def test_what_the_keeper_asks_stays_in_the_log_and_is_no_news_for_the_console(place, size):
    written = Written(place)
    said = b"".join(OWN % n + THEIRS + b"line %d\n" % n for n in range(20)) + OWN % 99
    for start in range(0, len(said), size):
        written.say(said[start : start + size])
    expected = [line for n in range(20) for line in [*THEIRS.split(b"\n")[:2], b"line %d" % n]]
    assert written.lines() == expected
    assert (place.path / "engine.log").read_bytes() == said
    again = Hearing(place, "")
    assert again.pieces.go_on()
    again.catch_up()
    again.end_piece("succeeded", 0, None, more=False)
    assert Written.lines(type("Read", (), {"records": lambda self: read(place)})()) == expected


def read(place):
    data = (place.piece_folder(1) / "lines").read_bytes()
    return [tuple(line.split(b"\t", 2)[1:]) for line in data.split(b"\n")[:-1]]


def test_half_a_line_is_told_when_nothing_more_comes(place):
    written = Written(place)
    written.say(b"whole\nINFO: half")
    assert written.lines() == [b"whole"]
    written.hearing.end_piece("succeeded", 0, None, more=False)
    assert [text for kind, text in read(place) if kind == b"o"] == [b"whole", b"INFO: half"]
