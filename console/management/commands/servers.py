"""`manage.py servers list|add|import|forget-key`: the servers of this console, from its own machine's shell."""

import json
import logging
import signal
import sys
import threading
from argparse import ArgumentParser
from getpass import getpass
from pathlib import Path
from typing import Any

from asgiref.sync import async_to_sync
from django.core.management.base import BaseCommand, CommandError
from django.utils import translation

from console.errors import ConsoleError
from deployments import join_many_texts
from deployments.models import JoinMany, JoinRow, Server
from deployments.models.join_many import Phase, RowState
from deployments.services import host_list, join, join_many, join_script, ssh
from deployments.services.join_runner import Runner


class Command(BaseCommand):
    help = "List servers, make a command by which one joins, or let many join by SSH."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        listed = verbs.add_parser("list", help="Each server: name, state, rack, address.")
        listed.add_argument("--json", action="store_true", help="as one JSON array")
        add = verbs.add_parser("add", help="Print the command to paste on one server; it is good for an hour.")
        add.add_argument("name")
        add.add_argument("--rack", default="")
        add.add_argument("--labels", default="", help="env=prod;team=nlp")
        many = verbs.add_parser(
            "import", help="Let the hosts of a CSV file join by SSH. Exit code 1 when some did not."
        )
        _import_arguments(many)
        forget = verbs.add_parser("forget-key", help="Forget the SSH key that was confirmed for a host.")
        forget.add_argument("host", help="HOST or HOST:PORT, as in the list")

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        # The commands speak English, like all of manage.py; only what the pages write is in both languages.
        with translation.override("en"):
            try:
                {"list": self._list, "add": self._add, "import": self._import, "forget-key": self._forget}[verb](
                    options
                )
            except ConsoleError as error:
                raise CommandError(f"{error.what} {error.do}") from error

    def _list(self, options: dict[str, Any]) -> None:
        rows = [_as_json(server) for server in Server.objects.order_by("name")]
        if options["json"]:
            self.stdout.write(json.dumps(rows, ensure_ascii=False, indent=1))
            return
        for row in rows:
            marks = " ".join(word for word in ("simulated", "local") if row[word])
            self.stdout.write(f"{row['name']:<24} {row['state']:<14} {row['rack'] or '-':<12} {marks}".rstrip())

    def _add(self, options: dict[str, Any]) -> None:
        problems: list[str] = []
        labels = host_list.labels({"labels": options["labels"]}, problems)
        if problems:
            raise CommandError(problems[0])
        enrolment = join.make(options["name"], options["rack"], labels, by=None)
        enrolment.script_digest = join_script.digest(join_script.script(enrolment))
        enrolment.save(update_fields=["script_digest"])
        self.stderr.write(f"Paste this on {enrolment.server.name}, as root or as a user with sudo, within an hour:")
        self.stdout.write(join_script.commands(enrolment)[0].text)

    def _forget(self, options: dict[str, Any]) -> None:
        line = host_list.read(f"host,port\n{_host_and_port(options['host'])}")[0]
        if not join_many.forget_key(line.host, line.port, by=None):
            raise CommandError(f"No key was confirmed for {line.address}. Write the host as it is in the list.")
        self.stdout.write(f"The key of {line.address} is forgotten; the next one has to be confirmed.")

    # ---------- many ----------

    def _import(self, options: dict[str, Any]) -> None:
        lines = self._read(options)
        if options["dry_run"]:
            self.stdout.write(f"{len(lines)} hosts could join. Nothing was done.")
            return
        credentials = _credentials(options)
        many = join_many.create(lines, at_once=options["limit"], by=None)
        self._work(many, None)
        self._accept(many, options["yes_host_keys"])
        many.refresh_from_db()
        if many.phase == Phase.JOINING:
            self._work(many, credentials)
        self._sum_up(many)

    def _read(self, options: dict[str, Any]) -> list[host_list.Line]:
        """The file's lines. Raises CommandError where one has a problem, after all were named."""
        try:
            data = sys.stdin.buffer.read() if str(options["file"]) == "-" else options["file"].read_bytes()
        except OSError as error:
            raise CommandError(f"{options['file']} cannot be read ({error.strerror}). Name another file.") from error
        lines = host_list.read(host_list.decode(data), user=options["user"], prefix=options["prefix"])
        for line in lines:
            notes = [f"note: {note}" for note in line.notes]
            for told in (*line.problems, *notes):
                self.stderr.write(f"line {line.n}: {told}")
            if options["dry_run"] and not line.problems:
                self.stdout.write(f"line {line.n}: {line.name} {line.user}@{line.address}")
        wrong = sum(bool(line.problems) for line in lines)
        if wrong:
            raise CommandError(f"{wrong} of {len(lines)} lines have problems, so nothing was done. Mend them.")
        return lines

    def _work(self, many: JoinMany, credentials: ssh.Credentials | None) -> None:
        """Read the keys, or join; Ctrl-C cuts off what is under way."""
        logging.getLogger("asyncssh").setLevel(logging.WARNING)
        speaker = _Speaker(self)
        runner = Runner(many, join_many.claim(many), speaker.tell)
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        if threading.current_thread() is threading.main_thread():
            for number in before:
                signal.signal(number, lambda *_: runner.stop("cancelled"))
        try:
            if credentials is None:
                async_to_sync(runner.read_keys)()
            else:
                async_to_sync(runner.join)(credentials)
        finally:
            if threading.current_thread() is threading.main_thread():
                for number, handler in before.items():
                    signal.signal(number, handler)

    def _accept(self, many: JoinMany, known_hosts: Path | None) -> None:
        """Confirm the keys that are known, that the file names, or that somebody at the terminal says yes to."""
        rows = list(many.rows.filter(state=RowState.KEYED))
        good = {row.n for row in rows if row.key_known or (known_hosts and _is_named(known_hosts, row))}
        unsure = [row for row in rows if row.n not in good]
        for row in unsure:
            self.stderr.write(f"{row.name} {row.address} shows {ssh.kind(row.key)} {ssh.fingerprint(row.key)}")
        if unsure and known_hosts is None and sys.stdin.isatty():
            if input(f"Are these the keys of these {len(unsure)} hosts? [yes/no] ").strip().lower() == "yes":
                good |= {row.n for row in unsure}
        elif unsure:
            self.stderr.write(
                "Name a file with these keys (--yes-host-keys FILE, as known_hosts), or run it at a terminal."
            )
        for row in unsure:
            if row.n not in good:
                join_many.fail(row, {"code": "unconfirmed", "detail": ssh.fingerprint(row.key)})
        if good:
            join_many.confirm(many, good, by=None)
        elif rows:
            join_many.finish(many, "cancelled")

    def _sum_up(self, many: JoinMany) -> None:
        rows = list(many.rows.all())
        joined = [row for row in rows if row.state == RowState.JOINED]
        for row in rows:
            told = join_many_texts.problem(row)
            if row.state != RowState.JOINED and told:
                detail = f" ({told['detail']})" if told["detail"] else ""
                self.stderr.write(f"{row.name}: {told['what']} {told['do']}{detail}")
        self.stdout.write(f"{len(joined)} of {len(rows)} hosts have joined.")
        if len(joined) < len(rows):
            sys.exit(1)


