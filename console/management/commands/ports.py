"""`manage.py ports`: what to write into the firewall ticket of this site."""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from console import ports
from deployments.agent.config import spoken
from deployments.steps import Text


class Command(BaseCommand):
    help = "Every connection of this site's settings: source, target, port, protocol, TLS, purpose."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="as JSON, each with `inside`: it leaves no machine")

    def handle(self, *args: Any, **options: Any) -> None:
        ways = ports.ways()
        if options["json"]:
            self.stdout.write(json.dumps([ports.as_json(way) for way in ways], ensure_ascii=False, indent=1))
            return
        language = int(spoken(Text("0", "1")))
        rows = [ports.HEAD[language].split(","), *(ports.cells(way, language) for way in ways)]
        widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            padded = (cell + " " * (most - width(cell)) for cell, most in zip(row, widths, strict=True))
            self.stdout.write("  ".join(padded).rstrip())


def width(text: str) -> int:
    """Columns of a terminal: a Chinese character takes two."""
    return sum(2 if ord(char) > 0x2E7F else 1 for char in text)
