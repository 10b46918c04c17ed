"""Secrets in what programs print, masked before a line is written: by their exact value where we know it, and by what
stands around them: `password=…`, `Authorization: Bearer …`, `https://user:…@host`, `hf_…`, a private key.

Lines come by the thousand and few hold any of it. So a block of lines is looked through for words first; only where one
stands, and only there, an expression is tried, anchored and bounded.
"""

import base64
import json
import re
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import quote

MASK = b"***"
LEAST_VALUE = 6  # what is shorter would stand everywhere
MOST_KEY_LINES = 200  # of a private key; then its end was not printed
WORD = rb"[A-Za-z0-9_.\-]"

# What follows a name: `=`, `:` (the Chinese one, too), quotes as JSON has them, `", "` in a printed list of words.
BETWEEN = rb"""(?:["']?\s{0,3}(?:[:=]|\xef\xbc\x9a)\s{0,3}|["'],\s{0,3}(?=["']))"""
VALUE = rb"""(?:"(?P<double>[^"\n]{1,400})|'(?P<single>[^'\n]{1,400})|(?P<bare>[^\s"',;&|(){}\[\]]{1,400}))"""
# No secrets: numbers, places to be filled in, and what messages say of one.
PLAIN = re.compile(
    rb"(?:\*+|\d{1,12}(?:\.\d+)?%?|<.*|\$.*|%.*|\{.*|none|null|nil|true|false|yes|no|on|off|str|string|bytes|int|"
    rb"required|missing|invalid|incorrect|wrong|empty|unset|is|not|for|was|has|must|optional.*|os\.environ.*)",
    re.IGNORECASE,
)
NAMES = (b"password", b"passwd", b"pwd", b"secret", b"credential")
KEYS = (b"api_key", b"api-key", b"apikey", b"access_key", b"accesskey", b"private_key")  # looked for where “key” stands
CHINESE = ("密码".encode(), "口令".encode(), "密钥".encode())  # all begin with the same byte
# “token” is an everyday word of language models: alone, or behind these, it may be one of those that open doors.
TOKEN_OF = re.compile(
    rb"(?:^|--|[^A-Za-z0-9_.\-]|(?:hf|hub|access|auth|api|bearer|refresh|session|csrf|private|modelscope|github|gitlab|join|x|ms)[_\-])$",
    re.IGNORECASE,
)
LOOKS_RANDOM = re.compile(rb"(?=[^\s]*[0-9])(?=[^\s]*[A-Za-z])[A-Za-z0-9_.+/=\-]{12,}")
FIXED = {
    b"bearer ": re.compile(rb"bearer\s{1,3}(?P<bare>[A-Za-z0-9._~+/=\-]{6,600})", re.IGNORECASE),
    b"basic ": re.compile(rb"basic\s{1,3}(?P<bare>[A-Za-z0-9+/]{8,600}={0,2})", re.IGNORECASE),
    b"://": re.compile(rb"://[^/\s:@\"']{0,100}:(?P<bare>[^@/\s\"']{1,200})@"),
    b"sk-": re.compile(rb"(?P<bare>sk-[A-Za-z0-9_\-]{16,200})"),
    b"hf_": re.compile(rb"(?P<bare>hf_[A-Za-z0-9]{20,100})"),
    b"ms-": re.compile(rb"(?P<bare>ms-[0-9a-f]{8}-[0-9a-f\-]{20,60})"),
    b"ghp_": re.compile(rb"(?P<bare>ghp_[A-Za-z0-9]{30,100})"),
    b"glpat-": re.compile(rb"(?P<bare>glpat-[A-Za-z0-9_\-]{16,100})"),
    b"akia": re.compile(rb"(?P<bare>AKIA[0-9A-Z]{16})"),
    b"eyj": re.compile(rb"(?P<bare>eyJ[A-Za-z0-9_\-]{8,2000}\.[A-Za-z0-9_\-]{8,4000}\.[A-Za-z0-9_\-]{4,1000})"),
}
BASIC_BEHIND = re.compile(rb"authorization[\"']?\s{0,3}[:=]\s{0,3}[\"']?$", re.IGNORECASE)
BEGIN_KEY = re.compile(rb"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----")
END_KEY = re.compile(rb"-----END [A-Z ]{0,30}PRIVATE KEY-----")
Spans = list[tuple[int, int]]


