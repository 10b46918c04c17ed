"""Last words of the tools that are known mean something, and help."""

import json
import os
import re
from pathlib import Path

import pytest

from deployments.agent.heard import Heard
from deployments.artifacts.quant_failures import ATC, LITE, MODELSLIM
from deployments.steps import Step, Text

LINES = [  # (meanings, what is printed, what is said of it)
    (MODELSLIM, "ValueError: `disable_names` has invalid key `model.layers.9.mlp.down_proj`, please check",
     "another number of layers"),
    (MODELSLIM, "RuntimeError: mat1 and mat2 must have the same dtype, but got Float and BFloat16",
     "bfloat16 weights on a CPU"),
    (MODELSLIM, "[InvalidModelError] Code: 201, Message: Get tokenizer from pretrained failed in /data/m.",
     "tokenizer"),
    (MODELSLIM, "ValueError: Tokenizer class NewBackend does not exist or is not currently imported.", "tokenizer"),
    (MODELSLIM, "AttributeError: module 'torch' has no attribute 'npu'", "no torch_npu"),
    (MODELSLIM, "Code: 204, Message: The path /data/x doesn't exist or not a directory.", "does not find a folder"),
    (MODELSLIM, "msmodelslim quant: error: argument --quant_type: invalid QuantType value: 'w7a7'", "no such type"),
    (MODELSLIM, "w8a8 will be used.(Enter y to continue, otherwise it will exit): ", "asked about it"),
    (MODELSLIM, "SecurityError: Input path contains invalid characters.", "only paths of letters"),
    (MODELSLIM, "OSError: [Errno 28] No space left on device: '/data/out'", "disk is full"),
    (MODELSLIM, "RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB (NPU 3; 60.97 GiB total",
     "not enough memory"),
    (MODELSLIM, "loading\nKilled\n", "ran out of memory"),
    (MODELSLIM, "[Error] TBE Subprocess[task_distribute] raise error[], main process disappeared!",
     "ran out of memory"),
    (MODELSLIM, 'RuntimeError: "index" not implemented for DT_BFLOAT16', "310P has no bfloat16"),
    (MODELSLIM, "ERROR: Could not locate the configuration_tiny.py inside /data/m", "Python code of its own"),
    (MODELSLIM, "Some tensors share memory, this will lead to duplicate memory on disk", "head is its embedding"),
    (MODELSLIM, "ERROR: Could not find a version that satisfies the requirement puccinialin", "too old"),
    (ATC, "E19010: No parser is registered for Op [ThirdParty_7]", "does not know"),
    (ATC, "route.py, in task_distribute\n    key = get()\n  File x\n    conn.recv()\nEOFError", "lack of host memory"),
    (ATC, "ATC run failed, Make sure this is what you want: '--mode=0'.", "did not succeed"),
    (LITE, "CONVERT RESULT FAILED:-1 Memory allocated failed.", "did not succeed"),
    (LITE, "converter_lite: error while loading shared libraries: libmslite.so", "lacks a library"),
]  # fmt: skip


@pytest.mark.parametrize(("means", "line", "says"), LINES)
def test_known_last_words_mean_something(means, line, says):
    heard = Heard(Step(Text("", ""), [], means=means))
    heard.feed(2, line.encode())
    assert heard.meaning and says in heard.meaning.en and heard.meaning.zh


def test_a_healthy_run_means_nothing():
    healthy = 'INFO - Run processor AscendV1Saver for "model.layers.7"\nINFO - ===========SUCCESS===========\n'
    heard = Heard(Step(Text("", ""), [], means=MODELSLIM))
    heard.feed(1, healthy.encode())
    assert heard.meaning is None


def test_every_pattern_can_be_read():
    assert all(re.compile(pattern) for means in (MODELSLIM, ATC, LITE) for pattern, _words in means)


@pytest.mark.skipif(not os.environ.get("CORPUS_DIR"), reason="CORPUS_DIR names no real captures")
def test_real_captures_mean_something_where_they_failed():
    corpus = Path(os.environ["CORPUS_DIR"])
    for path in sorted((corpus / "msmodelslim-cpu").glob("*.log")):
        assert (meaning(MODELSLIM, path.read_bytes()) is not None) == path.name.startswith("fail-"), path.name
    for row in map(json.loads, (corpus / "failures.jsonl").read_text(encoding="utf-8").splitlines()):
        if row["id"].startswith("atc-"):
            assert meaning(ATC, row["log"].encode()), row["id"]
        elif row["id"].startswith("msmodelslim-"):
            assert meaning(MODELSLIM, row["log"].encode()), row["id"]


def meaning(means, data):
    heard = Heard(Step(Text("", ""), [], means=means))
    for at in range(0, len(data), 4096):
        heard.feed(1, data[at : at + 4096])
    return heard.meaning
