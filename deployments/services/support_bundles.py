"""Support bundles: one is made with a click, each server involved collects by a job, what arrives is kept for a while.

A part is one source of one server (`support_parts` takes it in); the part without a server is what the console has
itself (`support_own`). A part that still waits when its job has ended is missing: its job says why. The archive is put
together when it is downloaded (`support_archive`), so that nothing is kept twice.
"""

import contextlib
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import django_rq
import redis
from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet, Sum
from django.utils import timezone
from django.utils.translation import gettext as _

from console import audit, live
from console.errors import ConsoleError, Invalid, NotFound
from console.language import pick
from console.models import User
from deployments.kinds.support_bundle import SOURCES
from deployments.models import Deployment, Job, JobState, PartState, Server, SupportBundle, SupportPart
from deployments.models.job import ENDED
from deployments.services import jobs
from deployments.steps import Text

KIND = "support_bundle"
CONSOLE = "console"  # the source of what the console has itself
OWN_TITLE = Text("控制台保存的日志与资料", "Logs and facts that the console has")
MOST_SERVERS = 32
MOST_CASE, MOST_NOTE, MOST_NAMES = 60, 4000, 300
AROUND = timedelta(hours=24)  # before it happened
SOURCE_MB, SOURCE_S = 256, 300
TWICE_S = 20
SILENT = Text("服务器没有回应，只有控制台已有的内容", "the server is silent: there is only what the console has")
ENDED_WITHOUT = Text("作业已结束，但没有送来", "its job has ended without sending it")


@dataclass(frozen=True)
class Subject:
    """What a bundle is about. `engines`: {server pk: names of engine folders}; `logs`: ids of attempts and of pieces of
    engines' logs that the console has."""

    title: Text
    link: str
    servers: list[Server]
    seen_at: datetime
    job: Job | None = None
    deployment: Deployment | None = None
    engines: dict[int, list[str]] = field(default_factory=dict)
    logs: tuple[str, ...] = ()

    def about(self) -> dict[str, Any]:
        return {"title": list(self.title), "link": self.link, "logs": list(self.logs)}


@dataclass(frozen=True)
class Row:
    """A part as it stands. `why` is None where it waits or has arrived."""

    part: SupportPart
    state: str
    why: Text | None

    @property
    def title(self) -> Text:
        return SOURCES.get(self.part.source, OWN_TITLE)

    @property
    def size(self) -> int:
        """Bytes of its files as they are unpacked."""
        return sum(int(one["size"]) for one in self.part.entries)


def root() -> Path:
    return Path(settings.VAR_DIR) / "support"


def inbox() -> Path:
    """Where the agent of this machine and the simulated ones put what they have collected."""
    return root() / "inbox"


def path_of(part: SupportPart) -> Path:
    return root() / str(part.bundle_id) / f"{part.pk}.zip"


# ---------- make ----------


def make(subject: Subject, *, by: User, case_number: str = "", note: str = "", hosts: bool = False) -> SupportBundle:
    """A new bundle whose jobs are queued; the one just made where somebody clicks twice. Raises ConsoleError."""
    jobs.check_may_operate(by)
    case_number, note = _checked(case_number, note)
    _check_servers(subject)
    if (known := _just_made(subject, by, hosts)) is not None:
        return known
    with transaction.atomic():
        bundle = SupportBundle.objects.create(
            about=subject.about(), job=subject.job, deployment=subject.deployment, case_number=case_number, note=note,
            hosts=hosts, since=subject.seen_at - AROUND, seen_at=subject.seen_at, made_by=by,
        )  # fmt: skip
        own = SupportPart.objects.create(bundle=bundle, source=CONSOLE)
        audit.record(by, "support_bundle.made", bundle, link=subject.link, servers=[s.name for s in subject.servers],
                     hosts=hosts, case_number=case_number)  # fmt: skip
        transaction.on_commit(lambda: _fill_soon(own.pk))
    for server in subject.servers:
        _ask(bundle, server, subject, by)
    return bundle


