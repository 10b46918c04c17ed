"""How a signature is written: as the line itself, with holes for what differs from case to case.

    NPU out of memory. Tried to allocate {n:wanted} {w}

`{n}` a number, `{w}` a word without blanks, `{i}` a name (letters, digits, `.`, `_`, `-`), `{*}` anything, as little as
fits, `{+}` as much; `{^}` in front is the begin of the line, behind whatever process or time stands there.
`{n:wanted}` keeps what it stands for. A blank is any run of blanks, letters are great or small alike, `：` is `:`, and
the line may hold more before and behind.
"""

import re
from dataclasses import dataclass

# Bounded, and the first of a signature begins where a word does: a hostile line must not take time by powers.
PROCESS = r"\([^()]{1,60}pid=\d+[^()]{0,40}\)\s?|\[rank\d+\]:\s?"
TIME = r"\d{4}-\d\d-\d\dT[\d:.]{8,18}(?:Z|[+-]\d\d:\d\d)?\s|\[\d{4}-[\d\-:,. ]{14,22}(?: [A-Z]+\d+){0,4}\]\s"
HOST = r"[\w.\-]{1,60}\s{1,9}\|\s|std(?:out|err) [FP]\s|[A-Z][a-z]{2} [ \d]\d [\d:]{8} \S{1,60} \S{1,60}: |\{\"log\":\""
HOLES = {
    "n": r"[-+]?\d[\d.,]{0,40}",
    "w": r"\S{1,300}",
    "i": r"[\w.\-]{1,120}",
    "*": r".{0,300}?",
    "+": r".{1,300}",
    "^": rf"^(?:{PROCESS}|{TIME}|{HOST}){{0,6}}",
}
FIRST = {"n": r"(?<!\d)", "w": r"(?<!\S)", "i": r"(?<![\w.\-])", "*": "", "+": "", "^": ""}
HOLE = re.compile(r"\{([nwi*+^])(?::([a-z_]+))?\}")
WIDE = tuple(zip("：（），；【】", ":(),;[]", strict=True))
LEAST_WORD = 4  # letters of the longest piece without holes: what is shorter would be looked for everywhere


class BadTemplate(ValueError):
    """A signature that cannot be used; says why."""


@dataclass(frozen=True)
class Template:
    """`word` stands, in small letters, in every line that `regex` finds: looking for it first is what makes it fast.
    `others`, which stand there too, spare the search where they do not. `pieces` are what stands between the holes."""

    text: str
    word: str
    regex: "re.Pattern[str]"
    pieces: tuple[str, ...]
    others: tuple[bytes, ...] = ()


def narrow(text: str) -> str:
    """With ASCII marks where Chinese texts may have wide ones."""
    if not text.isascii():  # what is ASCII has none; one by one is quicker than str.translate by far
        for wide, mark in WIDE:
            text = text.replace(wide, mark)
    return text


def compiled(text: str) -> Template:
    """Raises BadTemplate."""
    text = narrow(text)
    pieces: list[str] = []
    words: list[str] = []
    names: set[str] = set()
    end = 0
    for hole in HOLE.finditer(text):
        before = text[end : hole.start()]
        words.append(before)
        pieces.append(_literal(before))
        kind, name = hole.groups()
        if name in names:
            raise BadTemplate(f"“{name}” stands twice in “{text}”")
        names |= {name} if name else set()
        pieces += [FIRST[kind]] if not text[: hole.start()].strip() else []
        pieces.append(f"(?P<{name}>{HOLES[kind]})" if name else HOLES[kind])
        end = hole.end()
    words.append(text[end:])
    pieces.append(_literal(text[end:]))
    word = max((piece.strip() for piece in words), key=len).lower()
    if len(word.encode()) < LEAST_WORD:  # a Chinese character says as much as three letters
        raise BadTemplate(f"“{text}” has no piece of {LEAST_WORD} letters without a hole")
    parts = {part.encode() for piece in words for part in piece.lower().split() if part not in word}
    others = tuple(sorted(part for part in parts if len(part) >= LEAST_WORD))
    regex = re.compile("".join(pieces), re.IGNORECASE)
    return Template(text, word, regex, tuple(piece for piece in words if piece), others)


def _literal(text: str) -> str:
    """Blanks stand for runs of blanks."""
    return r"\s++".join(re.escape(piece) for piece in re.split(r"\s+", text))
