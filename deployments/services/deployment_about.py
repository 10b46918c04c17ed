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
    labels, owner = read_labels(given.get("labels", "")), find_owner(given.get("owner", ""))
    values: dict[str, Any] = {name: given.get(name, "").replace("\0", "").strip() for name in ("title", "notes")}
    values["drain_s"] = read_drain(given.get("drain", ""))
    with transaction.atomic():
        deployments.edit(deployment, values, by=by)
        with deployments.changing(deployment, by, "deployment.labelled", paused_too=True, labels=labels) as row:
            row.labels, row.owner = labels, owner
            row.details["owner"] = owner.username if owner else None  # type: ignore[attr-defined]


def read_labels(text: str) -> dict[str, str]:
    """`key=value` or `key`, one in a line or with commas between. Raises Invalid."""
    words = [word.strip() for word in re.split(r"[\n,]", text.replace("\0", "")) if word.strip()]
    made = {}
    for word in words:
        key, _sign, value = word.partition("=")
        if not KEY.fullmatch(key.strip()) or len(value.strip()) > MOST_VALUE:
            raise Invalid(
                _("“%(label)s” is no label.") % {"label": word[:80]},
                _("Write key or key=value: letters, digits and . _ - / in the key, 63 characters at most."),
                code="invalid_label",
            )
        made[key.strip()] = value.strip()
    if len(made) > MOST_LABELS:
        raise Invalid(_("A deployment has at most %(n)s labels.") % {"n": MOST_LABELS}, _("Leave some out."))
    return made


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
