"""Starts the process that works on a list of hosts, and hands it the credentials by its standard input.

They are in no file, no database and no environment: in the request, in the pipe, in that process. The pipe stays open:
when it closes, the console has ended, and the process ends with it. Whoever wants to go on gives them again.
"""

import json
import subprocess
import sys
import threading
from dataclasses import asdict

from django.conf import settings
from django.db import close_old_connections, connections
from django.utils import translation
from django.utils.translation import gettext as _

from console.errors import Unavailable
from deployments.models import JoinMany
from deployments.services import join_many, ssh

_running: set[subprocess.Popen[bytes]] = set()  # their pipes would close if nobody held them


def start(many: JoinMany, credentials: ssh.Credentials | None = None) -> None:
    """Read the keys of the list, or with `credentials` let its hosts join. Raises Unavailable."""
    token = join_many.claim(many)
    # asyncssh and Django speak of nothing but states there; what it prints goes where the web server's words go.
    command = [sys.executable, str(settings.BASE_DIR / "manage.py"), "join_many", str(many.pk)]
    order = {
        "token": token,
        "language": translation.get_language() or "en",
        "credentials": asdict(credentials) if credentials else None,
    }
    try:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=settings.BASE_DIR)
        assert process.stdin is not None
        process.stdin.write(json.dumps(order).encode() + b"\n")
        process.stdin.flush()
    except OSError as error:
        join_many.finish(many, "interrupted")
        raise Unavailable(
            _("The process that works on the list could not be started (%(why)s).") % {"why": error.strerror},
            _("See that the console's machine has memory left, then try again."),
            code="no_process",
        ) from error
    _running.add(process)
    threading.Thread(target=_wait, args=(process, many, token), daemon=True).start()


def _wait(process: subprocess.Popen[bytes], many: JoinMany, token: str) -> None:
    """When it has ended without saying so, the list says so at once."""
    process.wait()
    _running.discard(process)
    if process.stdin:
        process.stdin.close()
    close_old_connections()
    try:
        if JoinMany.objects.filter(pk=many.pk, runner=token).exists():
            join_many.finish(many, "interrupted")
    finally:
        connections.close_all()
