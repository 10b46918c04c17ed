from django.apps import AppConfig
from django.db.models.signals import pre_migrate


class ConsoleConfig(AppConfig):
    name = "console"

    def ready(self) -> None:
        from console import database

        pre_migrate.connect(database.begin, sender=self)
