"""`manage.py ingest`: the ingest process."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from console.ingest import Ingest


class Command(BaseCommand):
    help = "Read every server's streams into the database and the live pages."

    def handle(self, *args: Any, **options: Any) -> None:
        Ingest(settings.REDIS_URL).run()
