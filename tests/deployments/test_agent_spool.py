import json
import multiprocessing
import time

import pytest

from deployments.agent import spool
from deployments.agent.spool import SpoolReader, record

ATTEMPT = "a1-1-0000000a"


def test_a_claim_holds_the_payload_byte_for_byte(tmp_path):
    assert spool.claim(tmp_path, ATTEMPT, '{"名":1}') == "claimed"
    assert (tmp_path / ATTEMPT / "spec.json").read_bytes() == '{"名":1}'.encode()
    assert [entry.name for entry in tmp_path.iterdir()] == [ATTEMPT]


def test_the_same_payload_again_is_already_claimed_and_another_is_refused(tmp_path):
    spool.claim(tmp_path, ATTEMPT, "one")
    assert spool.claim(tmp_path, ATTEMPT, "one") == "already"
    assert spool.claim(tmp_path, ATTEMPT, "two") == "other"
    assert (tmp_path / ATTEMPT / "spec.json").read_text() == "one"


def _race(folder, start, answers):
    start.wait()
    answers.put([spool.claim(folder, f"a1-1-{n:08x}", "body") for n in range(50)])


def test_of_claims_that_race_exactly_one_wins(tmp_path):
    start, answers = multiprocessing.Event(), multiprocessing.Queue()
    racers = [multiprocessing.Process(target=_race, args=(tmp_path, start, answers)) for _ in range(4)]
    for racer in racers:
        racer.start()
    start.set()
    rounds = list(zip(*[answers.get(timeout=20) for _ in racers], strict=True))
    for racer in racers:
        racer.join()
    assert all(sorted(answer) == ["already"] * 3 + ["claimed"] for answer in rounds)
    assert not [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".new")]


@pytest.mark.parametrize("name", ["../x", "a1-1-0000000A", "a1-1", "", ".new-a1-1-0000000a", "a1-1-0000000a\n"])
def test_only_names_of_attempts_are_folders(tmp_path, name):
    assert not spool.is_attempt_id(name)


@pytest.fixture
def folder(tmp_path):
    spool.claim(tmp_path, ATTEMPT, json.dumps({"not_after": time.time() + 60}))
    return tmp_path / ATTEMPT


def test_chunks_hold_whole_records_and_know_their_place(folder):
    lines = [record("o", f"line {n} " + "x" * 300) for n in range(1, 1001)]
    (folder / "lines").write_bytes(b"".join(lines))
    line, byte, raw = 1, 0, b""
    for chunk in SpoolReader(folder).chunks():
        assert (chunk.first, chunk.b0) == (line, byte)
        assert chunk.n == chunk.raw.count(b"\n") and chunk.raw.endswith(b"\n") and len(chunk.raw) <= spool.MAX_CHUNK
        line, byte, raw = line + chunk.n, chunk.b1, raw + chunk.raw
    assert line == 1001 and raw == b"".join(lines)


def test_half_a_record_is_not_read(folder):
    (folder / "lines").write_bytes(record("o", "whole") + b"1700000000000\to\thal")
    reader = SpoolReader(folder)
    chunk = reader.chunk(1, 0)
    assert chunk.n == 1 and chunk.raw.endswith(b"whole\n")
    assert reader.chunk(2, chunk.b1) is None


def test_the_longest_record_fits_a_chunk(folder):
    (folder / "lines").write_bytes(record("o", "x" * spool.MAX_TEXT) * 3)
    assert [chunk.n for chunk in SpoolReader(folder).chunks()] == [1, 1, 1]


ENDED = record("v", spool.event("ended", state="failed", exit=1, reason=None))


def test_the_end_is_known_by_the_last_record_alone(folder):
    path = folder / "lines"
    assert not spool.has_ended(folder)
    path.write_bytes(record("o", '{"e":"ended"}'))
    assert not spool.has_ended(folder)
    path.write_bytes(ENDED[:-1])
    assert not spool.has_ended(folder)
    path.write_bytes(record("o", "x" * 32000) + ENDED)
    assert spool.has_ended(folder)
    assert [chunk.is_last for chunk in SpoolReader(folder).chunks()] == [True]


@pytest.mark.parametrize(
    ("tail", "kept"),
    [
        (b"", b""),
        (b"17000", b""),
        (b"1700000000000\to", b""),
        (b"1700000000000\to\thalf a li", b"1700000000000\to\thalf a li\n"),
        (b"1700000000000\to\t\xe9\x87\x8f\xe5\x8c", "1700000000000\to\t量\n".encode()),
        (b'1700000000000\tv\t{"e":"step_e', b""),
    ],
)
def test_a_tail_that_was_cut_is_mended(folder, tail, kept):
    path = folder / "lines"
    path.write_bytes(record("o", "before") + tail)
    spool.mend_tail(path)
    assert path.read_bytes().endswith(b"\to\tbefore\n" + kept)


def test_what_is_shipped_goes_and_the_claim_stays_until_the_payload_is_void(folder):
    (folder / "lines").write_bytes(ENDED)
    (folder / "out").mkdir()
    (folder / "out" / "file").touch()
    spool.mark_shipped(folder)
    assert sorted(entry.name for entry in folder.iterdir()) == ["shipped", "spec.json"]
    assert spool.purge(folder.parent, time.time() + 3600) == 0
    assert spool.claim(folder.parent, ATTEMPT, (folder / "spec.json").read_text()) == "already"
    assert spool.purge(folder.parent, time.time() + 60 + spool.CLAIM_MARGIN_S + 1) == 1
    assert not folder.exists()


def test_a_claim_that_is_not_shipped_is_never_purged(folder):
    assert spool.purge(folder.parent, time.time() + 10**9) == 0
