"""An agent installed as joining does it, from bundles that tests make, with its keeper and a small console."""

import dataclasses
import http.server
import io
import json
import os
import signal
import subprocess
import tarfile
import threading
import time
from hashlib import sha256
from pathlib import Path

from console import streams
from deployments.agent import chosen, install, join, processes, signing, spool
from deployments.agent import config as configs
from deployments.services import bundle
from tests.deployments.agent_bench import KEY, AgentServer, SmallIngest
from tests.waiting import until

TRY = Path(__file__).with_name("agent_kinds") / "try_program.py"
NAME = "lib/deployments/agent/__init__.py"
FAST = ("lib/deployments/agent/link.py", "BEAT_S = 5.0", "BEAT_S = 1.0")
HASTY = ("lib/deployments/agent/upgrade.py", "UP_S = 60.0", "UP_S = 6.0")  # for what never comes up
PATIENCE_S = 90  # a crowded machine may take its time


def made(version="0.1.0", *changes):
    """The console's bundle with another version, the kind of the tests, and `changes`: (file, old, new) each."""
    with tarfile.open(fileobj=io.BytesIO(bundle.agent().data), mode="r:gz") as source:
        files = {entry.name: source.extractfile(entry).read() for entry in source}
    files["lib/deployments/kinds/try_program.py"] = TRY.read_bytes()
    for name, old, new in [(NAME, 'VERSION = "0.1.0"', f'VERSION = "{version}"'), FAST, *changes]:
        assert old.encode() in files[name], (name, old)
        files[name] = files[name].replace(old.encode(), new.encode(), 1)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as tar:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    data = out.getvalue()
    return bundle.Bundle(data, sha256(data).hexdigest())


class SmallConsole:
    """Answers POST /join/code with `data`, and keeps what it was asked."""

    def __init__(self, data=b"", status=200):
        self.data, self.status, self.asked = data, status, []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                outer.asked.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
                self.send_response(outer.status)
                self.end_headers()
                self.wfile.write(outer.data)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class JoinedAgent:
    """Server 7 below `folder`, with the code of `base`; speaks to `valkey` as its own user."""

    def __init__(self, folder, valkey, base):
        self.client = valkey.client()
        self.client.execute_command("ACL", "SETUSER", "h7", *streams.acl_rules(7, "pw7"))
        self.console = SmallConsole()
        self.prefix = folder / "agent"
        self.place = install.Install(self.prefix, self.console.url, "", 7, joined="1" * 16)
        for name in ("", "code"):
            (self.prefix / name).mkdir()
        self.base = base
        code = self.lay(base)
        join.own_files(self.place)
        self.place.save()
        join.make_environment(self.place, code)
        data = {
            "server_id": 7, "name": "kp-07", "redis_url": f"redis://h7:pw7@127.0.0.1:{valkey.port}/0", "prefix": "h:7",
            "key": KEY, "state_dir": str(self.place.state),
        }  # fmt: skip
        join.write_config(self.place, data)
        self.config = configs.load(self.place.config)
        self.bench = AgentServer(folder, self.config.redis_url)  # signs and enqueues; runs nothing
        self.ingest = SmallIngest(self.client)
        self.jobs = 0
        self.beats = []
        self.listener = self.client.pubsub(ignore_subscribe_messages=True)
        self.listener.subscribe("h:7:beat")

    def lay(self, made):
        """Unpack a bundle where joining does."""
        folder = self.prefix / "code" / made.code
        with tarfile.open(fileobj=io.BytesIO(made.data), mode="r:gz") as tar:
            tar.extractall(folder, filter="data")
        return folder

    def start(self):
        install.start(self.place)
        self.await_code(self.base.code)

    def start_again(self):
        """As after a reboot."""
        install.start(self.place)

    def join_again(self):
        """As the pasted command does, with the console's bundle of then."""
        self.place = dataclasses.replace(self.place, joined="2" * 16)
        self.place.save()
        install.start(self.place)

    # what the console would do

    def beat(self):
        """The newest beat."""
        while message := self.listener.get_message():
            self.beats.append(json.loads(message["data"]))
        return self.beats[-1] if self.beats else {}

    def code(self):
        return self.beat().get("code")

    def await_code(self, code, timeout=PATIENCE_S):
        self.beats.clear()
        until(lambda: self.code() == code, timeout)

    def queue(self, kind, params):
        """Queue a job; returns its attempt."""
        self.jobs += 1
        attempt = f"a{self.jobs}-1-{self.jobs:08x}"
        body = json.dumps(
            {"op": "run", "attempt": attempt, "job": self.jobs, "kind": kind, "params": params, "server": 7,
             "not_after": int(time.time()) + 600, "protocol": 2}
        )  # fmt: skip
        self.bench.enqueue(self.client, body, rq_id=attempt)
        return attempt

    def cancel(self, attempt):
        body = json.dumps(
            {"op": "cancel", "attempt": attempt, "server": 7, "not_after": int(time.time()) + 600, "nonce": "1"}
        )
        self.bench.enqueue(self.client, body, signing.sign(KEY, body), rq_id=f"c-{attempt}")

    def upgrade(self, made, wait=True, timeout=3 * PATIENCE_S):
        """Queue an upgrade to that bundle; returns its end."""
        self.console.data = made.data
        attempt = self.queue("agent_upgrade", {"digest": made.digest, "version": "x"})
        return self.end(attempt, timeout) if wait else attempt

    def end(self, attempt, timeout=3 * PATIENCE_S):
        """Read what it sends until the job's end; the `ended` event."""
        until(lambda: self.ingest.poll() is not None and attempt in self.ingest.done, timeout)
        return json.loads(self.ingest.texts(attempt, b"v")[-1])

    def words(self, attempt=None):
        return "\n".join(self.ingest.texts(attempt or f"a{self.jobs}-1-{self.jobs:08x}"))

    # what may go wrong there

    def pids(self):
        """{pid: command line} of what runs from this folder."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and int(entry.name) != os.getpid():
                try:
                    line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                except OSError:
                    continue
                if str(self.prefix) in line:
                    found[int(entry.name)] = line
        return found

    def kill_all(self):
        """As a power cut does, as far as a process can tell."""
        for _again in range(3):
            for pid in self.pids():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.05)
        until(lambda: not self.pids())

    def choice(self):
        return chosen.read(self.place.state)

    def status(self):
        command = [str(self.prefix / "bin" / "ascend-console"), "status"]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, env={**os.environ, "LANG": "C"})

    def runs_once(self):
        """One of each part, no more."""
        lines = list(self.pids().values())
        counts = {part: sum(f"deployments.agent.{part}" in line for line in lines) for part in ("worker", "link")}
        return counts == {"worker": 1, "link": 1}

    def close(self):
        install.stop(self.place)
        for folder in spool.folders(self.config.attempts):
            if who := spool.runner_identity(folder):
                processes.signal_session(who.pid, signal.SIGKILL)
        self.kill_all()
        self.console.close()
        self.bench.close()
        self.listener.close()
