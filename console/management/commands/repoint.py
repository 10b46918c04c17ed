"""`manage.py repoint rediss://new:6380/0`: send agents to another address of the console, from its own shell."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import translation

from console.errors import ConsoleError
from deployments.services import repoint


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("redis", nargs="+", help="rediss://host:6380/0, in the order to try; without user and password")
    parser.add_argument("--console", default="", help="https://host:port of the pages, where they move too")
    parser.add_argument("--pin", default="", help="sha256//… of the key behind it, as curl --pinnedpubkey takes it")
    parser.add_argument("--ca", type=Path, help="PEM file of the authority of Redis there, where agents trust another")
    parser.add_argument("--servers", default="", help="names with commas between; left out: all that have joined")
    parser.add_argument("--yes", action="store_true", help="send it; without, only show whom it would hit")


class Command(BaseCommand):
    help = "Show whom an order to go to another address would hit, and with --yes send it."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        with translation.override("en"):
            try:
                self._act(options)
            except ConsoleError as error:
                raise CommandError(f"{error.what} {error.do}") from error

    def _act(self, options: dict[str, Any]) -> None:
        try:
            ca = options["ca"].read_text() if options["ca"] else ""
        except (OSError, ValueError) as error:
            raise CommandError(f"{options['ca']} cannot be read ({error}). Name ca.crt of the new console.") from error
        wished = repoint.read(options["redis"], options["console"], options["pin"], ca)
        hit = repoint.preview(options["servers"].replace(",", " ").split() or None)
        for server in hit.servers:
            self.stdout.write(f"{server.name}{'  (silent now)' if server.is_offline else ''}")
        for server, why in hit.left_out:
            self.stdout.write(f"{server.name}  left out: {why}")
        if not options["yes"]:
            for problem in hit.problems:
                self.stderr.write(problem)
            self.stdout.write(f"It would hit {len(hit.servers)}. Nothing was sent; add --yes to send it.")
            return
        sent = repoint.start(hit, wished, by=None)
        self.stdout.write(f"Sent to {len(sent)}. The page “Agents”, “Addresses” tells what each answers.")
