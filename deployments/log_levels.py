"""How loud a line of a log is, and which process of several wrote it. static/js/log/records.js judges levels alike; a
test holds the two together."""

import json
import re
from typing import Any

import re2

ERROR = rb"\b(?:ERROR|CRITICAL|FATAL|Traceback)\b|\b\w*(?:Error|Exception)\b: |^\[failed\] |\berror: "
WARNING = rb"\bWARN(?:ING)?\b|^\[warning\] "
INFO = rb"\bINFO\b"
DEBUG = rb"\bDEBUG\b|\bTRACE\b"
LEVELS = ("error", "warning", "info", "debug")
PATTERNS = {name: re2.compile(text) for name, text in zip(LEVELS, (ERROR, WARNING, INFO, DEBUG), strict=True)}
# Every line of a level holds one of these words. They are found ten times as fast as what makes it one of that level.
WORDS = {
    "error": re2.compile(rb"ERROR|CRITICAL|FATAL|Traceback|Error: |Exception: |\[failed\] |error: "),
    "warning": re2.compile(rb"WARN|\[warning\] "),
    "info": re.compile(rb"INFO"),
    "debug": re.compile(rb"DEBUG|TRACE"),
}
# These stand in nearly every line. What begins with fixed bytes is found ten times as fast as one of several words, so
# each is looked for alone, and the borders of a word behind it.
WHOLE = {
    "info": (re.compile(rb"INFO(?<!\wINFO)(?!\w)"),),
    "debug": (re.compile(rb"DEBUG(?<!\wDEBUG)(?!\w)"), re.compile(rb"TRACE(?<!\wTRACE)(?!\w)")),
}
IN_SQUARE = rb"\[(?:[Rr]ank[ _]?(\d+)\]|((?:TP|PP|DP|EP)\d+)[\]:])"
IN_ROUND = rb"\(((?:EngineCore|Worker|APIServer|ApiServer|DPCoordinator|Ray)\w*) pid=\d+"
PROCESS = re.compile(IN_SQUARE + rb"|" + IN_ROUND)
PROCESSES = (re.compile(IN_SQUARE), re.compile(IN_ROUND))  # for whole chunks: each begins with a fixed byte
VERDICTS = {"failed": "error", "warning": "warning"}


def of(kind: str, text: bytes) -> str:
    """One of LEVELS, '' for none; `text` without colours."""
    if kind == "v":
        return of_event(text)
    if kind == "g":
        return "warning"
    if kind not in ("o", "e", "s", "p"):
        return ""
    return next((name for name, pattern in PATTERNS.items() if pattern.search(text)), "")


def of_event(text: bytes) -> str:
    """An item that failed, a step or a run that did."""
    event = read_event(text)
    if event.get("e") == "item":
        return VERDICTS.get(str(event.get("verdict")), "")
    if event.get("e") in ("step_end", "ended") and event.get("state") == "failed":
        return "error"
    return ""


def read_event(text: bytes) -> dict[str, Any]:
    """{} where it is none."""
    try:
        event = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return event if isinstance(event, dict) else {}


def words_of_process(name: str) -> Any:
    """Finds what every line of that process holds."""
    if name.isascii() and name.isdigit():
        return re2.compile(rb"\[[Rr]ank[ _]?" + name.encode() + rb"\]")
    escaped = re2.escape(name.encode("utf-8", "replace"))
    return re2.compile(rb"\(" + escaped + rb" pid=|\[" + escaped + rb"[\]:]")


def process_of(text: bytes) -> str:
    """Who of several processes wrote a line: "3" for a rank, else its name; '' where it does not say."""
    found = PROCESS.search(text, 0, 300)
    return next((one.decode() for one in found.groups() if one), "") if found else ""


def processes_in(texts: bytes) -> set[str]:
    """All that wrote, as `process_of` names them."""
    square, round_ = (set(pattern.findall(texts)) for pattern in PROCESSES)
    return {name.decode() for name in {name for pair in square for name in pair} | round_ if name}
