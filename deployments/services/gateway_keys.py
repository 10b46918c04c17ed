"""API keys of gateways: made and shown once, listed, revoked. Only their digests are kept, here and on servers."""

import hashlib
import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

from console import audit
from console.errors import Conflict, Invalid, NotFound
from console.models import User
from deployments.models import Deployment, GatewayKey
from deployments.services import gateways, jobs

PREFIX = "sk-"
MOST_ALIVE = 500  # they are sent whole, in one order
MOST_RATE = 1_000_000


class Made(NamedTuple):
    """`secret` is shown once, and is nowhere afterwards."""

    key: GatewayKey
    secret: str


def make(
    name: str, *, by: User, deployments: Iterable[str] = (), owner: str = "", rate_per_min: int | None = None,
    expires_at: datetime | None = None,
) -> Made:  # fmt: skip
    """A key for the named deployments, for all where none is named. Raises NotAllowed, Invalid, NotFound, Conflict."""
    jobs.check_may_operate(by)
    name, owner = name.strip(), owner.strip()
    _check(name, owner, rate_per_min, expires_at)
    scope = _scope(deployments)
    if alive().count() >= MOST_ALIVE:
        raise Conflict(
            _("There are %(most)s keys already.") % {"most": MOST_ALIVE},
            _("Revoke those that nobody uses."),
            code="too_many_keys",
        )
    secret = PREFIX + secrets.token_urlsafe(32)
    with transaction.atomic():
        key = GatewayKey.objects.create(
            name=name, start=secret[:8], digest=hashlib.sha256(secret.encode()).hexdigest(), owner=owner,
            rate_per_min=rate_per_min, expires_at=expires_at, by=by,
        )  # fmt: skip
        key.deployments.set(scope)
        audit.record(by, "gateway_key.made", key, name=name, deployments=[one.name for one in scope])
        gateways.keys_changed(by=by)
    return Made(key, secret)


def _check(name: str, owner: str, rate: int | None, expires_at: datetime | None) -> None:
    """Raises Invalid."""
    if not name or len(name) > 100 or not name.isprintable():
        raise Invalid(_("A key needs a name of 1 to 100 characters."), _("Say what it is for."), code="bad_name")
    if len(owner) > 100 or not (owner or "x").isprintable():
        raise Invalid(_("The owner is longer than 100 characters."), _("Name one person or team."), code="bad_owner")
    if rate is not None and not 1 <= rate <= MOST_RATE:
        raise Invalid(
            _("The rate must be 1 to %(most)s requests a minute.") % {"most": MOST_RATE},
            _("Leave it empty for no limit."),
            code="bad_rate",
        )
    if expires_at is not None and expires_at <= timezone.now():
        raise Invalid(_("The key would have expired already."), _("Choose a later day."), code="bad_expiry")


def _scope(names: Iterable[str]) -> list[Deployment]:
    """Raises NotFound."""
    wanted = list(dict.fromkeys(names))[:200]
    found = {one.name: one for one in Deployment.objects.present().filter(name__in=wanted)}
    for name in wanted:
        if name not in found:
            raise NotFound(
                _("There is no deployment called %(name)s.") % {"name": name[:63]},
                _("Choose from the list of deployments."),
            )
    return [found[name] for name in wanted]


def find(pk: int) -> GatewayKey:
    """Raises NotFound."""
    key = GatewayKey.objects.filter(pk=min(pk, 2**62)).first()
    if key is None:
        raise NotFound(_("There is no such key."), _("Look for it in the list of keys."))
    return key


def revoke(key: GatewayKey, *, by: User) -> GatewayKey:
    """Dead at every gateway within seconds. Raises NotAllowed, Conflict."""
    jobs.check_may_operate(by)
    with transaction.atomic():
        if not GatewayKey.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=timezone.now()):
            raise Conflict(_("This key was revoked already."), _("There is nothing to do."), code="already_revoked")
        key.refresh_from_db()
        audit.record(by, "gateway_key.revoked", key, name=key.name)
        gateways.keys_changed(by=by)
    return key


def alive() -> QuerySet[GatewayKey]:
    """Those that are neither revoked nor expired."""
    return GatewayKey.objects.filter(revoked_at=None).filter(Q(expires_at=None) | Q(expires_at__gt=timezone.now()))


def is_expired(key: GatewayKey, now: datetime | None = None) -> bool:
    return key.expires_at is not None and key.expires_at <= (now or timezone.now())


def state_of(key: GatewayKey) -> str:
    """revoked | expired | valid."""
    return "revoked" if key.revoked_at else "expired" if is_expired(key) else "valid"


def until_day(days: int | None) -> datetime | None:
    """So many days from now. Raises Invalid."""
    if days is None:
        return None
    if not 1 <= days <= 3650:
        raise Invalid(
            _("A key lasts 1 to 3650 days."), _("Leave it empty for one that does not expire."), code="bad_days"
        )
    return timezone.now() + timedelta(days=days)
