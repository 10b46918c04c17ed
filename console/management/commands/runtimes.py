"""`manage.py runtimes list|add|remove`: relocatable Pythons for servers whose own is too old."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from deployments.services import runtimes


class Command(BaseCommand):
    help = "Relocatable Pythons that the console gives to servers without Python 3.10 or newer."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        verbs.add_parser("list", help="Each one: kind of machine, version, size, digest, file.")
        add = verbs.add_parser("add", help="Keep one, in place of the one for the same kind of machine.")
        add.add_argument("file", type=Path, help="cpython-3.12…-aarch64-unknown-linux-gnu-install_only.tar.gz")
        add.add_argument("--sha256", required=True, help="its digest, from where the file comes from")
        remove = verbs.add_parser("remove", help="Hand it out no longer.")
        remove.add_argument("machine", choices=[*runtimes.MACHINES.values()])

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        if verb == "add":
            self._add(options["file"], options["sha256"])
        elif verb == "remove":
            if not runtimes.remove(options["machine"]):
                raise CommandError(f"There is no runtime for {options['machine']}. See: manage.py runtimes list")
            self.stdout.write(f"The runtime for {options['machine']} is handed out no longer.")
        else:
            self._list()

    def _add(self, file: Path, digest: str) -> None:
        try:
            made = runtimes.add(file, digest)
        except runtimes.BadRuntime as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"Python {made.version} for {made.machine} is handed out from now on.")

    def _list(self) -> None:
        found = runtimes.present()
        for machine, runtime in sorted(found.items()):
            mb = runtime.size / 2**20
            self.stdout.write(f"{machine}  Python {runtime.version}  {mb:.0f} MB  {runtime.digest}  {runtime.name}")
        if not found:
            self.stdout.write("None yet. Add one: manage.py runtimes add FILE --sha256 DIGEST")
