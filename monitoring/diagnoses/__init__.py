"""Known failures: what a log says when something went wrong, why, and what to do.

The folder is the list: each `<stage>.toml` holds rules of one stage (`rules.py` reads them), `scan.py` holds a log
against all of them in one pass. No Django here: a command, ingest and pages use the same.
"""

from functools import cache
from pathlib import Path

from monitoring.diagnoses.rules import BadRule, Rule, read_file
from monitoring.diagnoses.scan import LAST_RESORT, Finding, Scanner, Signatures

__all__ = ["BadRule", "Finding", "Rule", "Scanner", "Signatures", "bundled", "diagnose", "named", "signatures"]

HERE = Path(__file__).parent


@cache
def bundled() -> tuple[Rule, ...]:
    """The rules that come with the console, in the order of their files."""
    return tuple(rule for path in sorted(HERE.glob("*.toml")) for rule in read_file(path))


@cache
def signatures() -> Signatures:
    return Signatures(bundled())


def diagnose(text: str) -> list[Finding]:
    """What is known of this log, best first; [] when it is healthy, or when nobody knows what is wrong."""
    scanner = Scanner(signatures())
    scanner.feed(text, 1)
    return scanner.findings()


def named(found: list[Finding]) -> list[Finding]:
    """Without those that only repeat what a program said: of engines the tables on servers do that."""
    return [one for one in found if one.rule.weight >= LAST_RESORT]
