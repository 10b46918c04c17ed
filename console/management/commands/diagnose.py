"""`manage.py diagnose [FILE]`: what is known of a failure, by the log that it left, as JSON."""

import json
import sys
from argparse import ArgumentParser
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from console.language import pick
from monitoring import diagnoses
from monitoring.services import site_rules

PIECE = 1024 * 1024  # characters that are read at once
NO_FILE = (
    "无法读取 {path}：{reason}。请检查路径与权限。",
    "{path} cannot be read: {reason}. Check the path and its permissions.",
)


class Command(BaseCommand):
    help = "Read a log and print what is known of its failure, best first, as JSON; [] where nothing is."
    requires_system_checks = []  # neither the database nor a URL is needed

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", nargs="?", default="-", help="the log to read, standard input by default")

    def handle(self, *args: Any, **options: Any) -> None:
        found = [finding.as_json() for finding in scanned(options["file"])]
        self.stdout.write(json.dumps(found, indent=1, ensure_ascii=False))


def scanned(path: str) -> list[diagnoses.Finding]:
    """In pieces of whole lines: a log may be as long as a disk. What is no UTF-8 is read all the same."""
    scanner, number, rest = diagnoses.Scanner(site_rules.signatures()), 1, ""
    try:
        with nullcontext(sys.stdin.buffer) if path == "-" else Path(path).open("rb") as file:
            while piece := file.read(PIECE):
                lines, _, rest = (rest + piece.decode("utf-8", "replace").replace("\r\n", "\n")).rpartition("\n")
                if lines:
                    scanner.feed(lines, number)
                    number += lines.count("\n") + 1
                if len(rest) > PIECE:
                    rest = rest[-PIECE:]
    except OSError as problem:
        words = pick(NO_FILE).format(path=path, reason=problem.strerror)
        raise CommandError(words) from None
    if rest:
        scanner.feed(rest, number)
    return scanner.findings()
