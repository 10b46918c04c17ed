"""Whatever a server prints, every parser answers with a reading or a ParseError, soon and in little memory."""

import gc
import json
import random
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitoring import parsers
from monitoring.parsers import ParseError, _text, failures

FIXTURES = Path(__file__).parents[1] / "fixtures"
TEXTS = {
    path.stem: path.read_bytes().decode()
    for path in sorted(FIXTURES.glob("*/*.txt"))
    if path.parent.name in {"npu_smi", "hccn", "host"}
}
TABLE = TEXTS["info_a2_910b4_25.2.3"]
BINARY = random.Random(7).randbytes(200_000).decode("latin-1")

HOSTILE = {
    "empty": "",
    "blank": " \n\t\n\r\n",
    "binary": BINARY,
    "surrogates": TABLE.replace("910B4", "\ud800\udfff"),
    "html": TABLE.replace("VLLMWorker_TP", "<script>alert(1)</script>").replace("OK", '"><img src=x onerror=alert(1)>'),
    "ansi": TABLE.replace("|", "\x1b[31m|\x1b[0m") + "\x1b]0;" + "x" * 100_000,
    "control": TABLE.replace(" ", "\x00").replace("|", "|\x08\x07"),
    "one line of 1 MB": "| 0     " + "A" * 1_000_000 + " | OK |",
    "bars": "|" * 1_000_000,
    "blanks": "| 0 " + " " * 1_000_000,
    "colons": "a:b " * 250_000,
    "many rows": "".join(
        f"| {n}     910B4 | OK | 80.1  40  0 / 0 |\n| 0 | 0000:01:00.0 | 0  0 / 0  1 / 2 |\n" for n in range(20_000)
    ),
    "many titles": "| NPU Name | Health | Power(W) |\n| Chip | Bus-Id | HBM-Usage(MB) |\n" * 20_000,
    "many halves": "".join(f"| 0     910B4 | OK | 80.1  {n % 90}  0 / 0 |\n" for n in range(40_000)),
    "many columns": TABLE.replace("Power(W)", "Power(W) " * 2_000).replace("NPU     Chip", "NPU " * 9_000),
    "many keys": "".join(f"Key{n} : {n}\n" for n in range(100_000)),
    "same key": "NPU ID : 1\n" * 150_000,
    "half escapes": "\x1b[" * 400_000,
    "slashes": "| 0     910B4 | OK | " + "/ " * 7_000 + "|\n" + "| 0 | 0000:01:00.0 | " + "1 / " * 4_000 + "|\n",
    "digits": TABLE.replace("32768", "9" * 6_000).replace("0000:C1", "٣" * 40),
    "topology": "    "
    + " ".join(f"NPU{n}" for n in range(2_500))
    + " CPU Affinity\n"
    + ("NPU0 " + "HCCS " * 2_501 + "\n") * 60,
    "processes": "NPU ID : 0\n" + "Process id:1 Process name:" * 70_000,
    "times": "Mon Mar  2 07:58:40 2026 LINK" * 60_000,
    "dashes": ("-" * 16_000 + "\n") * 100,
}

# Parsers of plain keys and values differ by the keys they need; two stand for all.
DISTINCT = [name for name in parsers.names() if parsers.load(name).parse.__module__ != "monitoring.parsers._key_values"]
DISTINCT += ["npu-smi-usages", "version-info"]


def check_answered(name, text):
    """The reading's JSON, or the meaning of the refusal; no other exception, and no meaning without its words."""
    try:
        return parsers.load(name).parse(text).as_json()
    except ParseError as refusal:
        assert refusal.meaning in failures.MEANINGS
        return refusal.meaning


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_text_is_answered_by_every_parser_in_time(text):
    for name in DISTINCT:
        start = time.process_time()
        reading = check_answered(name, text)
        assert time.process_time() - start < 2, name
        json.dumps(reading, allow_nan=False)


@pytest.mark.parametrize("name", parsers.names())
def test_ten_megabytes_are_refused_at_once(name):
    start = time.process_time()
    assert check_answered(name, TABLE * (10_000_000 // len(TABLE))) == "too_long"
    assert time.process_time() - start < 0.5


@pytest.mark.parametrize("name", parsers.names())
@pytest.mark.parametrize("text", ["binary", "html", "control", "one line of 1 MB"])
def test_every_parser_answers_what_is_no_text_of_its_tool(name, text):
    json.dumps(check_answered(name, HOSTILE[text]), allow_nan=False)


@pytest.mark.parametrize("name", parsers.names())
def test_nothing_is_no_reading(name):
    assert check_answered(name, "") == "empty"


@pytest.mark.parametrize("text", ["many rows", "many keys", "same key", "bars", "half escapes"])
def test_memory_stays_within_a_multiple_of_the_text(text):
    for name in ("npu-smi-info", "npu-smi-usages", "npu-smi-list", "hccn-link-stat"):
        gc.collect()
        tracemalloc.start()
        check_answered(name, HOSTILE[text])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 40_000_000 + 10 * len(HOSTILE[text]), name


def is_own(name, stem):
    return stem.startswith(name.removeprefix("npu-smi-").removeprefix("hccn-").replace("-", "_"))


@pytest.mark.parametrize("name", DISTINCT)
def test_a_text_cut_at_every_byte_is_answered(name):
    for stem, text in TEXTS.items():
        raw = text.encode()
        step = 1 if is_own(name, stem) else 101
        if stem.startswith("info_"):  # test_parser_npu_smi_info.py goes through these more closely
            step = 13 if name == "npu-smi-info" else 501
        for end in range(0, len(raw), step):
            check_answered(name, raw[:end].decode("utf-8", "replace"))


@settings(deadline=None, max_examples=40)
@given(st.text(max_size=400) | st.binary(max_size=400).map(lambda raw: raw.decode("latin-1")))
def test_any_text_is_answered_by_every_parser(text):
    for name in DISTINCT:
        json.dumps(check_answered(name, text), allow_nan=False)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(sorted(TEXTS)), st.data())
def test_damaged_text_is_answered_by_every_parser(stem, data):
    text = TEXTS[stem]
    at = data.draw(st.integers(0, len(text)))
    text = text[:at] + data.draw(st.text(max_size=6)) + text[at + data.draw(st.integers(0, 60)) :]
    for name in DISTINCT:
        check_answered(name, text)


def test_a_long_line_hides_no_other():
    reading = parsers.load("npu-smi-info").parse("x" * (_text.MAX_LINE + 1) + "\n" + TABLE)
    assert reading.npus == parsers.load("npu-smi-info").parse(TABLE).npus


def test_the_words_a_failed_tool_said_are_bounded():
    reading = parsers.load("failures").parse("bash: npu-smi: command not found\n" + "x" * 1_000_000)
    assert len(reading.text) == failures.MAX_KEPT


def test_parsers_import_nothing_but_the_standard_library():
    import subprocess
    import sys

    root = Path(__file__).parents[2]
    code = (
        "import sys\n"
        "from monitoring import parsers\n"
        "[parsers.load(name) for name in parsers.names()]\n"
        "mine = {'monitoring'}\n"
        "print(sorted({m.partition('.')[0] for m in sys.modules} - set(sys.stdlib_module_names) - mine - {'__main__'}))"
    )
    found = subprocess.run([sys.executable, "-S", "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_every_meaning_has_its_sentences_in_both_languages():
    for key in failures.MEANINGS:
        chinese, english = failures.sentences(key, chinese=True), failures.sentences(key)
        assert chinese.endswith("。") and english.endswith(".")
        assert chinese != english
