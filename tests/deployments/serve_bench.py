"""The steps of `serve` and `stop` run one after the other in the test's own process, with a real keeper and an engine
that pretends; NPUs are a table that npu-smi prints."""

import contextlib
import json
import os
import re
import signal
import socket
import sys
from pathlib import Path

from deployments.agent import devices, processes, sampler
from deployments.agent.config import load
from deployments.agent.serving import await_ready, engine, idle, look, put, settle, start, stop, try_one
from deployments.agent.tools import Output
from deployments.artifacts import read as models
from deployments.kinds import serve
from deployments.kinds import stop as stop_kind
from deployments.serving import asked
from tests.conftest import ROOT
from tests.deployments.models_on_disk import model

PRETENDED = ROOT / "tests" / "deployments" / "pretended_vllm.py"
TABLE = ROOT / "tests" / "fixtures" / "npu_smi" / "info_a2_910b4_25.2.3.txt"
KEY = "5a" * 32
API_KEY = "sk-very-secret-0123456789"
PROGRAMS = {"look": look, "put": put, "start": start, "await_ready": await_ready, "try_one": try_one,
            "settle": settle, "idle": idle}  # fmt: skip


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def sealed(key=KEY, api_key=API_KEY):
    import base64

    from deployments.agent import signing

    return base64.b64encode(signing.seal(key, json.dumps({"api_key": api_key}).encode())).decode()


class Serving:
    """`tmp_path/model` is the model, `stacks/current` a stack whose python is the engine that pretends."""

    def __init__(self, tmp_path, monkeypatch):
        self.folder, self.monkeypatch = tmp_path, monkeypatch
        self.model, self.stacks, self.bin = tmp_path / "model", tmp_path / "stacks", tmp_path / "bin"
        model(self.model)
        self.fingerprint = models.read(self.model).fingerprint
        self._stack()
        self.bin.mkdir()
        self.table = tmp_path / "npu-smi.txt"
        (self.bin / "npu-smi").write_text(f'#!/bin/sh\ncat "{self.table}"\n')
        (self.bin / "npu-smi").chmod(0o755)
        state = tmp_path / "state"
        state.mkdir()
        self.config_path = tmp_path / "config.json"
        self.config_path.write_text(json.dumps({
            "server_id": 7, "name": "kp-07", "redis_url": "redis://127.0.0.1:1", "prefix": "h:7", "key": KEY,
            "state_dir": str(state), "env": {},
        }))  # fmt: skip
        self.config = load(self.config_path)
        self.port = free_port()
        self.attempts = 0
        self.values = {
            "replica": 12, "deployment": "chat", "revision": 3, "model": str(self.model),
            "fingerprint": self.fingerprint, "device": "cpu", "port": self.port, "sealed": sealed(),
            "stacks": str(self.stacks), "settings": json.dumps({"device": "cpu", "served_model_name": "chat"}),
        }  # fmt: skip
        monkeypatch.setenv("ASCEND_CONFIG", str(self.config_path))
        monkeypatch.setenv("PATH", f"{self.bin}:{os.environ['PATH']}")
        monkeypatch.setattr("deployments.agent.engines.watch.KEEPER", "tests.deployments.quick_keeper")
        monkeypatch.setattr(await_ready, "EVERY_S", 0.02)
        monkeypatch.setattr(stop, "EVERY_S", 0.02)
        for name in ("ASCEND_ATTEMPT", "ASCEND_RT_VISIBLE_DEVICES"):
            monkeypatch.delenv(name, raising=False)
        self.attempt()

    def _stack(self):
        own = self.stacks / "cpu-9" / "bin"
        own.mkdir(parents=True)
        # `vllm serve MODEL …` of a node that answers nobody, or the module of the API server.
        (own / "python").write_text(
            f'#!/bin/sh\nif [ "$3" = serve ]; then model=$4; shift 4; set -- --model "$model" "$@"; else shift 2; fi\n'
            f'exec "{sys.executable}" "{PRETENDED}" "$@"\n'
        )
        (own / "python").chmod(0o755)
        (own.parent / "activate").write_text(f'export PATH="{own}:$PATH"\n')
        (self.stacks / "current").symlink_to("cpu-9")

    def attempt(self):
        """A new attempt's folder, which the steps run in."""
        self.attempts += 1
        self.place = self.folder / f"attempt-{self.attempts}"
        self.place.mkdir()
        self.monkeypatch.chdir(self.place)
        self.monkeypatch.setenv("ASCEND_ITEMS", str(self.place / "items"))
        self.monkeypatch.setenv("ASCEND_REASON", str(self.place / "reason"))

    def pretend(self, **how):
        (self.model / "pretend.json").write_text(json.dumps(how))

    def npus(self, old="", new="", *, pattern=""):
        """What npu-smi prints: the table, with a text replaced."""
        text = TABLE.read_text()
        text = re.sub(pattern, new, text) if pattern else text.replace(old, new) if old else text
        self.table.write_text(text)
        devices.remember(self.config.state_dir, sampler.read(Output(0, text)))

    def params(self, **more):
        return serve.Params(**{**self.values, **more})

    @property
    def own(self):
        return engine.of(self.config, "e12")

    def step(self, name, **more):
        """The exit code of one program."""
        self.monkeypatch.setenv("ASCEND_ITEMS", str(self.place / "items"))  # `start` takes them away
        self.monkeypatch.setenv("ASCEND_REASON", str(self.place / "reason"))
        ask = serve.ask_of(self.params(**more))
        for variable, value in asked.environment(ask).items():
            self.monkeypatch.setenv(variable, value)
        from deployments.agent.serving import program

        return program.run(PROGRAMS[name].work, asked.words(ask))

    def serve(self, **more):
        """The steps of the kind, judged as a runner does; the names of those that ran with their exit codes."""
        codes = {}
        for name in ("look", "put", "start", "await_ready", "try_one"):
            codes[name] = self.step(name, **more)
            if codes[name] not in (0, 3):
                break
        codes["settle"] = self.step("settle", **more)
        return codes

    def stop(self, **more):
        params = stop_kind.Params(replica=12, device=more.pop("device", "cpu"), port=self.port, **more)
        (first, *_rest) = stop_kind.steps(params)
        self.monkeypatch.setenv("ASCEND_ITEMS", str(self.place / "items"))
        return stop.main(first.argv[3:])

    @property
    def reason(self):
        return json.loads((self.place / "reason").read_text())

    @property
    def items(self):
        lines = (self.place / "items").read_text().splitlines() if (self.place / "items").exists() else []
        return {one.get("key", one.get("told")): one for one in map(json.loads, lines)}

    def close(self):
        """Nothing of the test stays."""
        with contextlib.suppress(OSError):
            self.own.wish("stop")
        self.own.kill()
        if (keeper := self.own.place.keeper) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(keeper, signal.SIGKILL)
        for pid in _pids(self.model):
            if processes.stat(pid) and str(PRETENDED).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                processes.signal_session(processes.stat(pid).sid, signal.SIGKILL)


def _pids(folder):
    try:
        return json.loads((folder / "pids.json").read_text())
    except (OSError, ValueError):
        return []
