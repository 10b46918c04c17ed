"""`manage.py user create|password`: people who sign in."""

import secrets
from argparse import ArgumentParser
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError

from console import audit
from console.models import Role, User


class Command(BaseCommand):
    help = "Make a user, or give one a new password."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        create = verbs.add_parser("create", help="Make a user and print a random password.")
        create.add_argument("name")
        create.add_argument("--role", choices=Role.values, default=Role.VIEWER)
        password = verbs.add_parser("password", help="Give a user a new random password and print it.")
        password.add_argument("name")

    def handle(self, *args: Any, verb: str, name: str, **options: Any) -> None:
        user = self._make(name, options["role"]) if verb == "create" else self._find(name)
        password = secrets.token_urlsafe(12)
        user.set_password(password)
        user.save()
        audit.record(None, f"user.{verb}", user, role=user.role)
        self.stderr.write(f"Password of {user.username} ({user.role}), shown once:")
        self.stdout.write(password)

    def _make(self, name: str, role: str) -> User:
        if User.objects.filter(username=name).exists():
            raise CommandError(
                f"There is a user {name!r} already. Give it a new password: manage.py user password {name}"
            )
        user = User(username=name, role=role)
        try:
            user.clean_fields(exclude=["password"])
        except ValidationError as error:
            raise CommandError(f"{name!r} is no user name: {' '.join(error.messages)} Choose another.") from error
        return user

    def _find(self, name: str) -> User:
        user = User.objects.filter(username=name).first()
        if user is None:
            raise CommandError(f"There is no user {name!r}. Make one: manage.py user create {name}")
        return user
