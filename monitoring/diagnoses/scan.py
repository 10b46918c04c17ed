"""Hold a log against all rules in one pass, as its lines arrive.

Ordinary lines must cost next to nothing, and they come by the thousand in a few shapes: without their digits most of
them are the same. So a shape is looked at once for the words of signatures (a word that stands in a line stands, both
without digits, in its shape), and what was found is kept. Only lines whose shape holds a word are looked at as they
are, and only where the word itself stands its expression is tried.
"""

import dataclasses
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from monitoring.diagnoses import lines
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
LETTERS = ("e:", "(e)", "[e]", *(f"e{letter}{end}" for letter in "ijlezhk" for end in (":", ")", "[", "]", "  ")))
NUMBERS = (
    *("error code", "errorcode", "error no", "errorno", "errno", "errcode", "err_code", "error_code"),
    *("result =", "result=", "failed: ", "error:", "error[", "error=", "acl error", "aclerror", "acl_error"),
    *("ret =", "ret=", "ret:", "ret[", "ret ", "retcode", "ret_code", "return code", "return ="),
    *("错误码", "返回码", "返回值"),
)
LETTERED_LOW = re.compile(rb"(?<![a-z0-9_])e[a-z]?\d{4,5}(?:[:)\[\]]|  )")  # quick, and true of all that LETTERED finds
CODED_LOW = re.compile(rb"[a-z]\d{4}")
NUMBERED_LOW = re.compile(rb"(?<!\d)\d{6}(?!\d)")
MOST_LINES = 20_000  # that say something, in one log: one full of errors is judged by its first ones
MOST_TRIED = 200_000
MOST_SHAPES = 20_000
MOST_TIMES = 200  # of one rule in one log: from then on it is known well enough
LEAST_SHAPE = 2
NEED_BONUS = 4
LAST_RESORT = 30  # rules of less weight only repeat what a program said, where no other knows it
NAMES_CAUSE = 78  # a weight from which an earlier line takes the first place from what follows from it
NAME = re.compile(r"(?<!\{)\{(\w+)\}")
BRACKETS = re.compile(r" ?\([^()]{1,200}\)|（[^（）]{1,200}）")  # in a rule's texts
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
        return {"zh": _filled(words.zh, self.kept), "en": _filled(words.en, self.kept)}

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


def _filled(text: str, kept: dict[str, str]) -> str:
    """Brackets go with a value that no line said: “port {port} (address {ip})” is whole without its address."""
    whole = BRACKETS.sub(lambda part: part[0] if kept.keys() >= set(NAME.findall(part[0])) else "", text)
    return whole.format_map(_Kept(kept))


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
        self.letters, self.numbers = (frozenset(word.encode() for word in some) for some in (LETTERS, NUMBERS))
        self.failing = frozenset(shape(word.encode()) for word in lines.FAILED_WORDS)
        shaped = {*self.words, *self.letters, *self.numbers, *self.failing}
        # What is left of `80E01809` without its digits stands in every line: such words are looked for as they are.
        self.whole = {word for one, known in self.words.items() if len(one) < LEAST_SHAPE for word, *_rest in known}
        # Without digits `E10001:` is `e:`, which stands in many a line that holds no code.
        self.coded = frozenset(
            one for one, known in self.words.items() if all(CODED_LOW.search(word) for word, *_rest in known)
        )
        self.looked_for = tuple(sorted(one for one in shaped if len(one) >= LEAST_SHAPE))
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

    def may_hold_code(self, low: bytes, words: tuple[bytes, ...]) -> bool:
        return (not self.letters.isdisjoint(words) and LETTERED_LOW.search(low) is not None) or (
            not self.numbers.isdisjoint(words) and NUMBERED_LOW.search(low) is not None
        )


def shape(low: bytes) -> bytes:
    return low.translate(None, DIGITS)


@dataclass
class _Hit:
    line: int
    text: str
    kept: dict[str, str]
    times: int = 1
    latest: int = 0  # the last line of all that said it
    calm: bool = False  # only lines that are no errors by their own word have said it so far


