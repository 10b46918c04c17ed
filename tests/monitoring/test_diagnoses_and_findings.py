"""Two places know failures of engines: servers have `serving/failures` (Python 3.10 reads no TOML, and remedies there
are worked out), the console has `monitoring/diagnoses` as well. Of the same line both must mean the same."""

import pytest

from deployments.serving import findings
from monitoring import diagnoses
from monitoring.diagnoses.agreeing import SAME
from tests.deployments.test_serving_findings import KNOWN as FOUND
from tests.monitoring.test_diagnoses import KNOWN as DIAGNOSED

SAMPLES = [*FOUND, *(line for _rule, line in DIAGNOSED)]


def both(line: str) -> tuple[str, str] | None:
    """What each says first of a line; None where one of them has nothing to say."""
    rules, found = diagnoses.diagnose(line), findings.look([line])
    return (rules[0].rule.id, found[0].id) if rules and found else None


@pytest.mark.parametrize("line", SAMPLES)
def test_both_mean_the_same_of_a_line(line):
    said = both(line)
    assert said is None or SAME.get(said[0]) == said[1]


def test_each_pair_is_tried():
    assert {said for line in SAMPLES if (said := both(line))} == set(SAME.items())
