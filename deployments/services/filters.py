"""Filters of the fleet page that people keep under a name, for themselves or for everybody."""

from urllib.parse import parse_qsl, urlencode

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.utils.translation import gettext as _

from console import audit
from console.errors import Conflict, Invalid, NotAllowed, NotFound
from console.models import User
from deployments.models import SavedFilter

NAMES = ("metric", "group", "sort", "view", "fleet", "show", "find")  # what an address of the fleet page may say
MOST = 50  # of one user
MAX_NAME = 60
MAX_QUERY = 500


def visible_to(user: User) -> QuerySet[SavedFilter]:
    """One's own and those that others share, with their owners at hand, by name."""
    return SavedFilter.objects.filter(Q(user=user) | Q(shared=True)).select_related("user").order_by("name", "pk")


def clean_query(query: str) -> str:
    """The address without what the fleet page does not know. Raises Invalid."""
    pairs = [(name, value) for name, value in parse_qsl(query.lstrip("?")) if name in NAMES and value]
    cleaned = urlencode(pairs)
    if len(cleaned) > MAX_QUERY:
        raise Invalid(_("The filter is longer than 500 characters."), _("Shorten it."), code="too_long")
    return cleaned


def save(name: str, query: str, *, shared: bool, by: User) -> SavedFilter:
    """Keep a filter; a known name of one's own is given the new filter. Raises Invalid, Conflict, NotAllowed."""
    name = " ".join(name.split())
    if not 0 < len(name) <= MAX_NAME or not name.isprintable():
        raise Invalid(
            _("A filter needs a name of at most %(most)s characters.") % {"most": MAX_NAME},
            _("Give it one."),
            code="bad_name",
        )
    if shared and not by.may("operator"):
        raise NotAllowed(_("Only an operator may share a filter."), _("Keep it for yourself."))
    query = clean_query(query)
    known = SavedFilter.objects.filter(user=by, name=name).first()
    if known is None and SavedFilter.objects.filter(user=by).count() >= MOST:
        raise Conflict(
            _("You keep %(most)s filters already.") % {"most": MOST}, _("Delete one first."), code="too_many"
        )
    try:
        with transaction.atomic():
            row, _made = SavedFilter.objects.update_or_create(
                user=by, name=name, defaults={"query": query, "shared": shared}
            )
            audit.record(by, "filter.saved", row, name=name, shared=shared)
    except IntegrityError:  # saved twice in one moment
        row = SavedFilter.objects.get(user=by, name=name)
    return row


def delete(pk: int, *, by: User) -> str:
    """Forget one of one's own, or, as an administrator, a shared one; its name. Raises NotFound."""
    rows = SavedFilter.objects.filter(pk=pk)
    row = rows.filter(Q(user=by) | Q(shared=True)).first() if by.may("administrator") else rows.filter(user=by).first()
    if row is None:
        raise NotFound(_("You keep no such filter."), _("Reload the page to see which there are."))
    with transaction.atomic():
        audit.record(by, "filter.deleted", row, name=row.name)
        row.delete()
    return row.name