@dataclass
class Scanner:
    """One log's. `feed` takes whole lines, in order and in pieces as they come; `findings` may be asked at any time."""

    known: Signatures
    hits: dict[int, _Hit] = field(default_factory=dict)
    context: set[tuple[int, str]] = field(default_factory=set)  # (rule, "needs" or "unless")
    looked: int = 0
    tried: int = 0  # lines that hold a word, and mostly nothing else
    last: int = 0  # the last line that said something
    end: int = 0  # the last line that holds anything
    failed: bool = False  # whether anything in the log tells of a failure: warnings alone do not

    def feed(self, text: str, first: int) -> None:
        """Lines joined by line ends; `first` is the number of the first one."""
        text = narrow(text)
        low = text.encode("utf-8", "replace").lower()
        if not text.isspace():
            self.end = first + text.rstrip().count("\n")
        found = self.known.words_of(shape(low).split(b"\n"))
        digits = [word for word in self.known.whole if word in low]
        if not digits and not any(found):
            return
        whole, lows = text.split("\n"), low.split(b"\n")
        for place, words in enumerate(found):
            here = (*words, *(shape(word) for word in digits if word in lows[place])) if digits else words
            if here and self.looked < MOST_LINES and self.tried < MOST_TRIED:
                self._look(whole[place], lows[place], here, first + place)

    def _look(self, line: str, low: bytes, words: tuple[bytes, ...], number: int) -> None:
        line = lines.plain(line)
        if not self.known.coded.isdisjoint(words) and not CODED_LOW.search(low):
            words = tuple(word for word in words if word not in self.known.coded)
        there = [
            (rule, role, match)
            for shaped in words
            for word, rule, role, template in self.known.words.get(shaped, ())
            if word in low
            and all(other in low for other in template.others)
            and self._wants(rule, role)
            and (match := _found(template, line))
        ]
        codes = _codes(line) & self.known.codes.keys() if self.known.may_hold_code(low, words) else set()
        failing = not self.failed and not self.known.failing.isdisjoint(words)
        self.tried += 1
        if not there and not codes and not failing:
            return
        quoted, calm = lines.quoted_from(line), lines.is_calm(line)
        self.failed = self.failed or (not calm and lines.tells_failure(line[:quoted]))
        for rule, role, match in there:
            if match.start() + (line.find(match.string) if len(line) > lines.MOST else 0) < quoted:
                self._take(rule, role, match, number, calm)
        for code in _codes(line[:quoted]) & codes:
            self._note(self.known.codes[code], _Hit(number, line[: lines.MOST], {}, calm=calm))

    def _wants(self, rule: int, role: str) -> bool:
        if role != "says":
            return (rule, role) not in self.context
        if self.known.rules[rule].last:
            return True
        return rule not in self.hits or self.hits[rule].times < MOST_TIMES

    def _take(self, rule: int, role: str, match: "re.Match[str]", number: int, calm: bool) -> None:
        if role != "says":
            self.context.add((rule, role))
        elif _counts(self.known.rules[rule], match, match.string):
            said = {k: v.rstrip(".,") for k, v in match.groupdict().items() if v}
            self._note(rule, _Hit(number, match.string, said, calm=calm))

    def _note(self, rule: int, new: _Hit) -> None:
        """The first line that says it is the one that is told, and one that is an error before one that is not."""
        self.looked, self.last = self.looked + (new.line != self.last), new.line
        hit, new.latest = self.hits.get(rule), new.line
        if hit is None or (hit.calm and not new.calm) or self._goes_on(rule, new):
            new.text, new.times = new.text.strip()[:1000], hit.times + 1 if hit else 1
            self.hits[rule] = new
        elif hit.line == new.line:  # several signatures of the rule find the line, and each keeps what others do not
            hit.kept = {**new.kept, **hit.kept}
        else:
            hit.times, hit.latest = hit.times + 1, new.line

    def _goes_on(self, rule: int, new: _Hit) -> bool:
        """Of what counts at the end the first of the last is told: what said it long before is another matter."""
        keep = self.known.rules[rule].last
        return bool(keep) and new.line - self.hits[rule].line > keep

    def _stands(self, number: int) -> bool:
        rule, needs = self.known.rules[number], bool(self.known.rules[number].needs)
        if rule.last and self.hits[number].latest <= self.end - rule.last:
            return False
        return (number, "unless") not in self.context and (not needs or (number, "needs") in self.context)

    def findings(self) -> list[Finding]:
        """Best first: what names a cause before what only explains a code, and the root before its echoes."""
        standing = [(self.known.rules[number], hit) for number, hit in self.hits.items() if self._stands(number)]
        failed = self.failed or any(not hit.calm for _rule, hit in standing)
        found = [_finding(rule, hit) for rule, hit in standing if failed or rule.calm or not hit.calm]
        if any(one.rule.weight >= LAST_RESORT for one in found):
            found = [one for one in found if one.rule.weight >= LAST_RESORT]
        return sorted(_roots_first(found), key=lambda one: (-one.score, one.line, one.rule.id))


def _finding(rule: Rule, hit: _Hit) -> Finding:
    score = min(100, rule.weight + (NEED_BONUS if rule.needs else 0))
    return Finding(rule, hit.line, hit.text, hit.kept, _details(hit.text), score, hit.times)


def _roots_first(found: list[Finding]) -> list[Finding]:
    """A process that waits in vain says so as loudly as the one that failed: what stands before it is the cause."""
    roots = [one for one in found if not one.rule.echo and one.score >= NAMES_CAUSE]
    return [_below(one, [root for root in roots if root.line < one.line]) if one.rule.echo else one for one in found]


def _below(echo: Finding, roots: list[Finding]) -> Finding:
    best = max((root.score for root in roots), default=0)
    return dataclasses.replace(echo, score=min(echo.score, best - 1)) if best else echo


def _found(template: Template, line: str) -> "re.Match[str] | None":
    return template.regex.search(lines.around(line, template.word))


def _codes(line: str) -> set[str]:
    part = line[: lines.MOST]
    return {*LETTERED.findall(part), *NUMBERED.findall(part)}


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
