"""The program of a benchmark on a server: an engine that pretends, and a stack whose benchmark is a small script."""

import base64
import json
import os
import subprocess
import sys
import textwrap
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from deployments.agent import signing
from deployments.kinds import benchmark
from deployments.steps import read_params, resolve
from tests.conftest import ROOT

KEY = "ab" * 32
API_KEY = "sk-of-the-deployment"
SCRIPT = """
    import json, os, pathlib, sys
    words = sys.argv[1:]
    value = lambda name: words[words.index(name) + 1]
    degree = int(value("--max-concurrency"))
    pathlib.Path(os.environ["SEEN"]).write_text(json.dumps({"argv": words, "env": dict(os.environ)}))
    if degree == 13:
        sys.exit("RuntimeError: NPU out of memory. Tried to allocate")
    n = int(value("--num-prompts"))
    failed = 2 if degree == 7 else 0
    made = {"num_prompts": n, "completed": n - failed, "failed": failed, "duration": 1.5,
            "output_throughput": 10.0 * degree, "p90_tpot_ms": float(degree)}
    folder = pathlib.Path(value("--result-dir"))
    (folder / value("--result-filename")).write_text(json.dumps(made))
"""


class Api(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/v1/models" and self.headers["Authorization"] != f"Bearer {API_KEY}":
            return self.send_error(401)
        bodies = {"/health": "", "/v1/models": json.dumps({"data": [{"id": "qwen"}]}), "/metrics": self.server.metrics}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(bodies[self.path].encode())
        return None

    def log_message(self, *_words):
        pass


@pytest.fixture
def engine():
    made = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    made.metrics = 'vllm:num_requests_running{engine="0"} 3.0\nvllm:request_success_total{reason="stop"} 40.0\n'
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture
def run(tmp_path, engine):
    (model := tmp_path / "model").mkdir()
    (model / "tokenizer.json").write_text("{}")
    (bin_ := tmp_path / "stacks" / "current" / "bin").mkdir(parents=True)
    script = bin_ / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    (python := bin_ / "python").write_text(f'#!/bin/sh\nshift 2\nexec {sys.executable} {script} "$@"\n')  # -c TEXT
    python.chmod(0o755)
    (bin_.parent / "activate").write_text(f'export PATH={bin_}:"$PATH"\n')
    config = {"server_id": 1, "name": "kp", "redis_url": "redis://", "prefix": "h:1:", "key": KEY,
              "state_dir": str(tmp_path / "state")}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    sealed = base64.b64encode(signing.seal(KEY, json.dumps({"api_key": API_KEY}).encode())).decode()
    given = {"replica": 3, "base_url": f"http://127.0.0.1:{engine.server_port}", "model": "qwen", "sealed": sealed,
             "tokenizer": str(model), "stacks": str(tmp_path / "stacks"), "device": "cpu", "prompts": 8}  # fmt: skip

    def steps(**more):
        """(exit codes, what was told, the last reason, what was printed) of a job's steps in one folder."""
        (tmp_path / "attempt").mkdir(exist_ok=True)
        codes, printed = [], ""
        for step in benchmark.steps(read_params(benchmark.Params, {**given, **more})):
            files = {"ASCEND_CONFIG": "config.json", "SEEN": "seen", "ASCEND_ITEMS": "items", "ASCEND_REASON": "reason"}
            own = {"PYTHONPATH": str(ROOT), **{name: str(tmp_path / file) for name, file in files.items()}}
            ended = subprocess.run(resolve(step.argv), env={**os.environ, **step.env, **own}, cwd=tmp_path / "attempt",
                                   capture_output=True, text=True, timeout=30)  # fmt: skip
            codes.append(ended.returncode)
            printed += ended.stdout + ended.stderr
            if ended.returncode and not step.may_fail:
                break
        items = tmp_path / "items"
        told = [json.loads(line) for line in items.read_text().splitlines()] if items.exists() else []
        reason = tmp_path / "reason"
        return codes, told, json.loads(reason.read_text())[1] if reason.exists() else "", printed

    steps.seen = lambda: json.loads((tmp_path / "seen").read_text())
    return steps


def test_each_degree_is_measured_and_told(run):
    codes, told, _reason, printed = run(degrees="2, 4", target_concurrency=4, target_tpot_ms=5)
    assert codes == [0, 0, 0, 0]
    assert [(one["told"], one["data"].get("concurrency")) for one in told] == [
        ("benchmark_point", 2), ("benchmark_point", 4), ("benchmark", None)]  # fmt: skip
    assert told[1]["data"]["output_tokens_s"] == 40.0 and told[1]["data"]["others"] == 3
    assert told[-1]["data"] == {"degrees": [2, 4], "passed": True}
    seen = run.seen()
    assert seen["env"]["OPENAI_API_KEY"] == API_KEY and seen["env"]["ASCEND_RT_VISIBLE_DEVICES"] == ""
    assert API_KEY not in json.dumps(seen["argv"]) + printed
    assert "BENCHMARK_SEALED" not in seen["env"] and "ASCEND_CONFIG" not in seen["env"]


def test_a_degree_that_fails_leaves_the_others_and_fails_the_job(run):
    codes, told, reason, _printed = run(degrees="2, 7, 13, 20")
    assert codes == [0, 0, 1, 1, 0, 1]
    points = {one["data"]["concurrency"]: one["data"] for one in told[:-1]}
    assert [points[one]["sound"] for one in (2, 7, 13, 20)] == [True, False, False, True]
    assert "2 of 14 requests failed" in points[7]["reason"][1]
    assert "not enough memory" in points[13]["reason"][1]
    assert reason.startswith("A concurrency of 7, 13 was not measured") and told[-1]["data"]["passed"] is False


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"model": "other"}, "serves qwen, not other"),
        ({"stacks": "/nowhere"}, "no stack in use"),
        ({"tokenizer": "/data/none"}, "no tokenizer in /data/none"),
        ({"base_url": "http://127.0.0.1:1"}, "does not answer"),
        ({"sealed": ""}, "refuses requests (HTTP 401)"),
        ({"sealed": "AAAA"}, "cannot be opened"),
    ],
)
def test_what_is_in_the_way_is_said_before_anything_is_measured(run, more, words):
    codes, told, reason, _printed = run(degrees="2", **more)
    assert codes == [1] and told == [] and words in reason
