"""An engine that pretends (`pretended_vllm.py`), with a real keeper, in a folder of a test."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

from deployments.agent import processes, spool
from deployments.agent.config import load
from deployments.agent.engines import folder
from tests.conftest import ROOT
from tests.waiting import until

PRETENDED = ROOT / "tests" / "deployments" / "pretended_vllm.py"
KEEPER = "deployments.agent.engines.keeper"
KEY = "engine-key-0123456789"


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def gone(pid):
    found = processes.stat(pid)
    return found is None or found.state in "ZX"


class Bench:
    """`how` is the engine's pretend.json, `spec` more of its spec.json."""

    def __init__(self, tmp_path, name="e7", **more):
        self.state = tmp_path / "state"
        self.model = tmp_path / "model"
        self.model.mkdir(exist_ok=True)
        self.state.mkdir(exist_ok=True)
        config = {"server_id": 7, "name": "kp-07", "redis_url": "redis://127.0.0.1:1", "prefix": "h:7",
                  "key": "ab" * 32, "state_dir": str(self.state), **more}  # fmt: skip
        self.config_path = tmp_path / "config.json"
        self.config_path.write_text(json.dumps(config))
        self.config = load(self.config_path)
        self.place = folder.of(self.config, name)
        self.place.path.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.keepers = []

    def ask_for(self, how=None, **spec):
        (self.model / "pretend.json").write_text(json.dumps(how or {}))
        words = [sys.executable, str(PRETENDED), "--model", str(self.model), "--served-model-name", "m",
                 "--host", "127.0.0.1", "--port", str(self.port)]  # fmt: skip
        made = {"replica": int(self.place.name[1:]), "deployment": "d", "revision": 1, "argv": words, "env": {},
                "api_key": KEY, "address": "127.0.0.1", "port": self.port, "npus": [], "device": "cpu",
                "route": "process", "ready_s": 20, "served_model_name": "m", "stop_s": 1.0}  # fmt: skip
        (self.place.path / "spec.json").write_text(json.dumps(made | spec))
        self.place.ask("run")
        return self

    def keep(self, *options, module="tests.deployments.quick_keeper", **env):
        argv = [sys.executable, "-m", module, str(self.place.path), "--config", str(self.config_path), *options]
        with (self.place.path / "keeper.log").open("ab") as log:
            process = subprocess.Popen(
                argv, env={**os.environ, "PYTHONPATH": str(ROOT), **env}, cwd=self.state, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self.keepers.append(process)
        return process

    @property
    def now(self):
        return folder.read_json(self.place.path / "now.json") or {}

    def until(self, state, timeout=20):
        def reached():
            told = self.now
            return told if told.get("state") == state else None

        try:
            return until(reached, timeout)
        except AssertionError as error:
            last = (self.place.path / "keeper.log").read_text()[-3000:]
            raise AssertionError(f"not {state}: {self.now}\n{last}") from error

    @property
    def pids(self):
        return json.loads((self.model / "pids.json").read_text())

    @property
    def starts(self):
        path = self.model / "starts"
        return len(path.read_text().split()) if path.exists() else 0

    def touch(self, name, data=b""):
        aside = self.model / f"{name}.part"
        aside.write_bytes(data)
        aside.replace(self.model / name)

    def say(self, data):
        """Have the engine print these bytes."""
        self.touch("say", data)
        until(lambda: not (self.model / "say").exists())

    def complete(self, **more):
        body = json.dumps({"model": "m", "prompt": "a b", **more}).encode()
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/completions", body, headers)
        return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=20)

    def records(self):
        """(kind, text) of every record of all pieces, in order."""
        found = []
        for n in range(1, self.place.newest_piece() + 1):
            path = self.place.piece_folder(n) / "lines"
            data = path.read_bytes() if path.exists() else b""
            found += [tuple(line.decode().split("\t", 2)[1:]) for line in data.split(b"\n")[:-1]]
        return found

    def said(self):
        return [text for kind, text in self.records() if kind == "o"]

    def events(self, name=None):
        found = [json.loads(text) for kind, text in self.records() if kind == "v"]
        return [one for one in found if name in (None, one["e"])]

    def stop(self):
        self.place.ask("stop")
        if not self.place.is_kept:
            self.keep()
        return until(lambda: not self.place.is_kept)

    def close(self):
        """Nothing of the test stays, whatever it did."""
        for keeper in self.keepers:
            with contextlib.suppress(ProcessLookupError):
                keeper.kill()
            keeper.wait()
        starts = self.model / "starts"
        leaders = {int(pid) for pid in starts.read_text().split()} if starts.exists() else set()
        leaders |= set(self.pids) if (self.model / "pids.json").exists() else set()
        for pid in leaders:
            if str(self.model).encode() in _cmdline(pid) or b"import time" in _cmdline(pid):
                processes.signal_session(processes.stat(pid).sid, signal.SIGKILL)
        log = self.place.path / "keeper.log"
        assert not log.exists() or "Traceback" not in log.read_text(), log.read_text()


def _cmdline(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def has_ended(place):
    return spool.has_ended(place.piece_folder(place.newest_piece()))
