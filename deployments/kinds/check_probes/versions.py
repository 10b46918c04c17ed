"""Version strings as this field writes them, and what goes with what. rc < final, letters in either case."""

import re

TOKEN = re.compile(r"\d+|[a-z]+")
PRE = {"alpha": -4, "a": -4, "beta": -3, "b": -3, "rc": -2}

# CANN -> oldest driver (Ascend HDK) that its release notes accept.
MIN_DRIVER = (("9.2", "25.3"), ("9.1", "25.2"), ("9.0", "25.0"), ("8.5", "25.0"), ("8.1", "24.1.rc1"))

# CANN -> newest vLLM-Ascend of the published matrix that is pinned to it.
VLLM_ASCEND = {
    "9.1.0": "0.23.0",
    "9.0.1": "0.23.0rc1",
    "9.0.0": "0.22.1rc1",
    "8.5.1": "0.18.0",
    "8.5.0": "0.13.0",
    "8.3.rc2": "0.11.0",
    "8.3.rc1": "0.11.0rc1",
    "8.2.rc1": "0.9.1",
    "8.1.rc1": "0.7.3.post1",
}
DEFAULT_CANN = "9.1.0"  # of vLLM-Ascend 0.23.0, the last final release with an aarch64 wheel
DEFAULT_DRIVER = "25.2"


PARTS = 12


def parts(version: str) -> list[int]:
    """The numbers of a version, words that come before a release below zero; what else there is counts as 0."""
    tokens = TOKEN.findall(version.lower())[:PARTS]
    return [int(token[:9]) if token.isdecimal() else PRE.get(token, 0) for token in tokens]


def key(version: str) -> list[int]:
    """Sorts versions: `25.0.rc1.1` < `25.0` = `25` < `25.0.1` < `25.2`. Text without digits sorts as 0."""
    found = parts(version)
    return found + [0] * (PARTS - len(found))


def at_least(version: str, least: str) -> bool:
    return key(version) >= key(least)


def in_range(version: str, low: str, high: str) -> bool:
    """Whether low ≤ version ≤ high; parts beyond those of `high` do not count, as `7.2.99` means all of 7.2."""
    return key(low) <= key(version) and parts(version)[: len(parts(high))] <= parts(high)


def min_driver(cann: str) -> str | None:
    """The oldest driver that this CANN accepts, None when nothing is known of it."""
    return next((driver for line, driver in MIN_DRIVER if cann.startswith(f"{line}.")), None)
