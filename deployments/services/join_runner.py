"""What works on a list of hosts: reads their keys, or lets them join, so many at once. Passwords live here only."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import sync_to_async
from django.db import OperationalError, transaction
from django.utils import timezone

from console.errors import ConsoleError
from deployments.models import Enrolment, JoinMany, JoinRow
from deployments.models.join_many import RowState
from deployments.services import join, join_many, join_script, ssh

LONGEST_S = 3600.0  # credentials are given for this long at most
BEAT_S = 1.0
MOST_LOG = 64_000  # characters that are kept of a host's output
READING_AT_ONCE = 30
TRIES = 5


def patiently(work: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """`work` on the database, from the loop; tried again where SQLite's one writer was busy for long."""

    def tried(*given: Any, **named: Any) -> Any:
        for attempt in range(TRIES):
            try:
                return work(*given, **named)
            except OperationalError:
                if attempt == TRIES - 1:
                    raise
                time.sleep(0.5)
        raise AssertionError("not reached")

    return sync_to_async(tried)


class Runner:
    """`read_keys()` or `join(credentials)` for one list. `tell(row)` is called whenever a row has changed.

    `stop(why)` may be called from any thread: what is under way is cut off, and `why` becomes the rows' problem.
    """

    def __init__(
        self, many: JoinMany, token: str, tell: Callable[[JoinRow, str], None] = lambda row, text: None
    ) -> None:
        self.many, self.token, self.tell = many, token, tell
        self.why = ""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._work: asyncio.Task[None] | None = None
        self._logs: dict[int, str] = {}
        self._unsaved: dict[int, JoinRow] = {}

    # ---------- the whole ----------

    async def read_keys(self) -> None:
        rows = await self._rows(RowState.NEW)
        await self._run_all(rows, self._read_key, min(READING_AT_ONCE, len(rows) or 1))

    async def join(self, credentials: ssh.Credentials, language: str = "C") -> None:
        async def one(row: JoinRow) -> None:
            await self._join(row, credentials, language)

        await self._run_all(await self._rows(RowState.READY), one, self.many.at_once)

    def stop(self, why: str) -> None:
        self.why = self.why or why  # first: who begins in this moment looks at it after its loop is known
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile, and all with it
                self._loop.call_soon_threadsafe(self._cut_off)

    def _cut_off(self) -> None:
        if self._work is not None:
            self._work.cancel()

    async def _rows(self, state: str) -> list[JoinRow]:
        return await patiently(lambda: list(self.many.rows.filter(state=state)))()  # type: ignore[no-any-return]

    async def _run_all(self, rows: list[JoinRow], work: Callable[[JoinRow], Awaitable[None]], at_once: int) -> None:
        """Every row, so many at once, until all are done or it is stopped; then the list is told how it ended."""
        self._loop = asyncio.get_running_loop()
        self._work = asyncio.create_task(self._each(rows, work, at_once))
        if self.why:
            self._cut_off()
        beats = asyncio.create_task(self._beat())
        try:
            async with asyncio.timeout(LONGEST_S):
                await self._work
        except TimeoutError:
            self.why = self.why or "overtime"
        except asyncio.CancelledError:
            if not self.why:
                raise
        finally:
            beats.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await beats
            await self._save_logs()
            if self.why != "replaced":
                await patiently(join_many.finish)(self.many, self.why)

    async def _each(self, rows: list[JoinRow], work: Callable[[JoinRow], Awaitable[None]], at_once: int) -> None:
        waiting = iter(rows)  # shared: each lane takes the next host when it is done with one

        async def lane() -> None:
            for row in waiting:
                await self._guarded(row, work)

        async with asyncio.TaskGroup() as group:
            for _lane in range(at_once):
                group.create_task(lane())

    async def _guarded(self, row: JoinRow, work: Callable[[JoinRow], Awaitable[None]]) -> None:
        """One host; whatever happens there is its own problem, not the others'."""
        try:
            await work(row)
        except ssh.Failure as failure:
            await self._fail(row, {"code": failure.code, "detail": failure.detail})
        except ConsoleError as error:
            await self._fail(row, {"code": "console", "detail": f"{error.what} {error.do}"})

    async def _beat(self) -> None:
        while True:
            why = await patiently(join_many.beat)(self.many.pk, self.token)
            if why:
                self.stop(why)
            await self._save_logs()
            await asyncio.sleep(BEAT_S)

    # ---------- one host ----------

    async def _read_key(self, row: JoinRow) -> None:
        known = await patiently(join_many.known_key)(row)
        key = await ssh.read_host_key(row.host, row.port, known)
        await patiently(join_many.keyed)(row, key)
        self.tell(row, "")

    async def _join(self, row: JoinRow, credentials: ssh.Credentials, language: str) -> None:
        self._logs[row.pk] = ""
        began = {"state": RowState.CONNECTING, "began_at": timezone.now(), "log": "", "problem": {}}
        await self._change(row, **began, ended_at=None)
        connection = await ssh.connect(ssh.Target(row.host, row.port, row.user, row.key), credentials)
        async with connection:
            rights = await ssh.rights(connection, row.prefix, credentials)
            enrolment = await patiently(self._enrol)(row)
            errand = ssh.Errand(join_script.commands(enrolment)[0].text, row.prefix, language)
            try:
                await ssh.run(connection, errand, rights, lambda text: self._hear(row, text))
            except ssh.Failure as failure:
                await self._stopped(row, enrolment, failure)
                return
        await self._change(row, state=RowState.JOINED, ended_at=timezone.now())

    def _enrol(self, row: JoinRow) -> Enrolment:
        """A command of its own for this host, made now that it is known to be of use. Raises ConsoleError."""
        with transaction.atomic():
            enrolment = join.make(row.name, row.rack, row.labels, by=self.many.made_by)
            enrolment.script_digest = join_script.digest(join_script.script(enrolment))
            enrolment.save(update_fields=["script_digest"])
            join_many.change(row, state=RowState.INSTALLING, enrolment=enrolment, server=enrolment.server)
        return enrolment

    async def _stopped(self, row: JoinRow, enrolment: Enrolment, failure: ssh.Failure) -> None:
        """The script has ended badly, or was not heard to its end: then its command stays good, for it may go on."""
        trouble = ""
        if failure.code == "script":
            trouble = await patiently(self._withdraw)(row, enrolment)
        words = last_words(self._logs[row.pk])
        problem = {"code": failure.code, "trouble": trouble, "detail": words or failure.detail}
        await self._fail(row, problem)

    def _withdraw(self, row: JoinRow, enrolment: Enrolment) -> str:
        """What the script told the console of its trouble; a server that never joined leaves no trace."""
        enrolment.refresh_from_db()
        told = [one["code"] for one in enrolment.steps.get("problems", []) if one["code"] != "clock"]
        join.withdraw(enrolment, by=self.many.made_by)
        if not Enrolment.objects.filter(pk=enrolment.pk).exists():
            row.enrolment = row.server = None
        return told[-1] if told else ""

    # ---------- telling ----------

    async def _change(self, row: JoinRow, **values: Any) -> None:
        await patiently(join_many.change)(row, **values)
        self.tell(row, "")

    async def _fail(self, row: JoinRow, problem: dict[str, Any]) -> None:
        await patiently(join_many.fail)(row, problem)
        if problem["code"] == "key_changed":
            await patiently(join_many.warn_of_key)(row)
        self.tell(row, "")

    def _hear(self, row: JoinRow, text: str) -> None:
        self._logs[row.pk] = bounded(self._logs[row.pk] + text)
        self._unsaved[row.pk] = row
        self.tell(row, text)

    async def _save_logs(self) -> None:
        unsaved, self._unsaved = self._unsaved, {}
        for row in unsaved.values():
            await patiently(join_many.change)(row, log=self._logs[row.pk])


def bounded(text: str) -> str:
    """Its beginning and its end where it is longer than MOST_LOG characters."""
    if len(text) <= MOST_LOG:
        return text
    return f"{text[: MOST_LOG // 4]}\n…\n{text[-MOST_LOG // 2 :]}"


def last_words(log: str) -> str:
    """The last line that says something, at most 300 characters."""
    return next((line.strip() for line in reversed(log.splitlines()) if line.strip()), "")[-300:]
