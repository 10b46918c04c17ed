"""`manage.py stacks [--json] [--server NAME] [--stack NAME]`: the catalogue, and what it is to a server."""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from console.errors import ConsoleError
from console.language import pick
from deployments.asked import find_server
from deployments.services import installs, stacks
from deployments.stacks import plan, verdict
from deployments.stacks.catalogue import newest_first
from monitoring.services import stack_holders


class Command(BaseCommand):
    help = "Every stack with its state and what it needs; with --server what each is to that server."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="as GET /api/v1/stacks answers")
        parser.add_argument("--server", help="name of a server: a verdict for each stack")
        parser.add_argument("--stack", help="with --server: the plan that brings it to this stack")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            if options["stack"] and not options["server"]:
                raise CommandError("--stack goes with --server NAME. Name the server, or leave --stack out.")
            if options["stack"]:
                self._plan(options["server"], options["stack"], options["json"])
            elif options["server"]:
                self._server(options["server"], options["json"])
            else:
                self._all(options["json"])
        except ConsoleError as error:
            raise CommandError(f"{error.what} {error.do}") from error

    def _json(self, value: Any) -> None:
        self.stdout.write(json.dumps(value, ensure_ascii=False, indent=1))

    def _all(self, as_json: bool) -> None:
        servers = stacks.rows()
        for problem in stacks.catalogue().problems:
            self.stderr.write(pick(problem.text))
        if as_json:
            self._json(stacks.catalogue_json(servers))
            return
        tallies = stacks.counts(servers)
        self._line("stack", "state", "CANN", "driver", "torch-npu", *verdict.WORDS)
        for stack in newest_first(stacks.catalogue().stacks):
            least = stacks.catalogue().driver_min(stack)
            tally = [str(tallies[stack.name][word]) for word in verdict.WORDS]
            driver = "—" if least is None else f"≥ {least}" if least else ""
            self._line(stack.name, stack.state, stack.cann, driver, stack.torch_npu, *tally)

    def _line(self, *cells: str) -> None:
        widths = (26, 10, 12, 14, 20, 8, 10, 8, 8)
        self.stdout.write("".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=False)).rstrip())

    def _server(self, name: str, as_json: bool) -> None:
        row = stacks.row_of(find_server(name))
        found = [(stack, stacks.verdict_of(row, stack)) for stack in newest_first(stacks.catalogue().stacks)]
        if as_json:
            self._json({"server": row.name, "wished": row.wished or None, "stacks": [
                {"stack": stack.name, **stacks.verdict_json(row, one)} for stack, one in found]})  # fmt: skip
            return
        for stack, one in found:
            why = " ".join(pick(text) for text in one.because) or ", ".join(pick(text) for text in one.steps)
            self.stdout.write(f"{stack.name:<26}{one.word:<12}{why}"[:400])

    def _plan(self, server_name: str, stack_name: str, as_json: bool) -> None:
        server, stack = find_server(server_name), stacks.find(stack_name)
        made = stacks.plan_for(server, stack, installs.options_for(server, {}), stack_holders.of(server))
        if as_json:
            self._json(plan.as_json(made))
            return
        for refusal in made.refusals:
            self.stdout.write(pick(refusal.text))
        for step in made.steps:
            shown = f"{step.evidence.file}: {step.evidence.value}" if step.evidence else " ".join(step.argv)
            self.stdout.write(f"[{step.state}] {pick(step.title)}  {shown}")
        for text in (*made.gaps, *made.warnings, *made.blocked):
            self.stdout.write(f"! {pick(text)}")
