"""`manage.py models [--json] [WORD …]`: the catalogue of models that are known, and which of them lie here."""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from console.language import pick
from deployments.services import model_catalogue


class Command(BaseCommand):
    help = "Every known model with what it needs: weights, NPUs, KV cache, and the quantizations that were verified."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="as GET /api/v1/model-catalogue answers")
        parser.add_argument("words", nargs="*", help="only those whose id has each of them")

    def handle(self, *args: Any, **options: Any) -> None:
        words = " ".join(options["words"])
        for problem in model_catalogue.models().problems:
            self.stderr.write(pick(problem))
        if options["json"]:
            self.stdout.write(json.dumps(model_catalogue.as_json(words), ensure_ascii=False, indent=1))
            return
        self._line("model", "10⁹", "bf16 GB", "int8 GB", "64 GB NPUs", "KV B/token", "types", "here")
        for line in model_catalogue.lines(words):
            self._row(line)

    def _row(self, line: model_catalogue.Line) -> None:
        row = line.row
        sizes = [_figure(row.weights[kind]) for kind in ("bf16", "int8")]
        npus = " / ".join(str(row.least(kind, 64) or "—") for kind in ("bf16", "int8"))
        types = " ".join(one.type for one in row.quant) or "—"
        self._line(
            row.id, _figure(row.params_b), *sizes, npus, str(row.kv_bytes_per_token or "—"), types, str(len(line.here))
        )

    def _line(self, *cells: str) -> None:
        widths = (46, 8, 9, 9, 12, 12, 30, 6)
        self.stdout.write("".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())


def _figure(value: float | None) -> str:
    return "—" if value is None else f"{value:.4g}"