def _ask(bundle: SupportBundle, server: Server, subject: Subject, by: User) -> None:
    """Queue the job of one server; a server that cannot collect now has parts that say so."""
    params = {
        "bundle": bundle.pk, "since": int((bundle.since or bundle.seen_at).timestamp()),
        "until": int(bundle.seen_at.timestamp()), "hosts": bundle.hosts, "names": names_of(subject.servers),
        "salt": bundle.salt, "most_mb": SOURCE_MB, "seconds": SOURCE_S, "engines": subject.engines.get(server.pk, []),
    }  # fmt: skip
    job, why = None, None
    try:
        with transaction.atomic():
            job = jobs.queue_job(server, KIND, params, by=by)
            _add(bundle, server, job, None)
    except ConsoleError as error:
        why = SILENT if error.code == "server_offline" else Text(f"{error.what} {error.do}", f"{error.what} {error.do}")
        _add(bundle, server, None, why)


def _add(bundle: SupportBundle, server: Server, job: Job | None, why: Text | None) -> None:
    state = PartState.MISSING if why else PartState.WAITING
    SupportPart.objects.bulk_create(
        SupportPart(bundle=bundle, server=server, server_name=server.name, job=job, source=source, state=state,
                    why=list(why) if why else None)
        for source in SOURCES
    )  # fmt: skip


def names_of(servers: Iterable[Server]) -> list[str]:
    """How the servers of the bundle are called, then others of the fleet: their names are replaced in every log."""
    found: dict[str, None] = {}
    for server in servers:
        for name in (server.name, server.hostname, server.hostname.partition(".")[0], server.display_name):
            found[name] = None
    others = Server.objects.order_by("pk").values_list("name", "hostname")[:MOST_NAMES]
    found |= dict.fromkeys(name for pair in others for name in pair)
    return [name for name in found if name and name != "localhost"][:MOST_NAMES]


def _checked(case_number: str, note: str) -> tuple[str, str]:
    """Raises Invalid."""
    case_number, note = case_number.strip(), note.strip()
    if len(case_number) > MOST_CASE or not case_number.isprintable():
        raise Invalid(
            _("A case number has at most %(most)s characters, on one line.") % {"most": MOST_CASE},
            _("Put the rest into the note."),
            code="bad_case_number",
        )
    if len(note) > MOST_NOTE or "\0" in note:
        raise Invalid(
            _("A note has at most %(most)s characters.") % {"most": MOST_NOTE}, _("Shorten it."), code="bad_note"
        )
    return case_number, note


def _check_servers(subject: Subject) -> None:
    """Raises Invalid."""
    if len(subject.servers) > MOST_SERVERS:
        raise Invalid(
            _("%(n)s servers are involved, and a bundle holds at most %(most)s.")
            % {"n": len(subject.servers), "most": MOST_SERVERS},
            _("Make it from the page of one replica or of one server."),
            code="too_many_servers",
        )


def _just_made(subject: Subject, by: User, hosts: bool) -> SupportBundle | None:
    young = SupportBundle.objects.filter(made_by=by, hosts=hosts, about__link=subject.link)
    return young.filter(created_at__gt=timezone.now() - timedelta(seconds=TWICE_S)).first()


def _fill_soon(part_pk: int) -> None:
    """Have the console's worker put in what the console has; without Redis the sweep does it."""
    with contextlib.suppress(redis.RedisError):
        django_rq.get_queue("default").enqueue(
            "deployments.services.support_own.fill", part_pk, job_timeout=600, result_ttl=60, failure_ttl=86400
        )


# ---------- look ----------


def listed(find: str = "") -> QuerySet[SupportBundle]:
    """Newest first; `find` is (a part of) a case number, a note or the number of a bundle."""
    rows = SupportBundle.objects.select_related("made_by")
    if find := find.strip()[:100]:
        wanted = rows.filter(case_number__icontains=find) | rows.filter(note__icontains=find)
        number = find.removeprefix("#")
        if number.isdecimal() and len(number) < 18:
            wanted |= rows.filter(pk=int(number))
        rows = wanted
    return rows


def find(pk: int) -> SupportBundle:
    """Raises NotFound."""
    row = SupportBundle.objects.select_related("made_by").filter(pk=pk).first() if pk < 2**63 else None
    if row is None:
        raise NotFound(
            _("There is no support bundle #%(id)s.") % {"id": pk},
            _("It may have been deleted, or its time is over. Make a new one."),
            code="no_such_bundle",
        )
    return row


def rows(bundle: SupportBundle) -> list[Row]:
    """The parts as they stand, those of the console first. One query."""
    return [_row(part) for part in bundle.parts.select_related("job", "server")]


