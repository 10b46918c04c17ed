"""Two places know failures of engines: servers have `serving/failures` (Python 3.10 reads no TOML, and remedies there
are worked out), the console has `monitoring/diagnoses` as well. Of the same line both must mean the same."""

import pytest

from deployments.serving import findings
from monitoring import diagnoses
from tests.deployments.test_serving_findings import KNOWN as FOUND
from tests.monitoring.test_diagnoses import KNOWN as DIAGNOSED

SAME = {  # rule: finding
    "aicpu-library": "aicpu",
    "bf16-on-chip-without": "bfloat16",
    "context-beyond-model": "context-model",
    "device-type-not-inferred": "no-device",
    "disk-full": "disk-full",
    "flag-unknown": "flag-unknown",
    "glibc-too-old": "libraries",
    "graph-streams": "graph-streams",
    "hbm-multi-bit-ecc": "ecc",
    "hccl-buffer-too-small": "hccl-buffer",
    "hccl-link-timeout": "peer-connect",
    "hccl-port-npu": "device-port",
    "heads-not-divisible": "heads",
    "kv-cache-negative": "kv-negative",
    "kv-cache-smaller-than-context": "context-cache",
    "mla-heads-per-rank": "mla-heads",
    "nnal-missing": "no-nnal",
    "npu-full-by-others": "oom-foreign",
    "npu-link-down": "link-down",
    "npu-out-of-memory": "oom",
    "npu-smi-container": "no-hal",
    "port-in-use": "port",
    "quant-layer-not-described": "quant-description",
    "quantization-ascend-unknown": "flag-choice-ascend",
    "soc-unsupported": "chip-unsupported",
    "torch-npu-missing": "no-package",
}
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
