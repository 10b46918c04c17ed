"""All that is known of a job or a replica as one ZIP: its logs as text, and JSON beside them. Made while it is sent.

    README.md       what the other files are, in both languages
    job.json        the job, or replica.json with its revision's settings; secrets masked
    verdict.json    how each attempt or start ended, with steps and report
    diagnosis.json  what is known of why it failed; where there is something
    versions.json   of the console, the agents and the stacks
    servers.json    facts of the servers involved
    logs/…          one file for each attempt or start

Names of files are made of numbers of ours alone. A few chunks of a log are held at most. Logs of agents are not packed
here: they belong to no job, one start of an agent is one text, and support bundles take what is around them.
"""

import io
import json
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from django.conf import settings
from django.utils import timezone

from deployments.models import Attempt, EngineLog, Job, Replica, Server
from deployments.services import engine_logs, log_keeping, logs
from deployments.services.masking import masked

PART = 64 * 1024  # bytes that are sent at once, about
LARGE = 1024 * 1024 * 1024  # bytes from which an entry needs the 64-bit form
MOST_FILES = 2000
Entry = tuple[str, Iterable[bytes], int]  # name, contents, about how many bytes
Diagnoses = Callable[[Sequence[Attempt | EngineLog]], dict[str, Any]]
DIAGNOSES: list[Diagnoses] = []

README = """\
# {title}

Made by Ascend Console {version} at {at}. All times are UTC.

- `{what}.json`: what was asked for. Passwords, tokens and keys are masked.
- `verdict.json`: how each run ended, with its steps and its report.
- `diagnosis.json`: what is known of why it failed; missing where nothing is.
- `versions.json`: of the console, the agent and the stack.
- `servers.json`: what the servers involved are like, as last found by their agents.
- `logs/`: one file for each run: time, tab, text. Lines that begin with `[console]` were written by the console.

---

由 Ascend Console {version} 于 {at} 生成。所有时间均为 UTC。

- `{what}.json`：请求的内容。密码、令牌与密钥已遮盖。
- `verdict.json`：每次运行的结果、步骤与报告。
- `diagnosis.json`：已知的失败原因；没有时不含此文件。
- `versions.json`：控制台、代理与软件栈的版本。
- `servers.json`：相关服务器的情况，以代理最近一次读到的为准。
- `logs/`：每次运行一个文件：时间、制表符、内容。以 `[console]` 开头的行由控制台写入。
"""


def diagnoses(find: Diagnoses) -> Diagnoses:
    """Who knows why something failed: logs → {id of a log: JSON}."""
    DIAGNOSES.append(find)
    return find


def of_job(job: Job) -> Iterator[bytes]:
    """The archive of a job with all its attempts, in parts. Raises ConsoleError (410) where no log of them is left."""
    attempts = list(job.attempts.prefetch_related("steps")[:MOST_FILES])
    log_keeping.check_any_kept(attempts)
    about = {
        "id": job.pk, "kind": job.kind, "server": job.server.name, "simulated": job.server.simulated,
        "state": job.state, "reason": job.reason, "mark": job.mark, "params": job.params, "locks": job.locks,
        "requester": job.requester.username if job.requester else None, "ticket": job.ticket, "batch": job.batch_id,
        "wave": job.wave, "created_at": job.created_at, "started_at": job.started_at, "ended_at": job.ended_at,
    }  # fmt: skip
    verdict = {"state": job.state, "reason": job.reason, "attempts": [_attempt(one) for one in attempts]}
    files = [_log(f"logs/attempt-{one.n}.log", one) for one in attempts]
    return _archive(
        f"Job #{job.pk} · {job.kind} · {job.server.name}", "job", about, verdict, attempts, [job.server], files
    )


def of_replica(replica: Replica) -> Iterator[bytes]:
    """The archive of a replica with all pieces that are kept, on all its servers, in parts. Raises as `of_job` does."""
    pieces = engine_logs.pieces(replica)[:MOST_FILES]
    log_keeping.check_any_kept(pieces)
    servers = list(
        Server.objects.filter(pk__in={*replica.server_ids, *(one.server_id for one in pieces)}).order_by("pk")
    )
    revision = replica.revision
    about = {
        "deployment": replica.deployment.name, "replica": replica.n, "state": replica.state, "reason": replica.reason,
        "revision": revision.n, "settings": revision.settings, "fingerprint": revision.fingerprint,
        "server": replica.server.name, "nodes": replica.nodes, "npus": replica.npus, "path": replica.path,
        "address": replica.address, "port": replica.port, "route": replica.route, "restarts": replica.restarts,
        "engine": replica.engine, "why": replica.why, "created_at": replica.created_at, "ready_at": replica.ready_at,
        "ended_at": replica.ended_at,
    }  # fmt: skip
    verdict = {
        "state": replica.state, "reason": replica.reason, "findings": replica.findings,
        "starts": [{**_stream(one), "server": one.server_id, "reason": one.reason} for one in pieces],
    }  # fmt: skip
    many = len({one.server_id for one in pieces}) > 1
    files = [_log(f"logs/{f'server-{one.server_id}-' if many else ''}start-{one.n}.log", one) for one in pieces]
    title = f"{replica.deployment.name} · replica {replica.n} · {replica.server.name}"
    return _archive(title, "replica", about, verdict, pieces, servers, files)


