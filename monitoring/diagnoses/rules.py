"""Rules out of TOML files: `[[rule]]` tables, and in `codes.toml` `[[code]]` tables, which are rules for error codes.

    [[rule]]
    id = "port-in-use"
    weight = 85
    says = ["address already in use"]
    cause = { zh = "…", en = "… {port} …" }
    remedies = [{ zh = "…", en = "…", job = "check" }]

`says`: signatures (templates.py), any of which finds it. `needs`: signatures of which one must stand somewhere in the
log, too. `unless`: signatures that rule it out wherever they stand, `apart` only a line that holds one. `small`: [part,
whole, share] of numbers that were kept: only where the part is at most that share of the whole. `calm`: it counts on a
line of INFO or WARNING though nothing else in the log tells of a failure. `echo`: it follows from other failures, so
that one which stands before it is named first. `last`: it counts only in so many last lines of the log. `weight`: 90
names a cause, 70 a cause of several, 50 explains a code, below 30 it only repeats what was said, where nothing else is
known. The file's name is the stage, where a rule names no other.
"""

import dataclasses
import re
import string
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomllib

from monitoring.diagnoses.templates import BadTemplate, Template, compiled

STAGES = ("install", "convert", "quantize", "serve", "runtime", "network", "hardware")
CODE = re.compile(r"E[A-Z0-9]\d{4}|\d{6}")
ID = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
MOST_TEXT = 1200
KNOWN = {"id", "stage", "weight", "says", "needs", "unless", "apart", "small", "calm", "echo", "last",
         "cause", "remedies", "links"}  # fmt: skip


class BadRule(ValueError):
    """A rule that cannot be used; says which, and why."""


@dataclass(frozen=True)
class Words:
    """A text in two languages; names in braces stand for what the signature has kept. What stands in brackets goes with
    a value that it did not keep: “The port ({port}) is taken”."""

    zh: str
    en: str


@dataclass(frozen=True)
class Remedy:
    """`job`: the kind that applies it, '' where a person does. `change`: names of settings that a new revision would
    change."""

    words: Words
    job: str = ""
    change: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rule:
    id: str
    stage: str
    weight: int
    says: tuple[Template, ...]
    cause: Words
    remedies: tuple[Remedy, ...]
    needs: tuple[Template, ...] = ()
    unless: tuple[Template, ...] = ()
    apart: tuple[Template, ...] = ()
    small: tuple[str, str, float] | None = None
    calm: bool = False
    echo: bool = False
    last: int = 0  # counts only in so many last lines of a log, where it is not 0
    links: tuple[str, ...] = ()
    code: str = ""  # of CANN: found by how codes are printed, and not by `says`


def read_file(path: Path) -> list[Rule]:
    """Raises BadRule."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadRule(f"{path.name}: {error}") from error
    return read(text, path.stem)


def read(text: str, stage: str) -> list[Rule]:
    """The rules of a file of that name. Raises BadRule."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadRule(f"{stage}: {error}") from error
    if strange := sorted(set(data) - {"rule", "code", "off"}):
        raise BadRule(f"{stage}: {', '.join(strange)[:60]} is not known here; write [[rule]] or [[code]]")
    rules = [_rule(table, stage) for table in _tables(data, "rule", stage)]
    rules += [_code_rule(table, stage) for table in _tables(data, "code", stage)]
    twice = [name for name, n in Counter(rule.id for rule in rules).items() if n > 1]
    if twice:
        raise BadRule(f"{stage}: {', '.join(sorted(twice))} stands twice")
    return rules


def read_off(text: str) -> frozenset[str]:
    """`off = ["port-in-use"]` at the top of a site's file: ids of our rules that it does not want. Raises BadRule."""
    given = tomllib.loads(text).get("off", [])
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise BadRule('off is a list of ids, such as off = ["port-in-use"]')
    return frozenset(given)


def _tables(data: Mapping[str, Any], name: str, stage: str) -> list[Mapping[str, Any]]:
    given = data.get(name, [])
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise BadRule(f"{stage}: begin each rule with a line [[{name}]]")
    return given


