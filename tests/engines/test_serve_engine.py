"""A keeper and the real vLLM on CPUs: it becomes ready, survives what is killed, and goes without a trace."""

import json
import os
import signal
import threading
import time

import pytest

from deployments.agent import processes
from deployments.artifacts import sample
from tests.deployments.engine_bench import KEEPER, KEY, Bench, gone
from tests.waiting import until

READY_S = 300
LENGTH = 512


@pytest.fixture
def bench(cpu_stack, tmp_path):
    made = Bench(tmp_path)
    sample.make(made.model, "qwen2", 2)
    argv = ["python", "-m", "vllm.entrypoints.openai.api_server", "--model", str(made.model),
            "--served-model-name", "m",
            "--host", "127.0.0.1", "--port", str(made.port), "--max-model-len", str(LENGTH), "--max-num-seqs", "4",
            "--dtype", "float32", "--enforce-eager"]  # fmt: skip
    env = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    made.ask_for(argv=argv, env=env, activate=str(cpu_stack / "activate"), ready_s=READY_S, stop_s=30)
    yield made
    who = made.place.engine
    made.close()
    if who is not None and who.pid:
        processes.signal_session(who.pid, signal.SIGKILL)


def session_of(bench):
    return processes.session_members(bench.now["pid"])


def core_of(bench):
    """The engine's own processes beside the server: vLLM names them so."""
    named = {pid: open(f"/proc/{pid}/cmdline", "rb").read() for pid in session_of(bench)}  # noqa: PTH123, SIM115
    return next(pid for pid, words in named.items() if b"EngineCore" in words)


class Clients:
    """Streams one answer after the other until it is told to stop; `failed` are those that were not whole."""

    def __init__(self, bench):
        self.bench, self.done, self.failed, self.ended = bench, 0, [], threading.Event()
        self.threads = [threading.Thread(target=self.ask) for _ in range(2)]
        for thread in self.threads:
            thread.start()

    def ask(self):
        while not self.ended.is_set():
            try:
                with self.bench.complete(stream=True, max_tokens=64, ignore_eos=True) as answer:
                    said = answer.read()
                if not said.rstrip().endswith(b"[DONE]"):
                    raise ValueError(said[-200:])
                self.done += 1
            except Exception as error:
                self.failed.append(repr(error))

    def stop(self):
        self.ended.set()
        for thread in self.threads:
            thread.join()
        return self.done, self.failed


def test_the_real_engine_becomes_ready_survives_and_goes(bench):
    began = time.monotonic()
    keeper = bench.keep(module=KEEPER)
    told = bench.until("ready", READY_S)
    print(f"ready after {time.monotonic() - began:.0f} s: {json.dumps(told['facts'])}")
    facts = told["facts"]
    assert facts["version"] and facts["kv_tokens"] > LENGTH and facts["max_concurrency"] >= 1
    assert facts["max_model_len"] == LENGTH and facts["available_kv_gib"] == 1.0
    assert json.load(bench.complete(max_tokens=8, ignore_eos=True))["usage"]["completion_tokens"] == 8
    assert KEY.encode() not in (bench.place.path / "engine.log").read_bytes()
    states = [one["state"] for one in bench.events("engine")]
    assert states[0] == "loading" and states[-1] == "ready"
    assert any((one["progress"] or {}).get("of") for one in bench.events("engine"))

    # The keeper is killed while clients stream: not one request fails, and the log goes on.
    clients = Clients(bench)
    until(lambda: clients.done > 2, 60)
    for _ in range(3):
        keeper.kill()
        keeper.wait()
        before = clients.done
        until(lambda before=before: clients.done >= before + 4, 60)
        keeper = bench.keep(module=KEEPER)
        until(lambda: bench.place.is_kept and (bench.now["metrics"]["generation_tokens_s"] or 0) > 0, 60)
    done, failed = clients.stop()
    print(f"{done} streams, {len(failed)} failed, while the keeper was killed 3 times")
    assert failed == [] and bench.now["pid"] == told["pid"] and bench.now["restarts"] == 0
    until(lambda: sum("POST /v1/completions" in line for line in bench.said()) >= done + 2, 20)

    # Its core is killed, then its server: all of it is ended, and it is started anew.
    for victim in (core_of, lambda bench: bench.now["pid"]):
        before, pid, restarts = session_of(bench), victim(bench), bench.now["restarts"]
        began = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        until(lambda restarts=restarts: bench.now["restarts"] == restarts + 1, 60)
        bench.until("ready", READY_S)
        print(f"ready again after {time.monotonic() - began:.0f} s; {bench.events('ended')[-1]['reason'][1]}")
        assert all(map(gone, before))
        assert json.load(bench.complete(max_tokens=4, ignore_eos=True))["usage"]["completion_tokens"] == 4

    members, began = session_of(bench), time.monotonic()
    assert len(members) >= 2
    bench.place.ask("stop")
    until(lambda: not bench.place.is_kept, 60)
    print(f"stopped after {time.monotonic() - began:.1f} s")
    assert all(map(gone, members)) and bench.now["state"] == "stopped"


def test_the_real_engine_is_stopped_while_it_loads(bench):
    bench.keep(module=KEEPER)
    until(lambda: bench.now.get("facts", {}).get("max_model_len"), READY_S)
    members = session_of(bench)
    bench.place.ask("stop")
    until(lambda: not bench.place.is_kept, 60)
    assert members and all(map(gone, members)) and bench.now["state"] == "stopped"
