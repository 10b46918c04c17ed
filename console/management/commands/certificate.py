"""`manage.py certificate show|rotate`: what others see of this console, and a new authority for it."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError

from console import addresses, tls
from console.certificates import Facts
from deployments.services import trust


class Command(BaseCommand):
    help = "The certificate that the console and its Redis show, and the authority that signs it."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        verbs.add_parser("show", help="Names, end, fingerprints, and what is wrong.")
        rotate = verbs.add_parser("rotate", help="A new authority from the next start on; joined servers go on.")
        rotate.add_argument(
            "--stolen", action="store_true", help="trust nothing of before: new keys, and every server joins again"
        )

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        if verb == "show":
            self._show()
        else:
            self._rotate(stolen=options["stolen"])

    def _show(self) -> None:
        found = tls.facts()
        if found is None:
            self.stdout.write("There is no certificate: pages and Redis are reached on loopback, or in plain text.")
            return
        ca = tls.authority_facts()
        for title, one in (("server", found), ("authority", ca)):
            if one:
                self.stdout.write("\n".join(_lines(title, one)))
        if behind := _behind():
            shown = ", ".join(behind[:20]) + (" …" if len(behind) > 20 else "")
            self.stdout.write(f"{len(behind)} servers go by the authority of before still: {shown}")
        for trouble in tls.troubles(addresses.shown_names()):
            self.stdout.write(f"{trouble.what.en} {trouble.do.en}")

    def _rotate(self, *, stolen: bool) -> None:
        if not tls.is_own():
            raise CommandError("TLS_CERTIFICATE names the site's own certificate. Replace it where it comes from.")
        if tls.shown() is None:
            raise CommandError("There is no authority yet. The first start with an address of the network makes it.")
        tls.rotate(stolen=stolen)
        self.stdout.write("There is a new authority. It is used once the console is started anew.")
        if stolen:
            self.stdout.write("Make a new command for every joined server: none of them trusts it by itself.")


def _behind() -> list[str]:
    """Names of servers that have not learned of the authority yet; none where the database does not say."""
    try:
        return [server.name for server in trust.behind()]
    except DatabaseError:
        return []


def _lines(title: str, facts: Facts) -> list[str]:
    lines = [
        f"{title}: {facts.subject}, until {facts.not_after:%Y-%m-%d}",
        f"  SHA-256 {facts.fingerprint}",
        f"  key     {facts.pin}",
    ]
    return [*lines, f"  names   {', '.join(facts.names)}"] if facts.names else lines
