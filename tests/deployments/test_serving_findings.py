"""What is made of an engine's last lines. Layout as engines print it, with values of our own."""

import os
import time
from pathlib import Path

import pytest

from deployments.serving import findings
from deployments.serving.failures import Known

PREFIX = "(EngineCore pid=4711) ERROR 11-02 08:15:{:02d} [core.py:911] "
ECHO = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
HEALTHY = """(APIServer pid=11) INFO 03-04 10:00:00 [api_server.py:1] vLLM API server version 0.23.0
(APIServer pid=11) WARNING 03-04 10:00:00 [u.py:2] errors like `OSError: [Errno 24] Too many open files`
(EngineCore pid=12) INFO 03-04 10:00:09 [worker.py:3] Available KV cache memory: 21.40 GiB
(EngineCore pid=12) INFO 03-04 10:00:09 [kv.py:4] GPU KV cache size: 311,296 tokens
(APIServer pid=1) INFO 03-04 10:01 [l.py:5] Received request x: prompt: 'NPU out of memory. Tried to allocate 2 GiB'
INFO:     Application startup complete."""

KNOWN = {
    "Available KV cache memory: -3.25 GiB": ("kv-negative", {"available": "-3.25"}),
    "Based on the available memory, the estimated maximum model length is 20992. Try": (
        "context-estimate", {"longest": "20992"}),
    "ValueError: The model's max seq len (65536) is larger than the maximum number of tokens that can be stored in KV "
    "cache (9088). Try increasing": ("context-cache", {"context": "65536", "longest": "9088"}),
    "RuntimeError: NPU out of memory. Tried to allocate 6.25 GiB (NPU 3; 29.50 GiB total capacity; 28.01 GiB already "
    "allocated; 28.01 GiB current active; 512.40 MiB free; 28.60 GiB reserved": ("oom", {"wanted": "6.25 GiB"}),
    "RuntimeError: NPU out of memory. Tried to allocate 40.00 MiB (NPU 1; 60.96 GiB total capacity; 3.50 GiB already "
    "allocated; 3.50 GiB current active; 9.10 MiB free; 3.6": ("oom-foreign", {"ours": "3.50", "total": "60.96"}),
    "x: error: unrecognized arguments: --swap-space 8": ("flag-unknown", {"flags": "--swap-space 8"}),
    "  Value error, User-specified max_model_len (8192) is greater than the derived max_model_len "
    "(max_position_embeddings=2048.0 or": ("context-model", {"context": "8192", "longest": "2048"}),
    "Total number of attention heads (40) must be divisible by tensor parallel size (3).": (
        "heads", {"heads": "40", "tp": "3"}),
    "numHeads / numKvHeads = 16, MLA only support {32, 64, 128}.": ("mla-heads", {"each": "16"}),
    "HCCL_BUFFSIZE is too SMALL, maxBs = 9, h = 12, NEEDED_HCCL_BUFFSIZE(a * b) = 700MB, HCCL_BUFFSIZE=300MB.": (
        "hccl-buffer", {"needed": "700", "has": "300"}),
    "EL0009: stream resources are insufficient": ("graph-streams", {}),
    "self not implemented for DT_BFLOAT16, should be in": ("bfloat16", {}),
    "[Errno 98] error while attempting to bind on address ('127.0.0.1', 18007): address already in use": ("port", {}),
    "Can not support soc_version: 107.": ("chip-unsupported", {}),
    "RuntimeError: Failed to infer device type": ("no-device", {}),
    "KeyError: 'model.layers.7.mlp.up_proj.weight'": ("quant-description", {}),
}  # fmt: skip


@pytest.mark.parametrize("line", KNOWN)
def test_known_lines_are_named_with_their_numbers(line: str) -> None:
    name, numbers = KNOWN[line]
    found = findings.look([PREFIX.format(1) + line])
    assert found[0].id == name
    assert numbers.items() <= found[0].numbers.items()
    assert all(number in found[0].cause.en for number in numbers.values())
    assert found[0].remedies


def test_healthy_lines_have_no_finding() -> None:
    assert findings.look(HEALTHY.splitlines()) == []


def test_what_a_request_says_is_no_finding() -> None:
    assert findings.look(["INFO [logger.py:5] Received request 7: prompt: 'multi-bit ECC', params"], died=True) == []


def test_the_cause_stands_before_those_that_waited_for_it() -> None:
    lines = ["[rank3] HCCL watchdog thread terminated with exception", PREFIX.format(2) + "multi-bit ECC", ECHO]
    assert [one.id for one in findings.look(lines)] == ["ecc", "peer-silent"]


def test_an_echo_is_never_the_answer() -> None:
    assert findings.look([ECHO]) == []
    lines = [PREFIX.format(3) + "ZeroDivisionError: division by 0 of a thing", ECHO]
    found = findings.look(lines, died=True)
    assert [one.id for one in found] == ["unknown"]
    assert "ZeroDivisionError: division by 0" in found[0].cause.en
    assert found[0].line == 1


def test_an_engine_that_is_gone_without_a_word_was_killed() -> None:
    lines = [*HEALTHY.splitlines(), "ERROR [c.py:7] Engine core proc EngineCore_DP0 died unexpectedly, shutting down."]
    assert findings.look(lines) == []
    assert [one.id for one in findings.look(lines, died=True)] == ["gone"]


def test_text_of_the_log_is_bounded_and_never_a_format() -> None:
    flags = "--{0.__class__}" + "x" * 9000
    found = findings.look([f"y: error: unrecognized arguments: {flags}"])[0]
    assert "{0.__class__}" in found.cause.en
    assert len(found.cause.en) < 400 and len(found.text) <= findings.MOST_SHOWN


@pytest.mark.parametrize("known", findings.TABLES, ids=lambda one: one.id)
def test_each_entry_says_it_in_both_languages(known: Known) -> None:
    texts = [known.cause, *(one.text for one in known.remedies)]
    assert known.remedies
    for text in texts:
        assert text.zh and text.en and text.zh.isascii() is False
    assert [one.id for one in findings.TABLES].count(known.id) == 1


@pytest.mark.skipif("CORPUS_DIR" not in os.environ, reason="no real captures here")
def test_real_captures() -> None:
    corpus = Path(os.environ["CORPUS_DIR"])
    for path in [*(corpus / "healthy").glob("*.log"), *(corpus / "vllm-cpu").glob("serve-healthy*.log")]:
        assert findings.look(path.read_text(errors="replace").splitlines()) == [], path.name
    for path in (corpus / "vllm-cpu").glob("fail-*.log"):
        found = findings.look(path.read_text(errors="replace").splitlines(), died=True)
        assert found and found[0].id not in ("unknown", "gone"), path.name


@pytest.mark.parametrize("line", ["(EngineCore" + "a" * 3900 + "| XError: x", "9" * 3900 + "| XError: x"])
def test_a_hostile_line_costs_no_more_than_others(line):
    """An engine's log is what its server likes to send: no pattern may take time that grows by powers."""
    began = time.monotonic()
    assert findings.look([line] * 20, died=True)[0].id == "unknown"
    assert time.monotonic() - began < 5