def _attempt(attempt: Attempt) -> dict[str, Any]:
    steps = [
        {"n": one.n, "title": [one.title_zh, one.title_en], "argv": one.argv, "state": one.state,
         "exit_code": one.exit_code, "first_line": one.first_line, "started_at": one.started_at,
         "ended_at": one.ended_at}
        for one in attempt.steps.all()
    ]  # fmt: skip
    return {**_stream(attempt), "state": attempt.state, "rung": attempt.rung, "steps": steps, "report": attempt.report}


def _stream(head: Attempt | EngineLog) -> dict[str, Any]:
    return {
        "log": head.pk, "n": head.n, "lines": head.next_line - 1, "complete": head.done, "exit_code": head.exit_code,
        "started_at": head.started_at, "ended_at": head.ended_at,
    }  # fmt: skip


def _archive(
    title: str, what: str, about: dict[str, Any], verdict: dict[str, Any], heads: Sequence[Attempt | EngineLog],
    servers: list[Server], files: list[Entry],
) -> Iterator[bytes]:  # fmt: skip
    at = timezone.now().strftime("%Y-%m-%d %H:%M:%S")
    words = README.format(title=" ".join(title.split()), version=settings.VERSION, at=at, what=what)
    known = {log: found for find in DIAGNOSES for log, found in find(heads).items()}
    entries: list[Entry] = [("README.md", [words.encode("utf-8", "replace")], 0), _json(f"{what}.json", about)]
    entries.append(_json("verdict.json", verdict))
    if known:
        entries.append(_json("diagnosis.json", known))
    entries += [_json("versions.json", _versions(servers)), _json("servers.json", [_server(one) for one in servers])]
    return packed([*entries, *files])


def _versions(servers: list[Server]) -> dict[str, Any]:
    found = {}
    for one in servers:
        facts = one.facts if isinstance(one.facts, dict) else {}
        host = {
            name: facts.get(name) for name in ("driver", "firmware", "cann", "ops", "nnal", "pythons", "containers")
        }
        agent = {"version": one.agent_version, "code": one.agent_code, "protocol": one.agent_protocol}
        found[one.name] = {"agent": agent, "wished_stack": one.wished_stack or None, **host}
    return {"console": settings.VERSION, "servers": found}


def _server(server: Server) -> dict[str, Any]:
    npus = server.npus.values("device_index", "npu_id", "chip_id", "bus_id", "name", "memory_total_mb")
    return {
        "id": server.pk, "name": server.name, "simulated": server.simulated, "family": server.family,
        "clock_offset_s": server.clock_offset_s, "last_seen_at": server.last_seen_at, "facts_at": server.facts_at,
        "facts": server.facts, "npus": list(npus),
    }  # fmt: skip


def _json(name: str, value: Any) -> Entry:
    """Servers, too, have written into it: what no encoding can write is replaced."""
    text = json.dumps(masked(value), ensure_ascii=False, indent=1, default=str)
    return name, [text.encode("utf-8", "replace")], 0


def _log(name: str, head: Attempt | EngineLog) -> Entry:
    """As it is now, for one that is being written would have no end; of one that was deleted the sentence."""
    if gone := log_keeping.said(head):
        return name, [f"{gone}\n".encode()], 0
    return name, logs.whole(head, head.next_line - 1), head.next_byte


class _Sink(io.RawIOBase):
    """Where the archive is written: what came together since it was last taken."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.parts.append(bytes(data))
        self.size += len(data)
        return len(data)

    def take(self) -> bytes:
        parts, self.parts, self.size = self.parts, [], 0
        return b"".join(parts)


def packed(entries: Iterable[Entry]) -> Iterator[bytes]:
    """A ZIP of these files, in parts of about PART bytes."""
    sink = _Sink()
    at = timezone.now().timetuple()[:6]
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED, compresslevel=3) as archive:
        for name, contents, size in entries:
            info = zipfile.ZipInfo(name, at)
            info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            with archive.open(info, "w", force_zip64=size > LARGE) as out:
                for data in contents:
                    out.write(data)
                    if sink.size > PART:
                        yield sink.take()
    yield sink.take()
