"""Every output of the corpus against the true values beside it."""

import json
import os
from pathlib import Path

import pytest

from monitoring import parsers
from monitoring.parsers import _info_by_row, _info_whole, failures

CORPUS = Path(os.environ.get("CORPUS_DIR", Path(__file__).parents[3] / "shared" / "corpus")) / "npu-smi"
pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason=f"no corpus of tool output at {CORPUS}; set CORPUS_DIR")

PARSERS = {
    "info": "npu-smi-info",
    "info-l": "npu-smi-list",
    "info-m": "npu-smi-map",
    "info-current-fault-event": "npu-smi-faults",
    "info-sys-log-info": "npu-smi-sys-log",
    "v": "npu-smi-version",
    "set-reset": "npu-smi-reset",
    "driver-version-info": "version-info",
    "firmware-version-info": "version-info",
    "toolkit-install-info": "cann-install-info",
    "nnae-install-info": "cann-install-info",
}
PLAIN = ("hccn-", "lscpu", "lspci", "os-release")  # commands whose parser has the same name
CHANGING = ("set-", "clear-", "upgrade-vrd")


MEANINGS = {
    "fail-bad-type": "bad_option",
    "fail-board-type": "no_board_type",
    "fail-dcmi-init": "driver_not_ready",
    "fail-device-used": "device_used",
    "fail-hccn-device": "bad_device",
    "fail-missing-lib": "missing_library",
    "fail-not-found": "not_installed",
}


def parser_of(command: str) -> str:
    if command in PARSERS:
        return PARSERS[command]
    if command.startswith(CHANGING):
        return "npu-smi-answer"
    if command.startswith(PLAIN):
        return command
    return "npu-smi-" + command.removeprefix("info-")


TRUTHS = sorted(CORPUS.glob("*.json"))
READINGS = [path for path in TRUTHS if not path.name.startswith("fail-")]
FAILURES = [path for path in TRUTHS if path.name.startswith("fail-")]
TEXTS = sorted(CORPUS.glob("*.txt"))


def text_of(path: Path) -> str:
    return path.with_suffix(".txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("truth", READINGS, ids=lambda path: path.stem)
def test_a_tool_output_reads_as_its_true_values(truth):
    parser = parsers.load(parser_of(truth.name.split("__")[0]))
    assert parser.parse(text_of(truth)).as_json() == json.loads(truth.read_text(encoding="utf-8"))


@pytest.mark.parametrize("truth", FAILURES, ids=lambda path: path.stem)
def test_a_failure_is_a_reading_with_its_meaning(truth):
    meaning = (
        "command_failed" if truth.stem == "fail-hccn-device__310__none__02" else MEANINGS[truth.stem.split("__")[0]]
    )
    parser = parsers.load("hccn-link" if "hccn" in truth.name else "npu-smi-info")
    reading = parser.parse(text_of(truth))
    assert isinstance(reading, failures.Unreadable)
    assert reading.as_json() == json.loads(truth.read_text(encoding="utf-8"))
    assert reading.meaning == meaning


def test_the_corpus_is_all_there():
    assert len(TEXTS) >= 200
    assert len(TRUTHS) >= 178


def test_whole_tables_read_the_same_at_once_and_row_by_row():
    tables = [path.read_text(encoding="utf-8") for path in TEXTS if path.name.startswith("info__")]
    at_once = {table: reading for table in tables if (reading := _info_whole.read(table))}
    assert len(at_once) >= 50
    assert all(_info_by_row.read(table) == reading for table, reading in at_once.items())


@pytest.mark.parametrize("name", parsers.names())
def test_no_parser_fails_on_the_output_of_another_tool(name):
    parser = parsers.load(name)
    for path in TEXTS:
        try:
            parser.parse(path.read_text(encoding="utf-8")).as_json()
        except parsers.ParseError as refusal:
            assert refusal.meaning in failures.MEANINGS
