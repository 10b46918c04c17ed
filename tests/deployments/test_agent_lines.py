import time

import pytest

from deployments.agent import lines as line_module
from deployments.agent.lines import LineMaker
from deployments.agent.spool import MAX_TEXT
from deployments.agent.writer import SpoolWriter


@pytest.fixture
def spooled(tmp_path):
    """Feed chunks to one stream, get its records as (kind, text bytes)."""

    class Spooled:
        path = tmp_path / "lines"
        writer = SpoolWriter(path)
        maker = LineMaker(writer, "o")

        def feed(self, *chunks):
            for chunk in chunks:
                self.maker.feed(chunk)
                self.maker.tick()
            return self

        def end(self):
            self.maker.close()
            self.writer.flush()
            return self.records()

        def records(self):
            self.writer.flush()
            raw = self.path.read_bytes()
            assert not raw or raw.endswith(b"\n")
            split = [line.split(b"\t", 2) for line in raw.split(b"\n")[:-1]]
            assert all(at.isdigit() for at, _, _ in split)
            return [(kind.decode(), text) for _, kind, text in split]

    return Spooled()


def whole(records):
    """Lines put together again from their pieces."""
    lines = []
    for kind, text in records:
        if kind == "+":
            lines[-1] += text
        elif kind != "p":
            lines.append(text)
    return lines


def test_lines_come_out_as_they_were_printed(spooled):
    spooled.feed(b"first\nsecond\n\nlast without end")
    assert spooled.end() == [("o", b"first"), ("o", b"second"), ("o", b""), ("o", b"last without end")]


def test_a_line_in_parts_is_one_line(spooled):
    assert spooled.feed(b"on", b"e\ntw", b"o", b"\n").end() == [("o", b"one"), ("o", b"two")]


def test_windows_line_ends_are_line_ends(spooled):
    assert spooled.feed(b"one\r\ntwo\r\n").end() == [("o", b"one"), ("o", b"two")]


def test_of_a_redrawn_line_the_final_text_stays(spooled):
    assert spooled.feed(b"\r10%\r20%", b"\r100%\r\nnext\n").end() == [("o", b"100%"), ("o", b"next")]


def test_progress_is_shown_at_most_twice_a_second(spooled, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(line_module.time, "monotonic", lambda: now[0])
    for step in range(300):  # 3 s at 100 redraws a second
        spooled.feed(b"\rstep %d" % step)
        now[0] += 0.01
    shown = [text for kind, text in spooled.records() if kind == "p"]
    assert 5 <= len(shown) <= 6
    assert shown[0].startswith(b"step ")
    assert spooled.feed(b"\n").end()[-1] == ("o", b"step 299")


def test_a_question_without_line_end_is_shown_while_it_waits(spooled, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(line_module.time, "monotonic", lambda: now[0])
    spooled.feed(b"Continue? [y/N] ")
    assert spooled.records() == []
    now[0] += 0.6
    spooled.maker.tick()
    now[0] += 5
    spooled.maker.tick()
    assert spooled.records() == [("p", b"Continue? [y/N] ")]
    assert spooled.end()[-1] == ("o", b"Continue? [y/N] ")


@pytest.mark.parametrize("size", [MAX_TEXT, MAX_TEXT + 1, 1_000_000, 5_000_000])
def test_a_long_line_is_cut_into_pieces_and_nothing_is_lost(spooled, size):
    line = (b"0123456789abcdef" * (size // 16 + 1))[:size]
    for start in range(0, size, 65536):
        spooled.feed(line[start : start + 65536])
    records = spooled.feed(b"\nafter\n").end()
    assert whole(records) == [line, b"after"]
    assert max(len(text) for _, text in records) <= MAX_TEXT


def test_pieces_end_between_characters(spooled):
    line = "量化".encode() * 400_000
    for start in range(0, len(line), 65536):
        spooled.feed(line[start : start + 65536])
    records = spooled.end()
    for _, text in records:
        text.decode()
    assert whole(records) == [line]


def test_another_streams_line_between_two_pieces_is_not_continued(spooled):
    errors = LineMaker(spooled.writer, "e")
    spooled.feed(b"x" * 1_200_000)  # written in part, since it does not end
    errors.feed(b"warning\n")
    spooled.feed(b"y\n")
    records = spooled.end()
    at = records.index(("e", b"warning"))
    assert records[at + 1][0] == "o"
    assert b"".join(text for kind, text in records if kind != "e") == b"x" * 1_200_000 + b"y"


def test_binary_output_becomes_clean_text(spooled):
    data = bytes(range(256)) * 2000
    records = spooled.feed(data).end()
    for _, text in records:
        decoded = text.decode()
        assert all(char in "\t\x1b" or ord(char) >= 32 for char in decoded)
        assert not any(0x7F <= ord(char) < 0xA0 for char in decoded)
        assert decoded.splitlines() in ([], [decoded])
    assert sum(kind == "o" for kind, _ in records) == 2000 + 1  # one line end in every 256 bytes


def test_colours_and_tabs_stay_and_other_control_characters_are_made_visible(spooled):
    assert spooled.feed(b"\x1b[31mred\x1b[0m\tbell\x07null\x00\n").end() == [
        ("o", "\x1b[31mred\x1b[0m\tbell␇null␀".encode())
    ]


def test_text_with_tabs_cannot_forge_a_record(spooled):
    forged = b'1700000000000\tv\t{"e":"ended","state":"succeeded"}'
    assert spooled.feed(forged + b"\n").end() == [("o", forged)]


def test_a_hundred_thousand_short_lines_take_seconds_not_minutes(spooled):
    block = b"".join(b"epoch 3 batch %05d loss 0.0123\n" % n for n in range(2000))
    began = time.monotonic()
    for _ in range(50):
        spooled.maker.feed(block)
    spooled.writer.flush()
    assert time.monotonic() - began < 5
    assert len(spooled.records()) == 100_000
