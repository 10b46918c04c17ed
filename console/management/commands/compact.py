"""`manage.py compact`: SQLite's file becomes as small as what it holds. The console stands still for so long."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError

from console import database
from console.errors import ConsoleError


class Command(BaseCommand):
    help = "Give the free space of SQLite's file back to the disk; stop the console first."

    def handle(self, *_args: Any, **_options: Any) -> None:
        try:
            before, after = database.compact()
        except ConsoleError as error:
            raise CommandError(f"{error.what} {error.do}") from error
        except OperationalError as error:
            raise CommandError(
                f"The database could not be compacted ({error}). Stop the console (make down), then try again."
            ) from error
        self.stdout.write(f"{before / 1e6:,.1f} MB before, {after / 1e6:,.1f} MB after.")
