"""`manage.py packages [FILE …]`: note the digests of packages of the vendor, read from the files; or list them."""

import hashlib
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from console.errors import ConsoleError
from console.models import User
from deployments.models import VendorPackage
from deployments.services import packages


class Command(BaseCommand):
    help = "Note the SHA-256 of packages of the vendor, by which root on the servers knows the right file."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("files", nargs="*", type=Path, help="packages, as the vendor's page hands them out")
        parser.add_argument("--by", help="name of the administrator who says so; default: the first there is")

    def handle(self, *args: Any, **options: Any) -> None:
        if not options["files"]:
            for row in VendorPackage.objects.all():
                self.stdout.write(f"{row.sha256}  {row.name}")
            return
        by = self._administrator(options["by"])
        for path in options["files"]:
            try:
                with path.open("rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
                row = packages.put(path.name, digest, by=by, size=path.stat().st_size, source="manage.py packages")
            except OSError as error:
                raise CommandError(f"{path} cannot be read: {error.strerror}.") from error
            except ConsoleError as error:
                raise CommandError(f"{error.what} {error.do}") from error
            self.stdout.write(f"{row.sha256}  {row.name}")

    def _administrator(self, name: str | None) -> User:
        rows = User.objects.filter(role="administrator", is_active=True).order_by("pk")
        found = (rows.filter(username=name) if name else rows).first()
        if found is None:
            raise CommandError("There is no such administrator. Make one: manage.py user NAME --role administrator.")
        return found
