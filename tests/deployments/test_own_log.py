"""The agent's own lines as pieces that are shipped."""

import os

from deployments.agent import spool
from deployments.agent.masks import Masks
from deployments.agent.own_log import KEPT_PIECES, MOST_A_MINUTE, OwnLog


def texts(folder):
    return [line.split("\t", 2)[1:] for line in (folder / "lines").read_text().splitlines()]


def pieces(logs):
    return spool.folders(logs, spool.PIECE_ID)


def test_lines_become_a_piece_that_ends(tmp_path):
    log = OwnLog(tmp_path, Masks(["server-key-1234"]))
    log.take("link", [b"connected", b"with server-key-1234"])
    log.close()
    (piece,) = pieces(tmp_path)
    assert [text for kind, text in texts(piece) if kind == "o"] == ["link: connected", "link: with ***"]
    assert spool.has_ended(piece)


def test_what_repeats_is_counted(tmp_path):
    log = OwnLog(tmp_path)
    log.take("link", [b"no way to Redis"] * 5000 + [b"connected"])
    (piece,) = pieces(tmp_path)
    lines = [text for kind, text in texts(piece) if kind == "o"]
    assert lines == ["link: no way to Redis", "… the same 4999 times more", "link: connected"]


def test_a_storm_is_left_out_and_said(tmp_path):
    log = OwnLog(tmp_path)
    log.take("link", [b"line %d" % n for n in range(MOST_A_MINUTE + 1000)])
    log.minute = -1  # the next one
    log.take("link", [b"over"])
    (piece,) = pieces(tmp_path)
    kinds = [kind for kind, _text in texts(piece)]
    assert kinds.count("o") <= 2 * MOST_A_MINUTE and ["g", "1000"] in texts(piece)


def test_pieces_turn_over_and_the_oldest_that_wait_go(tmp_path):
    log = OwnLog(tmp_path, max_bytes=200)
    for n in range(60):
        log.take("worker", [b"line %d of some length" % n])
    kept = pieces(tmp_path)
    assert len(kept) == KEPT_PIECES
    assert [spool.has_ended(piece) for piece in sorted(kept, key=lambda one: int(one.name[1:]))] == [True] * 2 + [False]


def test_an_agent_that_was_killed_has_its_piece_ended_by_the_next(tmp_path):
    OwnLog(tmp_path).take("link", [b"before"])
    OwnLog(tmp_path).take("link", [b"after"])
    first, second = sorted(pieces(tmp_path), key=lambda one: int(one.name[1:]))
    assert spool.has_ended(first) and not spool.has_ended(second)


def test_an_agent_that_starts_says_so(tmp_path):
    from deployments.agent.__main__ import say_started

    own = OwnLog(tmp_path)
    say_started(own)
    own.close()
    (piece,) = tmp_path.iterdir()
    text = (piece / "lines").read_text()
    assert f"runs as process {os.getpid()}" in text and f'"pid":{os.getpid()}' in text
