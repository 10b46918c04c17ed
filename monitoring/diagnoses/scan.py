"""Hold a log against all rules in one pass, as its lines arrive.

Ordinary lines must cost next to nothing, and they come by the thousand in a few shapes: without their digits most of
them are the same. So a shape is looked at once for the words of signatures (a word that stands in a line stands, both
without digits, in its shape), and what was found is kept. Only lines whose shape holds a word are looked at as they
are, and only where the word itself stands its expression is tried.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from monitoring.diagnoses.rules import Rule, Words
from monitoring.diagnoses.templates import Template, narrow

DIGITS = b"0123456789"
# How CANN prints its codes: `EI0006: …`, `…(EI0006)`, `[EI0006]`, `EZ9999[PID`, and numbers of six digits behind
# certain words (`error code is 507015`, `ErrCode=507015`, `retCode:507015`, `failed, ret 507015`).
LETTERED = re.compile(r"(?<![A-Za-z0-9_])(E[A-Z]\d{4}|E\d{5})(?=[:)\[\]]|  )")
NUMBERED = re.compile(
    r"(?:err(?:or)?[ _]?(?:code|no)(?: is)?\s?[:=\[(]?\s?|result ?= ?|failed: |\berror ?[:=\[] ?|"
    r"acl(?:rt)?[ _]?error[ :=]{1,2}|\bret(?:urn)?[ _]?(?:code)?(?: is)?(?: ?[:=\[] ?| )|"
    r"(?:错误码|返回码|返回值)[是为:=\[ ]*)(\d{6})(?!\d)",
    re.IGNORECASE,
)
CODED = (
    "e:", "(e)", "[e]",
    *(f"e{letter}{end}" for letter in "ijlezhk" for end in (":", ")", "[", "]", "  ")),
    "error code", "errorcode", "error no", "errorno", "errno", "errcode", "err_code", "error_code", "result =",
    "result=", "failed: ", "error:", "error[", "error=", "acl error", "aclerror", "acl_error", "ret =", "ret=", "ret:",
    "ret[", "ret ", "retcode", "ret_code", "return code", "return =", "错误码", "返回码", "返回值",
)  # fmt: skip
MOST_LINE = 4000
MOST_LINES = 20_000  # that are looked at as they are, in one log: one full of errors is judged by its first ones
MOST_SHAPES = 20_000
NEED_BONUS = 4
PLACES = {  # what a line says of where it happened
    "device": r"\b(?:Device:|device[_ ]?id[ =:]*|deviceId=|deviceLogicId:|device\(|phy_id\(|on NPU |\(NPU )(\d+)",
    "rank": r"(?:\[rank|RankID:|rankid is |rank\[|rank:|local ?rank:)\s*(\d+)",
    "peer": r"(?:dst_rank\[|remote ?rank[: \[]+|remoteUserrank\[|with rank )\s*(\w+)",
    "peer_ip": r"(?:remote_ip_addr\[|remote=\[|target: )\[?([0-9a-f.:]{3,45})",
}


@dataclass(frozen=True)
class Finding:
    """`line` is the number of the decisive line, `text` what it says. `details`: device, rank, peer where it says."""

    rule: Rule
    line: int
    text: str
    kept: dict[str, str]
    details: dict[str, str]
    score: int
    times: int = 1

    def words(self, words: Words) -> dict[str, str]:
        """A text of the rule with what the line said, in both languages."""
        return {"zh": words.zh.format_map(_Kept(self.kept)), "en": words.en.format_map(_Kept(self.kept))}

    def as_json(self) -> dict[str, Any]:
        remedies = [
            {**self.words(one.words), **({"job": one.job} if one.job else {}), **_change(one.change)}
            for one in self.rule.remedies
        ]
        found: dict[str, Any] = {
            "id": self.rule.id,
            "stage": self.rule.stage,
            "line": self.line,
            "text": self.text,
            "cause": self.words(self.rule.cause),
            "remedies": remedies,
            "score": self.score,
        }
        return found | ({"details": self.details} if self.details else {})


def _change(names: tuple[str, ...]) -> dict[str, list[str]]:
    return {"change": list(names)} if names else {}


class _Kept(dict[str, str]):
    """One signature keeps what another does not."""

    def __missing__(self, name: str) -> str:
        return "?"


class Signatures:
    """Rules, prepared: which words are looked for, and who wants to know of them."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = tuple(rules)
        self.codes = {rule.code: number for number, rule in enumerate(self.rules) if rule.code}
        self.words: dict[bytes, list[tuple[bytes, int, str, Template]]] = {}  # by the word without its digits
        for number, rule in enumerate(self.rules):
            for role in ("says", "needs", "unless"):
                for template in getattr(rule, role):
                    word = template.word.encode()
                    self.words.setdefault(shape(word), []).append((word, number, role, template))
        self.coded = frozenset(word.encode() for word in CODED)
        self.looked_for = tuple(sorted({*self.words, *self.coded}))
        self.shapes: dict[bytes, tuple[bytes, ...]] = {}

    def words_of(self, shapes: list[bytes]) -> list[tuple[bytes, ...]]:
        """Which words each of these lines may hold, by its shape."""
        known = self.shapes
        new = list({one for one in shapes if one not in known})
        if new:
            if len(known) + len(new) > MOST_SHAPES:
                known.clear()
                new = list(set(shapes))
            together = b"\n".join(new)
            there = [word for word in self.looked_for if word in together]
            for one in new:
                known[one] = tuple(word for word in there if word in one)
        return [known[one] for one in shapes]