class _Speaker:
    """Prints what happens on each host, line by line, its name before it."""

    def __init__(self, command: Command) -> None:
        self.command = command
        self.rests: dict[int, str] = {}
        self.states: dict[int, str] = {}

    def tell(self, row: JoinRow, text: str) -> None:
        *lines, rest = (self.rests.get(row.pk, "") + text).split("\n")
        self.rests[row.pk] = rest
        for line in lines:
            self.command.stdout.write(f"{row.name} | {line}")
        if self.states.get(row.pk) != row.state:
            self.states[row.pk] = row.state
            took = f" after {row.took_s:.1f} s" if row.state == RowState.JOINED and row.took_s else ""
            self.command.stdout.write(f"{row.name} {row.get_state_display()}{took}")


def _import_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="CSV: host, user, port, rack, labels, name, site, prefix; - is stdin")
    parser.add_argument("--user", default="root", help="where a line names none (root)")
    parser.add_argument("--prefix", default="", help="install without root below this folder")
    parser.add_argument("--key-file", type=Path, help="private key to log in with; its passphrase is asked for")
    parser.add_argument("--ask-password", action="store_true", help="ask for the password to log in with")
    parser.add_argument("--ask-sudo-password", action="store_true", help="ask for the password of sudo, where another")
    parser.add_argument("--dry-run", action="store_true", help="check the list, connect to nobody")
    parser.add_argument("--limit", type=int, default=join_many.AT_ONCE, metavar="N", help="so many at once (10)")
    parser.add_argument("--yes-host-keys", type=Path, metavar="FILE", help="known_hosts file whose keys are right")


