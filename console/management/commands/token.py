"""`manage.py token create|list|revoke`: bearer tokens of the REST API."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from console import audit
from console.models import RANK, ApiToken, Role, User


class Command(BaseCommand):
    help = "Make, list and revoke bearer tokens of the REST API."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        create = verbs.add_parser("create", help="Make a token and print it; nobody can read it again.")
        create.add_argument("user")
        create.add_argument(
            "--role", choices=Role.values, default=None, help="at most the user's own; default: the same"
        )
        create.add_argument(
            "--days", type=int, default=None, help="how long it is good for; default: until it is revoked"
        )
        create.add_argument("--name", default="", help="what it is for")
        verbs.add_parser("list", help="Every token: id, user, role, name, times.")
        revoke = verbs.add_parser("revoke", help="End a token.")
        revoke.add_argument("id", type=int)

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        if verb == "create":
            self._create(options["user"], options["role"], options["days"], options["name"])
        elif verb == "list":
            self._list()
        else:
            self._revoke(options["id"])

    def _create(self, username: str, role: str | None, days: int | None, name: str) -> None:
        user = User.objects.filter(username=username).first()
        if user is None:
            names = ", ".join(User.objects.order_by("username").values_list("username", flat=True)[:10]) or "nobody yet"
            raise CommandError(f"There is no user {username!r} (known: {names}). Make one: manage.py user create NAME")
        role = role or user.role
        if RANK[Role(role)] > RANK[Role(user.role)]:
            raise CommandError(
                f"{username} is {user.role}, so a token cannot be {role}. Choose --role {user.role} or less."
            )
        if days is not None and not 1 <= days <= 3650:
            raise CommandError(f"--days {days} is not from 1 to 3650. Give such a number, or leave it out.")
        if len(name) > 100:
            raise CommandError("--name is longer than 100 characters. Shorten it.")
        token, text = ApiToken.make(user, role, name=name, days=days)
        audit.record(None, "token.created", token, user=username, role=role)
        self.stderr.write(f"Token of {username} ({role}), shown once:")
        self.stdout.write(text)

    def _list(self) -> None:
        for token in ApiToken.objects.select_related("user").order_by("pk"):
            ends = f"until {token.expires_at:%Y-%m-%d}" if token.expires_at else "until revoked"
            used = f"used {token.last_used_at:%Y-%m-%d %H:%M}" if token.last_used_at else "never used"
            self.stdout.write(f"{token.pk}\t{token.user.username}\t{token.role}\t{token.name or '-'}\t{ends}\t{used}")

    def _revoke(self, pk: int) -> None:
        token = ApiToken.objects.filter(pk=pk).first()
        if token is None:
            raise CommandError(f"There is no token {pk}. See the ids: manage.py token list")
        audit.record(None, "token.revoked", token, user=token.user.username)
        token.delete()
        self.stdout.write(f"Token {pk} is revoked.")
