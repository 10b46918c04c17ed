"""What the pages of joining say: the steps, and what to do where one stops."""

from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from deployments.looks import Look
from deployments.models import Enrolment

WORDS = {
    "waiting": Look("state-queued", "stale", _("not run yet")),
    "called": Look("state-running", "info", _("the host has called")),
    "used": Look("state-running", "info", _("credentials handed out")),
    "online": Look("state-ok", "ok", _("online")),
    "reading": Look("state-ok", "ok", _("joined")),
    "expired": Look("state-stale", "stale", _("expired")),
}


class Step(NamedTuple):
    """One line of the live steps; `at` is None until it is reached. `state`: done, now or later."""

    title: Any
    hint: Any
    at: datetime | None
    state: str


STEPS = [
    ("copied", _("Command copied"), _("Copy it, and paste it on the server.")),
    ("called", _("Host called"), _("The server fetches the script. If nothing comes: name, port, firewall.")),
    ("online", _("Agent online"), _("It fetches the agent, installs it and starts it; this takes up to a minute.")),
    ("reading", _("First reading"), _("The first sample of the server and its NPUs.")),
]


def steps(enrolment: Enrolment, reached: str) -> list[Step]:
    """The live steps. A later one that is reached says that those before are, too."""
    times = {name: enrolment.steps.get(name) for name, _title, _hint in STEPS}
    last = max((n for n, (name, _title, _hint) in enumerate(STEPS) if times[name]), default=-1)
    lines = []
    for n, (name, title, hint) in enumerate(STEPS):
        state = "done" if n <= last else "now" if n == last + 1 else "later"
        at = times[name]
        lines.append(Step(title, hint, datetime.fromisoformat(at) if at else None, state))
    return lines


class Trouble(NamedTuple):
    what: Any
    do: Any


TROUBLE = {
    "name": Trouble(
        _("Name resolution: the server does not know the console's name."),
        _("Put the name into its DNS or /etc/hosts, or set PUBLIC_URL to an address and make a new command."),
    ),
    "port": Trouble(
        _("Port: nothing answers at the console's address."),
        _("Let the server reach the console's port by TCP; curl on the server says what it meets."),
    ),
    "tls": Trouble(
        _("TLS: what answers does not have the console's key."),
        _("Take the proxy between them out of the way, or set PUBLIC_CERTIFICATE to what it shows."),
    ),
    "tls_clock": Trouble(
        _("Clock: by the server's own, the console's certificate is not valid yet."),
        _("Set the server's clock (chronyd), then paste the same command again."),
    ),
    "tls_expired": Trouble(
        _("TLS: the console's certificate has expired, or the server's clock is ahead of time."),
        _("Check the server's clock. Where it is right, start the console anew: it renews its certificate."),
    ),
    "tls_name": Trouble(
        _("TLS: the console's certificate does not hold the name by which the server comes."),
        _("Set PUBLIC_URL and PUBLIC_REDIS_URL to names that it holds, or start the console anew, so that it does."),
    ),
    "tls_issuer": Trouble(
        _("TLS: the server does not trust who signed the console's certificate."),
        _("Make a new command and paste it: it brings the authority. A site's own is named by TLS_CA or REDIS_CA."),
    ),
    "tls_plain": Trouble(
        _("TLS: what answers at the address of Redis speaks none."),
        _("Correct PUBLIC_REDIS_URL; the bundled Valkey has TLS at the port that “manage.py ports” shows."),
    ),
    "python": Trouble(
        _("Python: there is none of 3.10 or newer."),
        _("Name one before the command (export PYTHON=/path/to/python3), or add a runtime to the console."),
    ),
    "permission": Trouble(
        _("Permission: the script may not do something."),
        _("Run it as root or with sudo; without either, “export PREFIX=/folder” before the command."),
    ),
    "disk": Trouble(
        _("Disk: there is no room."),
        _("Free 300 MB below /opt, or “export PREFIX=/folder” on another disk before the command."),
    ),
    "clock": Trouble(
        _("Clock: the server's is more than 60 s off."),
        _("It joins all the same. Set the clock (chronyd), or the times in its logs are wrong."),
    ),
    "redis": Trouble(
        _("Redis: the agent cannot reach it or is refused."),
        _("Let the server reach the port of PUBLIC_REDIS_URL by TCP, then paste the same command again."),
    ),
    "digest": Trouble(
        _("Digest: what arrived is not what the command names."),
        _("A proxy or somebody else changed it, or the console was upgraded. Make a new command."),
    ),
    "used": Trouble(
        _("The command was used before."), _("Make a new one for the same name; it repairs what is there.")
    ),
    "silent": Trouble(
        _("The agent started, and the console did not hear it."),
        _("See log/link.log and log/keep.log below /opt/ascend-console on the server (with systemd: journalctl)."),
    ),
}
# What curl says on a server that cannot fetch the script, and so cannot tell us: (its words, what they mean).
SAID = (
    ("Could not resolve host", "name"),
    ("Failed to connect · Connection refused · timed out", "port"),
    ("public key does not match · SSL", "tls"),
)
QUIET = timedelta(seconds=20)
UNKNOWN = Trouble(_("The script stopped."), _("Its last words on the terminal say why."))


def unheard(enrolment: Enrolment) -> list[tuple[str, Trouble]]:
    """Where the command was copied and no host has called since: what its terminal may say, and what that means."""
    copied = enrolment.steps.get("copied")
    waits = copied and "called" not in enrolment.steps and enrolment.used_at is None and not enrolment.is_expired
    if not waits or timezone.now() - datetime.fromisoformat(copied) < QUIET:
        return []
    return [(words, TROUBLE[code]) for words, code in SAID]


def problems(enrolment: Enrolment) -> list[dict[str, Any]]:
    """What the script told: [{what, do, detail, at, warning}], newest first; details came from the server."""
    found = []
    for told in reversed(enrolment.steps.get("problems", [])):
        trouble = TROUBLE.get(told["code"], UNKNOWN)
        at = datetime.fromisoformat(told["at"])
        found.append({**trouble._asdict(), "detail": told["detail"], "at": at, "warning": told["code"] == "clock"})
    return found