def rows_of_many(bundles: Iterable[SupportBundle]) -> dict[int, list[Row]]:
    """The same of many bundles, without their lists of files. One query."""
    found: dict[int, list[Row]] = {bundle.pk: [] for bundle in bundles}
    parts = (
        SupportPart.objects.filter(bundle__in=found).select_related("job").defer("entries", "missing", "job__params")
    )
    for part in parts:
        found[part.bundle_id].append(_row(part))
    return found


def _row(part: SupportPart) -> Row:
    over = part.job is None or part.job.state in (*ENDED, JobState.LOST)
    if part.state == PartState.WAITING and part.source != CONSOLE and over:
        reason = part.job.reason if part.job else None
        return Row(part, PartState.MISSING, Text(*reason) if reason else ENDED_WITHOUT)
    return Row(part, part.state, Text(*part.why) if part.why else None)


def is_ready(found: Iterable[Row]) -> bool:
    """Whether nothing more is to come."""
    return all(row.state != PartState.WAITING for row in found)


# ---------- change ----------


def describe(bundle: SupportBundle, case_number: str, note: str, *, by: User) -> SupportBundle:
    """Keep a case number and a note with it. Raises ConsoleError."""
    jobs.check_may_operate(by)
    bundle.case_number, bundle.note = _checked(case_number, note)
    bundle.save(update_fields=["case_number", "note"])
    audit.record(by, "support_bundle.described", bundle, case_number=bundle.case_number)
    return bundle


def delete(bundle: SupportBundle, *, by: User) -> None:
    """With its files; jobs that still collect are cancelled. Raises ConsoleError."""
    jobs.check_may_operate(by)
    for row in rows(bundle):
        if row.part.job and row.state == PartState.WAITING:
            with contextlib.suppress(ConsoleError):
                jobs.cancel_job(row.part.job, by=by)
    audit.record(by, "support_bundle.deleted", bundle, case_number=bundle.case_number)
    _remove([bundle.pk])


def _remove(keys: list[int]) -> None:
    SupportBundle.objects.filter(pk__in=keys).delete()
    for key in keys:
        shutil.rmtree(root() / str(key), ignore_errors=True)


def prune() -> int:
    """Bundles older than SUPPORT_BUNDLE_DAYS go, then the oldest until the rest fits into SUPPORT_BUNDLES_GB; and files
    that belong to none."""
    old = SupportBundle.objects.filter(created_at__lt=timezone.now() - timedelta(days=settings.SUPPORT_BUNDLE_DAYS))
    gone = list(old.values_list("pk", flat=True))
    _remove(gone)
    kept, most = 0, settings.SUPPORT_BUNDLES_GB * 10**9
    sized = SupportBundle.objects.annotate(size=Sum("parts__bytes")).order_by("-pk").values_list("pk", "size")
    for pk, size in list(sized):
        kept += size or 0
        if kept > most:
            gone.append(pk)
            _remove([pk])
    _sweep()
    return len(gone)


def _sweep() -> None:
    known = {str(pk) for pk in SupportBundle.objects.values_list("pk", flat=True)}
    for folder in root().glob("*"):
        if folder.name != inbox().name and folder.name not in known:
            shutil.rmtree(folder, ignore_errors=True)
    for left in inbox().glob("*"):
        with contextlib.suppress(OSError):
            if timezone.now().timestamp() - left.stat().st_mtime > 3600:
                left.unlink()


def taken() -> int:
    """Bytes of all that is kept."""
    return SupportPart.objects.aggregate(size=Sum("bytes"))["size"] or 0


def tell(bundle_pk: int) -> None:
    with contextlib.suppress(redis.RedisError):
        live.publish(f"support-bundle:{bundle_pk}", "moved", {"id": bundle_pk})


def as_json(bundle: SupportBundle, found: list[Row]) -> dict[str, Any]:
    return {
        "id": bundle.pk,
        "about": pick(bundle.about.get("title")),
        "link": bundle.about.get("link"),
        "case_number": bundle.case_number,
        "note": bundle.note,
        "hosts": bundle.hosts,
        "made_by": bundle.made_by.username if bundle.made_by else None,
        "created_at": bundle.created_at.isoformat(),
        "seen_at": bundle.seen_at.isoformat(),
        "ready": is_ready(found),
        "parts": [
            {
                "server": row.part.server_name or None, "source": row.part.source, "state": row.state,
                "bytes": row.part.bytes, "job": row.part.job_id, "why": pick(row.why) or None,
                "files": row.part.entries,
                "missing": [{"what": one["what"], "why": pick(one["why"])} for one in row.part.missing],
            }
            for row in found
        ],
    }  # fmt: skip
