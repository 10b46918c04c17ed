"""One replica over two servers, with the real vLLM on CPUs: two agents' folders on this machine, an address each.

Data parallel of a model without experts, which vLLM's CPU build can do between nodes. It cannot for a mixture of
experts (`CpuCommunicator` has no `all_gatherv`, vLLM 0.32) nor a pipeline (its workers get no intermediate tensors).
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request

import pytest

from deployments.agent import processes, spool
from deployments.agent.config import load
from deployments.agent.engines import folder
from deployments.artifacts import read as models
from deployments.artifacts import sample
from tests.conftest import ROOT
from tests.deployments.serve_bench import API_KEY, KEY, free_port, sealed
from tests.waiting import until

READY_S = 360
SETTINGS = {"device": "cpu", "served_model_name": "m", "dtype": "float32", "max_model_len": 128, "max_num_seqs": 2,
            "enforce_eager": True, "kv_cache_gib": 1, "nodes": 2, "data_parallel_size": 2, "ready_min": 6}  # fmt: skip


class Node:
    """One agent's folder, in which the jobs of its part run."""

    def __init__(self, pair, rank):
        self.pair, self.rank, self.attempts = pair, rank, 0
        self.config_path = pair.folder / f"node{rank}.json"
        self.state = pair.folder / f"node{rank}"
        (self.state / "attempts").mkdir(parents=True)
        told = {"server_id": 7 + rank, "name": f"kp-{rank}", "redis_url": "redis://127.0.0.1:1", "prefix": "h:7",
                "key": KEY, "state_dir": str(self.state)}  # fmt: skip
        self.config_path.write_text(json.dumps(told))
        self.place = folder.of(load(self.config_path), "e21")

    @property
    def now(self):
        return folder.read_json(self.place.path / "now.json") or {}

    def run(self, kind, **params):
        """A job by the agent's own runner; how it ended."""
        self.attempts += 1
        name = f"a{self.rank + 1}-{self.attempts}-{self.rank + 1:08x}"
        asked = {
            "attempt": name,
            "kind": kind,
            "params": {**self.pair.common, **params},
            "not_after": time.time() + 900,
        }
        spool.claim(self.state / "attempts", name, json.dumps(asked))
        place = self.state / "attempts" / name
        argv = [sys.executable, "-m", "deployments.agent.runner", str(place), "--config", str(self.config_path)]
        subprocess.run(argv, env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=ROOT, timeout=READY_S + 120, check=False)
        lines = (line.split("\t", 2) for line in (place / "lines").read_text().splitlines())
        return [json.loads(text) for _at, mark, text in lines if mark == "v"][-1]

    def close(self):
        if (keeper := self.place.keeper) is not None:
            os.kill(keeper, signal.SIGKILL)
        if (who := self.place.engine) is not None and who.pid:
            processes.signal_session(who.pid, signal.SIGKILL)


class Pair:
    def __init__(self, tmp_path, cpu_stack):
        self.folder, self.model = tmp_path, tmp_path / "model"
        sample.make(self.model, "qwen2", 2)
        self._stack(tmp_path / "stacks" / "cpu", cpu_stack)
        self.port = free_port()
        self.common = {"replica": 21, "deployment": "chat", "device": "cpu", "port": self.port}
        self.serve = {
            "revision": 1, "model": str(self.model), "fingerprint": models.read(self.model).fingerprint,
            "sealed": sealed(), "stacks": str(tmp_path / "stacks"), "settings": json.dumps(SETTINGS),
            "addresses": ["127.0.0.1", "127.0.0.2"], "ports": [f"dp:{free_port()}"],
        }  # fmt: skip
        self.nodes = [Node(self, rank) for rank in (0, 1)]

    def _stack(self, made, cpu_stack):
        """That stack, in which `vllm serve` finds a distribution of its own name: the CPU build has another."""
        told = made / "meta" / "vllm-0.32.0.dist-info"
        told.mkdir(parents=True)
        (told / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n")
        (made / "activate").write_text(f'. "{cpu_stack}/activate"\nexport PYTHONPATH="{made}/meta"\n')
        (made.parent / "current").symlink_to("cpu")

    def start(self):
        """Both at once, as the console queues them; how each ended, by rank."""
        ended = {}

        def one(node):
            more = {"rank": node.rank, "address": f"127.0.0.{node.rank + 1}"}
            ended[node.rank] = node.run("serve", **self.serve, **more)

        threads = [threading.Thread(target=one, args=(node,)) for node in reversed(self.nodes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [ended[rank]["state"] for rank in (0, 1)]

    def ask(self, path, body=None):
        headers = {"Authorization": f"Bearer {API_KEY}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as answer:
            return answer.read().decode()

    def complete(self):
        asked = {"model": "m", "prompt": "a b", "max_tokens": 16, "ignore_eos": True}
        try:
            return json.loads(self.ask("/v1/completions", asked))["usage"]["completion_tokens"] == 16
        except OSError:
            return False

    def shares(self):
        """Tokens that the engine of each node has made."""
        lines = [line for line in self.ask("/metrics").splitlines() if line.startswith("vllm:generation_tokens_total{")]
        return {line.partition('engine="')[2][0]: float(line.split()[-1]) for line in lines}


@pytest.fixture
def pair(tmp_path, cpu_stack):
    made = Pair(tmp_path, cpu_stack)
    yield made
    for node in made.nodes:
        node.close()


def test_a_replica_over_two_servers_serves_comes_back_whole_and_stops_whole(pair):
    head, other = pair.nodes
    assert pair.start() == ["succeeded", "succeeded"]
    threads = [threading.Thread(target=pair.complete) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shares = pair.shares()
    assert set(shares) == {"0", "1"} and min(shares.values()) > 0, shares

    # The first node's engine dies: the other's does not stay behind alone.
    os.kill(head.now["pid"], signal.SIGKILL)
    until(lambda: head.now["restarts"] == 1 and other.now["restarts"] >= 1, 120, 0.5)
    until(pair.complete, READY_S, 1)

    ended = [node.run("stop", address=f"127.0.0.{node.rank + 1}")["state"] for node in pair.nodes]
    assert ended == ["succeeded", "succeeded"]
    until(lambda: not head.place.is_kept and not other.place.is_kept, 60)