def shape(low: bytes) -> bytes:
    return low.translate(None, DIGITS)


@dataclass
class _Hit:
    line: int
    text: str
    kept: dict[str, str]
    times: int = 1


@dataclass
class Scanner:
    """One log's. `feed` takes whole lines, in order and in pieces as they come; `findings` may be asked at any time."""

    known: Signatures
    hits: dict[int, _Hit] = field(default_factory=dict)
    context: set[tuple[int, str]] = field(default_factory=set)  # (rule, "needs" or "unless")
    looked: int = 0

    def feed(self, text: str, first: int) -> None:
        """Lines joined by line ends; `first` is the number of the first one."""
        text = narrow(text)
        low = text.encode("utf-8", "replace").lower()
        found = self.known.words_of(shape(low).split(b"\n"))
        if not any(found):
            return
        lines, lows = text.split("\n"), low.split(b"\n")
        for place, words in enumerate(found):
            if words and self.looked < MOST_LINES:
                self.looked += 1
                self._look(lines[place][:MOST_LINE], lows[place], words, first + place)

    def _look(self, line: str, low: bytes, words: tuple[bytes, ...], number: int) -> None:
        coded = False
        for shaped in words:
            coded = coded or shaped in self.known.coded
            for word, rule, role, template in self.known.words.get(shaped, ()):
                match = template.regex.search(line) if word in low else None
                if match and (role != "says" or _counts(self.known.rules[rule], match, line)):
                    self._note(rule, role, number, line, match.groupdict())
        if coded:
            for code in {*LETTERED.findall(line), *NUMBERED.findall(line)} & self.known.codes.keys():
                self._note(self.known.codes[code], "says", number, line, {})

    def _note(self, rule: int, role: str, number: int, line: str, kept: dict[str, str | None]) -> None:
        if role != "says":
            self.context.add((rule, role))
            return
        said = {k: v.rstrip(".,") for k, v in kept.items() if v}
        hit = self.hits.get(rule)
        if hit is None:
            self.hits[rule] = _Hit(number, line.strip()[:1000], said)
        elif hit.line == number:  # several signatures of the rule find the line, and each keeps what others do not
            hit.kept = {**said, **hit.kept}
        else:
            hit.times += 1

    def findings(self) -> list[Finding]:
        """Best first: what names a cause before what only explains a code, and the root before its echoes."""
        found = []
        for number, hit in self.hits.items():
            rule = self.known.rules[number]
            if (number, "unless") in self.context or (rule.needs and (number, "needs") not in self.context):
                continue
            score = min(100, rule.weight + (NEED_BONUS if rule.needs else 0))
            found.append(Finding(rule, hit.line, hit.text, hit.kept, _details(hit.text), score, hit.times))
        return sorted(found, key=lambda one: (-one.score, one.line, one.rule.id))


def _counts(rule: Rule, match: "re.Match[str]", line: str) -> bool:
    """Whether the line is what the rule means: not one that it leaves out, and with numbers as it wants them."""
    if any(one.regex.search(line) for one in rule.apart):
        return False
    kept = match.groupdict()
    if rule.small is None or rule.small[0] not in kept:
        return True
    part, whole, share = rule.small
    try:
        return float(kept[part]) <= share * float(kept[whole])
    except (ValueError, KeyError):
        return False


def _details(text: str) -> dict[str, str]:
    found = {name: re.search(regex, text, re.IGNORECASE) for name, regex in PLACES.items()}
    return {name: match[1] for name, match in found.items() if match}
