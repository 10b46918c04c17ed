"""`manage.py join_many ID`: works on one list of hosts. Started by the console itself, which hands over by stdin."""

import json
import logging
import os
import signal
import sys
import threading
from argparse import ArgumentParser
from typing import Any

from asgiref.sync import async_to_sync
from django.core.management.base import BaseCommand, CommandError
from django.utils import translation

from deployments.models import JoinMany
from deployments.services import ssh
from deployments.services.join_runner import Runner


class Command(BaseCommand):
    help = "Work on one list of hosts; the console starts this by itself and gives the credentials by stdin."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("id", type=int)

    def handle(self, *args: Any, id: int, **options: Any) -> None:
        logging.getLogger("asyncssh").setLevel(logging.WARNING)
        many = JoinMany.objects.select_related("made_by").filter(pk=id).first()
        order = _order()
        if many is None or order is None:
            raise CommandError("There is no such list, or nothing was handed over. Start it on the console's page.")
        translation.activate(order["language"])
        runner = Runner(many, order["token"])
        # The console has ended when its end of the pipe closes; without it nobody would see what this does.
        threading.Thread(target=_until_closed, args=(runner,), daemon=True).start()
        signal.signal(signal.SIGTERM, lambda *_: runner.stop("interrupted"))
        signal.signal(signal.SIGINT, lambda *_: runner.stop("interrupted"))
        given = order["credentials"]
        if given is None:
            async_to_sync(runner.read_keys)()
        else:
            language = "zh_CN.UTF-8" if order["language"].startswith("zh") else "C"
            async_to_sync(runner.join)(ssh.Credentials(**given), language)


def _order() -> Any:
    """{"token", "language", "credentials"}, None where nothing was said."""
    try:
        return json.loads(sys.stdin.buffer.readline())
    except ValueError:
        return None


def _until_closed(runner: Runner) -> None:
    while os.read(0, 4096):
        pass
    runner.stop("interrupted")