class Masks:
    """Of one stream of lines; remembers whether it is within a private key. `known`: values, `names`: of fields."""

    def __init__(self, known: Iterable[str] = (), names: Iterable[str] = ()) -> None:
        self.known: list[bytes] = []
        self.know(known)
        own = tuple(name.lower().encode("utf-8", "replace") for name in names if len(name) > 2)
        self.of_keys = [(name, self._named(name)) for name in KEYS]
        self.in_chinese = [(name, self._named(name)) for name in CHINESE]
        self.finders: list[tuple[bytes, Callable[[bytes, bytes, int], Spans]]] = [
            *((name, self._named(name)) for name in (*NAMES, *own)),
            (b"token", self._token),
            *((word, _fixed(pattern, word)) for word, pattern in FIXED.items()),
        ]
        self.key_lines = 0  # of a private key that goes on; 0: none does

    def know(self, values: Iterable[str]) -> None:
        """More secrets, as they are and as URLs and base64 hold them."""
        for value in values:
            raw = value.encode("utf-8", "replace")
            if len(raw) < LEAST_VALUE:
                continue
            forms = {raw, quote(value, safe="").encode(), base64.b64encode(raw).rstrip(b"="), quote(value).encode()}
            self.known += [form for form in forms if form not in self.known]
        self.known.sort(key=len, reverse=True)  # one may hold another

    def masked(self, data: bytes) -> bytes:
        """One line, or several joined by line ends, with their secrets masked; as many lines as before."""
        for value in self.known:
            if value in data:
                data = data.replace(value, MASK)
        if self.key_lines or b"PRIVATE KEY-----" in data:
            data = self._without_keys(data)
        low = data.lower()
        spans: Spans = []
        finders = self.finders + self.of_keys if b"key" in low else self.finders
        if b"\xe5" in low:
            finders = finders + self.in_chinese
        for word, find in finders:
            at = low.find(word)
            while at >= 0:
                spans += find(data, low, at)
                at = low.find(word, at + len(word))
        return _replaced(data, spans) if spans else data

    def in_json(self, text: str) -> str:
        """The same of each text in it, so that it stays JSON."""
        try:
            return json.dumps(self._inside(json.loads(text)), ensure_ascii=False, separators=(",", ":"))
        except (ValueError, RecursionError):
            return self.masked(text.encode("utf-8", "replace")).decode("utf-8", "replace")

    def _inside(self, value: Any, name: str = "") -> Any:
        if isinstance(value, str):
            with_name = f"{name}={value}" if name else value
            masked = self.masked(with_name.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")
            return masked if not name or not masked.startswith(f"{name}=") else masked[len(name) + 1 :]
        if isinstance(value, list):
            before = ["", *(one if isinstance(one, str) and one.startswith("--") else "" for one in value)]
            return [self._inside(one, option.lstrip("-")) for option, one in zip(before, value, strict=False)]
        if isinstance(value, dict):
            return {key: self._inside(one, str(key)) for key, one in value.items()}
        return value

    def _named(self, name: bytes) -> Callable[[bytes, bytes, int], Spans]:
        """`name=value`, `"name": "value"`, `--name value`."""
        behind = re.compile(rb"[A-Za-z0-9_\-]{0,40}?" + BETWEEN + VALUE)
        option = re.compile(rb"[ =]{1,3}" + VALUE)

        def found(data: bytes, low: bytes, at: int) -> Spans:
            end = at + len(name)
            match = behind.match(data, end)
            if match is None and data[max(0, at - 40) : at].rpartition(b" ")[2].startswith(b"--"):
                match = option.match(data, end)
            return _span(match) if match and not _is_plain(match) else []

        return found

    def _token(self, data: bytes, low: bytes, at: int) -> Spans:
        # “tokens/s”, “token_ids”, “tokenizer” stand in every other line of an engine: the next byte tells.
        if low[at + 5 : at + 6] not in TOKEN_NEXT or not TOKEN_OF.search(low, max(0, at - 16), at):
            return []
        is_option = data[max(0, at - 40) : at].rpartition(b" ")[2].startswith(b"--")
        match = TOKEN_BEHIND.match(data, at + 5) or (TOKEN_OPTION.match(data, at + 5) if is_option else None)
        if match is None or _is_plain(match) or not LOOKS_RANDOM.fullmatch(_value(match)):
            return []
        return _span(match)

    def _without_keys(self, data: bytes) -> bytes:
        lines = data.split(b"\n")
        for place, line in enumerate(lines):
            if not self.key_lines:
                if BEGIN_KEY.search(line):
                    # All of it may stand in one line, its line ends written as \n.
                    self.key_lines = 0 if END_KEY.search(line) else 1
                    lines[place] = BEGIN_KEY.split(line)[0] + MASK
                continue
            if END_KEY.search(line):
                self.key_lines = 0
                lines[place] = MASK + END_KEY.split(line)[-1]
            elif self.key_lines >= MOST_KEY_LINES:
                self.key_lines = 0
            else:
                self.key_lines += 1
                lines[place] = MASK
        return b"\n".join(lines)


TOKEN_NEXT = {b"=", b":", b'"', b"'", b" ", b"\xef"}
TOKEN_BEHIND = re.compile(BETWEEN + VALUE)
TOKEN_OPTION = re.compile(rb"[ =]{1,3}" + VALUE)


def _fixed(pattern: "re.Pattern[bytes]", word: bytes) -> Callable[[bytes, bytes, int], Spans]:
    def found(data: bytes, low: bytes, at: int) -> Spans:
        if word != b"://" and at and re.match(WORD, data[at - 1 : at]):
            return []
        if word == b"basic " and not BASIC_BEHIND.search(data, max(0, at - 24), at):
            return []
        match = pattern.match(data, at)
        return _span(match) if match and not _is_plain(match) else []

    return found


def _name_of_value(match: "re.Match[bytes]") -> str:
    return match.lastgroup or "bare"


def _value(match: "re.Match[bytes]") -> bytes:
    return match[_name_of_value(match)]


def _is_plain(match: "re.Match[bytes]") -> bool:
    return PLAIN.fullmatch(_value(match)) is not None


def _span(match: "re.Match[bytes]") -> Spans:
    return [match.span(_name_of_value(match))]


def _replaced(data: bytes, spans: Spans) -> bytes:
    parts, end = [], 0
    for start, stop in sorted(set(spans)):
        if start < end:
            end = max(end, stop)
            continue
        parts += [data[end:start], MASK]
        end = stop
    return b"".join([*parts, data[end:]])
