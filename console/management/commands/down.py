"""`manage.py down`: end the console of this VAR_DIR; with --all its job runners, gateways and engines too."""

import os
import signal
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from console import runners, service
from console.first_run import read_lock
from deployments import locks
from deployments.agent.engines.folder import Folder
from deployments.agent.gateways import folder as gateways

WAIT_S = 30.0
GATEWAY_S = 30.0
STOP = f"systemctl stop {service.UNIT.stem}"


class Command(BaseCommand):
    help = "End the console that runs with this VAR_DIR. Job runners and engines go on unless --all is given."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--all", action="store_true", help="end job runners, gateways and engines too")

    def handle(self, *args: Any, **options: Any) -> None:
        var = Path(settings.VAR_DIR)
        self._end_console(var / "up.lock")
        left, engines = runners.alive(var), runners.engines(var)
        if not options["all"]:
            if said := runners.farewell(left, engines):
                self.stdout.write("\n".join(said))
            return
        self._end_gateways(var)
        if left:
            self._end_runners(left)
        if engines:
            self._end_engines(engines)

    def _end_console(self, lock: Path) -> None:
        if not locks.is_locked(lock):
            self.stdout.write(f"No console runs with VAR_DIR={lock.parent}.")
            return
        pid = read_lock(lock).get("pid")
        if not isinstance(pid, int):
            raise CommandError(f"{lock} is held, but does not say by whom. Find it with 'fuser {lock}' and end it.")
        if service.runs(pid):
            raise CommandError(f"systemd runs this console and would start it again. Stop it: {STOP}")
        try:
            os.kill(pid, signal.SIGTERM)
        except PermissionError as error:
            raise CommandError(f"Process {pid} belongs to another user. Run 'make down' as that user.") from error
        except ProcessLookupError:
            pass
        deadline = time.monotonic() + WAIT_S
        while locks.is_locked(lock):
            if time.monotonic() > deadline:
                raise CommandError(f"Process {pid} has not ended within {WAIT_S:.0f} s. End it with: kill -9 {pid}")
            time.sleep(0.05)
        self.stdout.write("The console has ended.")

    def _end_gateways(self, var: Path) -> None:
        """Those of this machine; requests that run have some seconds."""
        kept = [one for one in sorted(var.glob("agent/gateways/g*")) if gateways.is_kept(one)]
        for folder in kept:
            self.stdout.write(f"Ending the gateway {folder.name}.")
            gateways.set_wish(folder, "stop")
        deadline = time.monotonic() + GATEWAY_S
        while any(gateways.is_kept(one) for one in kept) and time.monotonic() < deadline:
            time.sleep(0.1)

    def _end_runners(self, left: list[runners.Runner]) -> None:
        self.stdout.write(f"Ending {len(left)} job runner(s):")
        self.stdout.write("\n".join(runners.words(left)))
        self.stdout.flush()
        killed = runners.end(left)
        if killed:
            self.stdout.write(f"{len(killed)} did not end by themselves and were killed:")
            self.stdout.write("\n".join(runners.words(killed)))

    def _end_engines(self, left: list[Folder]) -> None:
        self.stdout.write(f"Ending {len(left)} engine(s):")
        self.stdout.write("\n".join(runners.engine_words(left)))
        self.stdout.flush()
        if killed := runners.end_engines(left):
            self.stdout.write(f"{len(killed)} did not end by themselves and were killed:")
            self.stdout.write("\n".join(runners.engine_words(killed)))