def _credentials(options: dict[str, Any]) -> ssh.Credentials:
    """Raises CommandError. Without a terminal each password is a line of stdin."""
    key, passphrase = "", ""
    if options["key_file"]:
        try:
            key = options["key_file"].read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"{options['key_file']} cannot be read ({error}). Name another key.") from error
        key, passphrase = _opened(key, str(options["key_file"]))
    elif not options["ask_password"]:
        raise CommandError("Say how to log in: --key-file FILE or --ask-password.")
    password = _asked("Password: ") if options["ask_password"] else ""
    for_sudo = _asked("Password for sudo: ") if options["ask_sudo_password"] else ""
    return ssh.Credentials(password, key, passphrase, for_sudo)


def _opened(key: str, name: str) -> tuple[str, str]:
    """(key, passphrase); the passphrase is asked for where the key does not open without. Raises CommandError."""
    passphrase = ""
    for last in (False, True):
        try:
            ssh.load_key(key, passphrase)
            return key, passphrase
        except ssh.BadKey as error:
            if error.code != "passphrase":
                raise CommandError(f"{name} is no private key that can be read. Name another one.") from error
            if last:
                raise CommandError(f"{name} does not open with this passphrase. Try again.") from error
        passphrase = _asked(f"Passphrase of {name}: ")
    raise AssertionError("not reached")


def _asked(prompt: str) -> str:
    return getpass(prompt) if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")


def _is_named(known_hosts: Path, row: JoinRow) -> bool:
    """True where the file names this key for this host. Raises CommandError where it cannot be read."""
    import asyncssh

    try:
        trusted = asyncssh.match_known_hosts(asyncssh.read_known_hosts(str(known_hosts)), row.host, "", row.port)[0]
    except (OSError, ValueError) as error:
        raise CommandError(f"{known_hosts} is no known_hosts file ({error}). Name another one.") from error
    return asyncssh.import_public_key(row.key) in trusted


def _as_json(server: Server) -> dict[str, Any]:
    return {
        "id": server.pk,
        "name": server.name,
        "hostname": server.hostname,
        "state": "decommissioned" if server.is_gone else "offline" if server.is_offline else "online",
        "rack": server.rack,
        "labels": server.labels,
        "family": server.family,
        "simulated": server.simulated,
        "local": server.is_local,
        "maintenance": server.maintenance,
        "last_seen_at": server.last_seen_at.isoformat() if server.last_seen_at else None,
    }


def _host_and_port(text: str) -> str:
    """host,port of HOST, HOST:PORT or [IPV6]:PORT."""
    host, colon, port = text.rpartition(":")
    if not colon or (":" in host and not host.endswith("]")):
        return f"{text},"
    return f"{host},{port}"
