"""What people write about a deployment: title, notes, labels, whose it is, how long its requests may run on."""

import re
from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.utils.translation import gettext as _

from console.errors import Invalid
from console.models import User
from deployments.models import Deployment
from deployments.services import deployments

MOST_LABELS = 30
KEY = re.compile(r"[\w.\-/]{1,63}")
MOST_VALUE = 100


def edit(deployment: Deployment, given: Mapping[str, str], *, by: User) -> None:
    """As the form sends it. Nothing is changed where a field is wrong. Raises ConsoleError."""
    values: dict[str, Any] = {name: given.get(name, "").replace("\0", "").strip() for name in ("title", "notes")}
    values["drain_s"] = read_drain(given.get("drain", ""))
    with transaction.atomic():
        deployments.edit(deployment, values, by=by)
        label(deployment, labels=read_labels(given.get("labels", "")), owner=given.get("owner", ""), by=by)


def label(
    deployment: Deployment, *, labels: Mapping[str, str] | None = None, owner: str | None = None, by: User
) -> None:
    """Its labels, all of them, and the name of its owner ('' for nobody); None leaves it. Raises ConsoleError."""
    kept = None if labels is None else check_labels(labels)
    found = None if owner is None else find_owner(owner)
    with deployments.changing(deployment, by, "deployment.labelled", paused_too=True) as row:
        row.labels = row.labels if kept is None else kept
        row.owner = row.owner if owner is None else found
        more = {"labels": row.labels, "owner": row.owner.username if row.owner else None}
        row.details.update(more)  # type: ignore[attr-defined]


def read_labels(text: str) -> dict[str, str]:
    """`key=value` or `key`, one in a line or with commas between."""
    words = [word.strip() for word in re.split(r"[\n,]", text.replace("\0", "")) if word.strip()]
    return {key.strip(): value.strip() for key, _sign, value in (word.partition("=") for word in words)}


def check_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Raises Invalid."""
    for key, value in labels.items():
        if not KEY.fullmatch(key) or len(value) > MOST_VALUE or "\0" in value:
            raise Invalid(
                _("“%(label)s” is no label.") % {"label": f"{key}={value}"[:80] if value else key[:80]},
                _("Write key or key=value: letters, digits and . _ - / in the key, 63 characters at most."),
                code="invalid_label",
            )
    if len(labels) > MOST_LABELS:
        raise Invalid(_("A deployment has at most %(n)s labels.") % {"n": MOST_LABELS}, _("Leave some out."))
    return dict(labels)


def find_owner(name: str) -> User | None:
    """'' is nobody. Raises Invalid."""
    if not (name := name.strip()[:150]):
        return None
    found = User.objects.filter(username=name, is_active=True).first()
    if found is None:
        raise Invalid(_("There is no user called %(name)s.") % {"name": name}, _("Use the name of a user."))
    return found


def read_drain(text: str) -> int:
    """Minutes as typed, into seconds; a half is 30 s. Raises Invalid."""
    try:
        minutes = float(text.strip().replace(",", ".") or "10")
    except ValueError:
        minutes = -1
    if not 0 <= minutes <= 1440:
        raise Invalid(_("Running requests get 0 to 1440 minutes."), _("Give such a number."), code="invalid_drain")
    return round(60 * minutes)
