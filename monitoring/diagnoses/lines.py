"""What a line is, before rules are held against it: quoted from a user, calm, or a sign that something failed.

Engines print what they are asked, and people ask about errors. Warnings tell of what was tried again, or done without.
"""

import re

MOST = 4000
BEFORE = 1000  # of a longer line, so much before the word that is looked for
COLOURS = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]")
QUOTES = re.compile(  # behind this stands what a user wrote, or what a model answered
    r"Received request |Generated response |Receive: obj=|Finish: obj=|non-default args: |"
    r"""["'](?:messages|prompt|content|text)["']: ?["'\[{]|\b(?:prompts?|messages|generated_text|text)=["'\[]|"""
    r"""\b(?:Prompt|Generated text|Question|Answer|输入|输出|用户|回答)\s?[:：] ?["'“]""",
)
LOUD = re.compile(r"(?:^|[\s|\[(])(?:ERROR|CRITICAL|FATAL|EMERG|ALERT)(?=[\s\]:|)]|$)")
CALM = re.compile(r"(?:^|[\s|\[(])(?:INFO|DEBUG|TRACE|NOTICE|WARNING|WARN|提示|警告)(?=[\s\]:|)]|$)|^[IW]\d{8} ")
HEAD = 200  # letters in which a line says how loud it is
FAILED = re.compile(
    r"Traceback \(most recent call last\)|\berror:|\bfatal\b|\[error\]|\berror \d\d-|"
    r"exit(?:ed with|s with)?(?: non-zero)? (?:code|status)[ :=]+[1-9]|错误[:：]|失败",
    re.IGNORECASE,
)
FAILED_WORDS = ("traceback (most", "error:", "error -", "[error]", "fatal", "exit code", "exit status", "exited with",
                "错误", "失败")  # fmt: skip


def plain(line: str) -> str:
    """Without colours."""
    return COLOURS.sub("", line) if "\x1b" in line else line


def around(line: str, word: str) -> str:
    """The part of a long line in which a word stands: bars of progress may fill the part before it."""
    if len(line) <= MOST:
        return line
    begin = max(0, line.lower().find(word) - BEFORE)
    return line[begin : begin + MOST]


def quoted_from(line: str) -> int:
    """Where the words of others begin; the line's length where it has none."""
    found = QUOTES.search(line[:MOST])
    return found.end() if found else len(line)


def is_calm(line: str) -> bool:
    """Whether it says of itself that it is no error."""
    head = line[:HEAD]
    return CALM.search(head) is not None and LOUD.search(head) is None


def tells_failure(line: str) -> bool:
    return FAILED.search(line[:MOST]) is not None
