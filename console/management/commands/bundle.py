"""`manage.py bundle make|add|check|import|list|remove`: offline bundles of the wheels of a stack."""

import platform
import re
from argparse import ArgumentParser, ArgumentTypeError
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from console.errors import ConsoleError
from deployments.services import (
    bundle_add,
    bundle_fetch,
    bundle_import,
    bundle_make,
    package_sources,
    stacks,
    wheel_bundles,
)
from deployments.stacks import bundles
from deployments.stacks.bundles import BadBundle
from deployments.stacks.options import INDEX

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def size(text: str) -> int:
    """Bytes of `2G`, `700M`."""
    found = re.fullmatch(r"(\d{1,12})([KMG]?)B?", text.strip().upper())
    count = int(found[1]) * UNITS[found[2]] if found else 0
    if count < bundles.LEAST_SPLIT:
        raise ArgumentTypeError(f"“{text}” is no size of 64K or more, such as 2G or 700M")
    return count


def glibc(text: str) -> str:
    """`2.28`, as it was given."""
    found = re.fullmatch(r"2\.(\d{1,2})", text, re.ASCII)
    if not found or not bundle_fetch.OLDEST_GLIBC <= int(found[1]) <= 99:
        raise ArgumentTypeError(f"“{text}” is no glibc of 2.{bundle_fetch.OLDEST_GLIBC} or newer, such as 2.28")
    return text


class Command(BaseCommand):
    help = "Offline bundles: made where an index is reached, carried over, imported, and handed to servers."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        make = verbs.add_parser("make", help="Fetch the wheels of a stack and pack them.")
        make.add_argument("stack", help="name of the stack: manage.py stacks")
        make.add_argument("--arch", choices=bundle_fetch.ARCHES, default=platform.machine())
        make.add_argument("--python", default="", metavar="3.11", help="of the servers; by default one with wheels")
        make.add_argument("--glibc", type=glibc, metavar="2.28", help="of the oldest of the servers")
        make.add_argument("--out", type=Path, default=Path(), help="folder in which the bundle's own is made")
        make.add_argument("--split", type=size, default=0, metavar="2G", help="parts of at most this size")
        make.add_argument("--index", default="", help="address of the index, in place of the public one")
        make.add_argument("--extra-index", action="append", default=[], help="another index; may be given again")
        make.add_argument("--wheels", type=Path, help="a folder with wheels that count as well")
        make.add_argument("--no-index", action="store_true", help="take wheels from --wheels alone")
        add = verbs.add_parser("add", help="Put in packages of the vendor, and wheels that were missing.")
        add.add_argument("folder", type=Path)
        add.add_argument("files", type=Path, nargs="+", help="files, or folders of which those are taken that it wants")
        check = verbs.add_parser("check", help="Is it whole? The first damaged file is named.")
        check.add_argument("folder", type=Path, help="its folder, or the name of one that the console keeps")
        verbs.add_parser("import", help="Keep it here.").add_argument("folder", type=Path)
        verbs.add_parser("list", help="Those that the console keeps.")
        verbs.add_parser("remove", help="Keep it no longer.").add_argument("name")

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        try:
            getattr(self, f"_{verb}")(**options)
        except BadBundle as error:
            raise CommandError(str(error)) from error
        except ConsoleError as error:
            raise CommandError(f"{error.what} {error.do}") from error
        except OSError as error:
            raise CommandError(f"{error.filename or 'A file'}: {error.strerror}. Nothing was kept.") from error

    def _make(self, **given: Any) -> None:
        stack = stacks.find(given["stack"])
        if given["python"] and not re.fullmatch(r"3\.\d{1,2}", given["python"]):
            raise CommandError(f"“{given['python']}” is no version such as 3.11.")
        for address in filter(None, [given["index"], *given["extra_index"]]):
            if not re.fullmatch(INDEX, address, re.ASCII):
                raise CommandError(f"“{address}” is no http(s) address without a password: name those in "
                                   "PACKAGE_PASSWORDS.")  # fmt: skip
        target = bundle_fetch.Target(
            given["arch"], bundle_make.python_for(stack, given["python"]), given["index"] or settings.PACKAGE_INDEX,
            tuple(given["extra_index"] or settings.PACKAGE_EXTRA_INDEX.split()), given["wheels"], given["no_index"],
            package_sources.logins(), package_sources.authorities(), given["glibc"] or "",
        )  # fmt: skip
        say = self.stdout.write
        made = bundle_make.make(stack, stacks.catalogue(), target, given["out"], split=given["split"], say=say)
        manifest = bundles.read_manifest(bundles.manifest_in(made))
        say(bundle_make.summary(manifest))
        self._told_of(manifest, made)
        say(f"In {made}. Carry it over, then: manage.py bundle import {made.name}")

    def _told_of(self, manifest: dict[str, Any], folder: Path) -> None:
        """Say what is to be put in by hand. Raises CommandError where it cannot be used without."""
        for line in bundle_make.wanted(manifest):
            self.stdout.write(line)
        if manifest["missing"]:
            n = len({row["requirement"] for row in manifest["missing"]})
            raise CommandError(
                f"{folder} is not complete: {n} of its packages could not be had, see above. Put their wheels in with "
                f"“manage.py bundle add {folder} FILE …”, or make it again with an index that has them."
            )

    def _add(self, folder: Path, files: list[Path], **_rest: Any) -> None:
        manifest = bundle_add.add(folder, files, self.stdout.write)
        self.stdout.write(bundle_make.summary(manifest))
        for line in bundle_make.wanted(manifest):
            self.stdout.write(line)

    def _check(self, folder: Path, **_rest: Any) -> None:
        kept = wheel_bundles.folder() / folder.name
        if not folder.exists() and folder.parent == Path() and kept.is_dir():
            manifest = bundle_import.check_kept(kept)
        else:
            manifest = bundles.check(folder, self.stdout.write)
        self.stdout.write(f"Whole: {bundle_make.summary(manifest)}")
        self._told_of(manifest, folder)

    def _import(self, folder: Path, **_rest: Any) -> None:
        kept = bundle_import.bring_in(folder, self.stdout.write)
        self.stdout.write(f"{kept.name} is handed out from now on: choose it in the plan of {kept.stack}.")
        for line in bundle_make.wanted(kept.manifest):
            self.stdout.write(line)

    def _list(self, **_rest: Any) -> None:
        found = wheel_bundles.present()
        for one in found:
            self.stdout.write(
                f"{one.name}  {len(one.manifest['files'])} wheels  {one.size / 2**20:,.0f} MB  {one.digest}"
            )
        if not found:
            self.stdout.write("None yet. Bring one in: manage.py bundle import DIR")

    def _remove(self, name: str, **_rest: Any) -> None:
        bundle_import.take_out(name)
        self.stdout.write(f"{name} is handed out no longer.")
