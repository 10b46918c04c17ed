"""Version strings as this field writes them. rc < final, letters in either case."""

import re

TOKEN = re.compile(r"\d+|[a-z]+")
PRE = {"alpha": -4, "a": -4, "beta": -3, "b": -3, "rc": -2}
PARTS = 12
PLAIN = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,39}")  # what may stand in the name of a file
CLAUSE = re.compile(r"(>=|<=|==|<|>)\s*([0-9][0-9.]*)")


def parts(version: str) -> list[int]:
    """The numbers of a version, words that come before a release below zero; what else there is counts as 0."""
    tokens = TOKEN.findall(version.lower())[:PARTS]
    return [int(token[:9]) if token.isdecimal() else PRE.get(token, 0) for token in tokens]


def key(version: str) -> list[int]:
    """Sorts versions: `25.0.rc1.1` < `25.0` = `25` < `25.0.1` < `25.2`. Text without digits sorts as 0."""
    found = parts(version)
    return found + [0] * (PARTS - len(found))


def at_least(version: str, least: str) -> bool:
    """Whether version ≥ least. `25.2.X` means the whole line, release candidates too, as release notes write it."""
    if least.lower().endswith(".x"):
        line = parts(least[:-2])
        return parts(version)[: len(line)] >= line
    return key(version) >= key(least)


def same(one: str | None, other: str | None) -> bool:
    """Whether two texts name one version: `8.5.RC1` and `8.5.rc1`, `0.23.0` and `0.23.0+empty`. None is no version."""
    if one is None or other is None:
        return False
    return one.lower().partition("+")[0] == other.lower().partition("+")[0]


def in_range(version: str, low: str, high: str) -> bool:
    """Whether low ≤ version ≤ high; parts beyond those of `high` do not count, as `7.2.99` means all of 7.2."""
    return key(low) <= key(version) and parts(version)[: len(parts(high))] <= parts(high)


def fits(version: str, clauses: str) -> bool:
    """Whether a Python version lies in a range such as `>=3.10,<3.13`."""
    has = parts(version)
    for sign, bound in CLAUSE.findall(clauses):
        limit = parts(bound)
        have = has[: len(limit)]
        passed = {
            ">=": have >= limit, "<=": have <= limit, "<": have < limit, ">": have > limit, "==": have == limit,
        }[sign]  # fmt: skip
        if not passed:
            return False
    return True