def _code_rule(table: Mapping[str, Any], stage: str) -> Rule:
    """Raises BadRule."""
    code = str(table.get("code", ""))
    if not CODE.fullmatch(code):
        raise BadRule(f"{stage}: “{code[:20]}” is no code; write EI0006 or 507035")
    named = {name: value for name, value in table.items() if name != "code"}
    # The scanner knows how codes are printed; what stands here only makes it a rule like the others.
    rule = _rule({"id": f"code-{code.lower()}", "weight": 50, "says": [f"code {code}"], **named}, stage)
    return dataclasses.replace(rule, says=(), code=code)


def _rule(table: Mapping[str, Any], stage: str) -> Rule:
    name = str(table.get("id", ""))
    if not ID.fullmatch(name):
        raise BadRule(f"{stage}: “{name[:60]}” is no id; write small letters, digits and hyphens")
    try:
        if strange := sorted(set(table) - KNOWN):
            raise ValueError(f"{', '.join(strange)} is not known here")
        weight = table.get("weight", 70)
        if not isinstance(weight, int) or not 1 <= weight <= 100:
            raise ValueError("weight is a number from 1 to 100")
        own = str(table.get("stage", stage))
        if own not in STAGES:
            raise ValueError(f"stage is one of {', '.join(STAGES)}")
        says = _templates(table, "says")
        if not says:
            raise ValueError("says names no signature")
        rule = Rule(
            id=name,
            stage=own,
            weight=weight,
            says=says,
            cause=_words(table.get("cause")),
            remedies=tuple(_remedy(one) for one in table.get("remedies", [])),
            needs=_templates(table, "needs"),
            unless=_templates(table, "unless"),
            apart=_templates(table, "apart"),
            small=_small(table.get("small")),
            calm=_flag(table, "calm"),
            echo=_flag(table, "echo"),
            last=_number(table, "last"),
            links=tuple(str(one) for one in table.get("links", [])),
        )
        _check_names(rule)
    except (ValueError, TypeError, AttributeError) as error:
        raise BadRule(f"{stage}/{name}: {error}") from error
    return rule


def _templates(table: Mapping[str, Any], name: str) -> tuple[Template, ...]:
    given = table.get(name, [])
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise BadTemplate(f"{name} is a list of texts")
    return tuple(compiled(one) for one in given)


def _flag(table: Mapping[str, Any], name: str) -> bool:
    given = table.get(name, False)
    if not isinstance(given, bool):
        raise ValueError(f"{name} is true or false")
    return given


def _number(table: Mapping[str, Any], name: str) -> int:
    given = table.get(name, 0)
    if not isinstance(given, int) or isinstance(given, bool) or not 0 <= given <= 1000:
        raise ValueError(f"{name} is a number from 0 to 1000")
    return given


def _small(given: Any) -> tuple[str, str, float] | None:
    if given is None:
        return None
    part, whole, share = given
    return str(part), str(whole), float(share)


def _words(given: Any) -> Words:
    if not isinstance(given, dict) or not all(isinstance(given.get(key), str) for key in ("zh", "en")):
        raise ValueError("a text has zh and en")
    if any(len(given[key]) > MOST_TEXT or not given[key].strip() for key in ("zh", "en")):
        raise ValueError(f"a text has 1 to {MOST_TEXT} characters")
    return Words(given["zh"], given["en"])


def _remedy(given: Any) -> Remedy:
    return Remedy(_words(given), str(given.get("job", "")), tuple(str(one) for one in given.get("change", [])))


def _check_names(rule: Rule) -> None:
    """What texts name in braces must be kept by some signature."""
    kept = {name for one in rule.says for name in one.regex.groupindex}
    for words in (rule.cause, *(one.words for one in rule.remedies)):
        for text in (words.zh, words.en):
            for _text, name, _spec, _conversion in string.Formatter().parse(text):
                if name is not None and name not in kept:
                    raise ValueError(f"no signature keeps “{name}”; write {{{{ and }}}} for braces")
