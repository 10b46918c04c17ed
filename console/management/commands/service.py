"""`manage.py service`: install the console as a systemd unit, take it away, or print what it would say."""

import os
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from console import service
from console.environment import BadSetting
from console.first_run import read_lock
from deployments import locks


class Command(BaseCommand):
    help = "The console as a systemd unit, with the settings of this environment; those of before are kept."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        group = parser.add_mutually_exclusive_group()
        group.add_argument("--print", action="store_true", dest="dry", help="show unit and settings, change nothing")
        group.add_argument("--remove", action="store_true", help="take the unit away; data and job runners stay")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["remove"]:
            self._remove()
            return
        wanted = self._wanted()
        if options["dry"]:
            self.stdout.write(f"# {service.UNIT}\n{service.unit(wanted)}")
            # The file holds secrets such as DATABASE_URL, and a terminal may be looked at.
            names = ", ".join(["VAR_DIR", *wanted.environment])
            self.stdout.write(f"# {service.ENVIRONMENT} (0600): {names}")
            return
        check_nobody_else_runs(wanted.var / "up.lock")
        service.install(wanted)
        self.stdout.write(f"Ascend Console runs as {wanted.account} and starts with this machine.")
        self.stdout.write(f"  systemctl status {service.UNIT.stem}    journalctl -u {service.UNIT.stem}")
        self.stdout.write("  The first administrator's password is in that journal, once.")

    def _wanted(self) -> service.Service:
        kept = service.kept()
        # Installed again with no VAR_DIR it keeps the folder that it has.
        var = Path(kept["VAR_DIR"]) if "VAR_DIR" in kept and not os.environ.get("VAR_DIR") else Path(settings.VAR_DIR)
        account = os.environ.get("SERVICE_USER", "").strip() or service.ACCOUNT
        chosen = service.given({name: value for name, value in kept.items() if name != "VAR_DIR"}, dict(os.environ))
        return service.Service(Path(settings.BASE_DIR), Path(sys.executable), var, account, chosen)

    def _remove(self) -> None:
        if not service.remove():
            self.stdout.write("No service is installed.")
            return
        self.stdout.write(f"The service is gone. {settings.VAR_DIR} and the account stay; job runners go on.")


def check_nobody_else_runs(lock: Path) -> None:
    """Raises BadSetting where a console that is no service has the folder."""
    pid = read_lock(lock).get("pid") if locks.is_locked(lock) else None
    if pid is not None and not service.runs(int(pid)):
        raise BadSetting(f"The console of {lock.parent} runs already (process {pid}). End it first: make down")
