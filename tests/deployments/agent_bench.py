"""What tests of the agent share: a server's config, signed payloads, its real processes, and a small ingest."""

import json
import os
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path

from console import streams
from deployments.agent import config as configs
from deployments.agent import signing, spool

PROGRAM = Path(__file__).with_name("agent_program.py")
KEY = "5a" * 32


class AgentServer:
    """One server with its state folder; processes are ended by `close`, runners included."""

    def __init__(self, folder, redis_url, server_id=7, **more):
        self.state = folder / f"state-{server_id}"
        self.state.mkdir(parents=True)
        self.id = server_id
        path = folder / f"config-{server_id}.json"
        data = {
            "server_id": server_id,
            "name": f"kp-{server_id:02}",
            "redis_url": redis_url,
            "prefix": f"h:{server_id}",
            "key": KEY,
            "state_dir": str(self.state),
        } | more
        path.write_text(json.dumps(data))
        self.config = configs.load(path)
        self.config.attempts.mkdir()
        self.processes = []
        self.jobs = 0

    # payloads

    def payload(self, *programs, attempt=None, kind="try_program", **fields):
        params = {"programs": list(programs)} | {
            name: fields.pop(name) for name in ("timeout_s", "may_fail", "npus") if name in fields
        }
        params = fields.pop("params", params)
        self.jobs += 1
        body = {
            "op": "run",
            "attempt": attempt or f"a{self.jobs}-1-{self.jobs:08x}",
            "job": self.jobs,
            "kind": kind,
            "params": params,
            "server": self.id,
            "not_after": int(time.time()) + 600,
        } | fields
        return json.dumps(body, sort_keys=True)

    def signed(self, body):
        return body, signing.sign(KEY, body)

    def enqueue(self, client, body, mac=None, rq_id=None, func="deployments.agent.worker.dispatch", **options):
        """As the console does: RQ's classes with this server's prefix."""
        from rq.job import Job
        from rq.queue import Queue
        from rq.serializers import JSONSerializer

        prefix = streams.rq_prefix(self.id)
        job = type("J", (Job,), {"redis_job_namespace_prefix": f"{prefix}:job:"})
        names = {
            "redis_queue_namespace_prefix": f"{prefix}:queue:",
            "redis_queues_keys": f"{prefix}:queues",
            "job_class": job,
        }
        queue = type("Q", (Queue,), names)("jobs", connection=client, serializer=JSONSerializer, job_class=job)
        args = (body, signing.sign(KEY, body) if mac is None else mac)
        return queue.enqueue_call(func, args=args, job_id=rq_id, result_ttl=600, **options)

    # processes

    def start(self, part, *arguments):
        """One of the agent's own parts."""
        argv = [sys.executable, "-m", f"deployments.agent.{part}"]
        if part in ("worker", "runner"):
            argv = [sys.executable, str(PROGRAM), part]
        return self.start_raw([*argv, *arguments, "--config", str(self.config.path)], part)

    def start_raw(self, argv, log="raw"):
        """A process with our packages on its path, in a session of its own; its words are in <state>/<log>.log."""
        with (self.state / f"{log}.log").open("ab") as file:
            process = subprocess.Popen(
                argv,
                stdout=file,
                stderr=file,
                env={**os.environ, "PYTHONPATH": str(PROGRAM.parent.parent.parent)},
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def claim(self, *programs, **fields):
        """Claim an attempt as the worker does; returns its folder."""
        body = self.payload(*programs, **fields)
        attempt = json.loads(body)["attempt"]
        assert spool.claim(self.config.attempts, attempt, body) == "claimed"
        return self.config.attempts / attempt

    def run(self, *programs, wait=True, timeout=20.0, **fields):
        """Claim and run one attempt with a real runner; returns its folder."""
        folder = self.claim(*programs, **fields)
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), "runner", str(folder), "--config", str(self.config.path)],
            start_new_session=True,
        )
        self.processes.append(process)
        if wait:
            process.wait(timeout)
        return folder

    def close(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        for folder in spool.folders(self.config.attempts):
            found = spool.runner_identity(folder)
            if found:
                from deployments.agent import adopt

                try:
                    os.kill(found.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                adopt.end_session(found)


def records(folder):
    """[(kind, text)] of an attempt's spool."""
    lines = (folder / "lines").read_bytes().split(b"\n")
    assert lines[-1] == b"", "the file ends with a whole record"
    split = [line.split(b"\t", 2) for line in lines[:-1]]
    return [(kind.decode(), text.decode()) for _at, kind, text in split]


def texts(folder, kinds="o"):
    return [text for kind, text in records(folder) if kind in kinds]


def events(folder, name=None):
    found = [json.loads(text) for kind, text in records(folder) if kind == "v"]
    return [event for event in found if name in (None, event["e"])]


def ended(folder):
    last = records(folder)[-1] if (folder / "lines").exists() and spool.has_ended(folder) else None
    return json.loads(last[1]) if last else None


class SmallIngest:
    """Reads one server's log stream as the console does: accepts only what is next, trims, acknowledges."""

    def __init__(self, client, server_id=7):
        self.redis = client
        self.stream, self.acked = streams.logs(server_id), streams.acked(server_id)
        self.cursor = b"0"
        self.next = {}
        self.lines = {}
        self.done = set()
        self.duplicates = 0

    def poll(self):
        """One batch; returns how many lines were new."""
        new = 0
        for _name, entries in self.redis.xread({self.stream: self.cursor}, count=64) or []:
            for entry, fields in entries:
                new += self._take(fields)
                self.cursor = entry
                millis, count = entry.split(b"-")
                self.redis.xtrim(self.stream, minid=f"{millis.decode()}-{int(count) + 1}", approximate=False)
        return new

    def _take(self, fields):
        attempt = fields[b"a"].decode()
        line, byte = self.next.get(attempt, (1, 0))
        first, n, b0, b1 = (int(fields[name]) for name in (b"f", b"n", b"b0", b"b1"))
        taken = 0
        if first == line and b0 == byte:
            raw = zlib.decompress(fields[b"z"])
            lines = raw.split(b"\n")[:-1]
            assert len(lines) == n and len(raw) == b1 - b0
            self.lines.setdefault(attempt, []).extend(lines)
            self.next[attempt] = (first + n, b1)
            if b'"e":"ended"' in lines[-1]:
                self.done.add(attempt)
            taken = n
        else:
            self.duplicates += 1
        line, byte = self.next.get(attempt, (1, 0))
        self.redis.hset(self.acked, attempt, json.dumps([line, byte, attempt in self.done]))
        return taken

    def texts(self, attempt, kind=b"o"):
        split = [line.split(b"\t", 2) for line in self.lines.get(attempt, [])]
        return [text.decode() for _at, found, text in split if found == kind]
