"""What people say about servers: rack, site, labels, names, roles of addresses, notes; one by one, in bulk, and back.

Everything that is changed here stands in the history and can be taken back from there.
"""

import hashlib
import ipaddress
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from console import audit
from console.errors import Conflict, Invalid, NotFound
from console.models import User
from deployments.models import Server, ServerChange
from deployments.row_locks import lock_server, lock_servers
from deployments.services import history, jobs

EDITABLE = ("display_name", "site", "rack", "labels", "address_roles", "notes")
ROLES = ("management", "service", "bmc")
OURS = ("demo", "demo_holder")  # labels that the demo fleet sets; nobody edits them
LIMITS = {"display_name": 100, "site": 63, "rack": 63, "notes": 4000}
LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_./-]{0,61}[A-Za-z0-9])?")
MOST_LABELS = 40
MOST_VALUE = 100
MOST_SERVERS = 2000
AT_ONCE = 100  # rows of one statement


def labels_of(server: Server) -> dict[str, str]:
    """The labels that people set."""
    return {name: str(value) for name, value in server.labels.items() if name not in OURS}


def label_words(labels: Mapping[str, Any]) -> str:
    """ "env=prod team=nlp", as forms and filters write it."""
    if not labels:  # asked for a thousand servers a page
        return ""
    return " ".join(sorted([f"{name}={value}" for name, value in labels.items() if name not in OURS]))


def values_of(server: Server) -> dict[str, Any]:
    """What may be edited, as it is."""
    return {name: labels_of(server) if name == "labels" else getattr(server, name) for name in EDITABLE}


def version_of(server: Server) -> str:
    """Changes whenever something editable does; the ETag of REST and the hidden field of the form."""
    return hashlib.sha256(json.dumps(values_of(server), sort_keys=True).encode()).hexdigest()[:16]


# ---------- what was typed ----------


def read_labels(text: str) -> dict[str, str]:
    """{"env": "prod"} of "env=prod, team=nlp". Raises Invalid."""
    labels = {}
    for word in text.replace(",", " ").split():
        name, equals, value = word.partition("=")
        if not name or not equals or not value:
            raise _bad_label(word)
        labels[name] = value
    return clean_labels(labels)


def clean_labels(labels: Any) -> dict[str, str]:
    """Raises Invalid for what is no set of labels."""
    if not isinstance(labels, Mapping):
        raise _bad_label(str(labels))
    for name, value in labels.items():
        if not isinstance(name, str) or not LABEL.fullmatch(name) or name in OURS:
            raise _bad_label(str(name))
        if not isinstance(value, str) or not 0 < len(value) <= MOST_VALUE or not value.isprintable() or " " in value:
            raise _bad_label(f"{name}={value}")
    if len(labels) > MOST_LABELS:
        raise Invalid(
            _("A server has at most %(most)s labels.") % {"most": MOST_LABELS}, _("Take some away."), code="too_many"
        )
    return dict(labels)


def _bad_label(word: str) -> Invalid:
    return Invalid(
        _("“%(word)s” is no label.") % {"word": word[:60]},
        _("Write labels as name=value, with blanks or commas between them."),
        code="bad_label",
    )


def clean_roles(roles: Any) -> dict[str, str]:
    """{address: role}, addresses as Python writes them. Raises Invalid."""
    if not isinstance(roles, Mapping) or len(roles) > 64:
        raise Invalid(
            _("The roles of addresses are no list of at most 64."), _("Send {address: role}."), code="bad_roles"
        )
    found = {}
    for address, role in roles.items():
        try:
            known = str(ipaddress.ip_address(str(address).strip()))
        except ValueError:
            raise Invalid(
                _("“%(address)s” is no address.") % {"address": str(address)[:60]},
                _("Write one such as 192.0.2.7 or 2001:db8::7."),
                code="bad_address",
            ) from None
        if role not in ROLES:
            raise Invalid(
                _("“%(role)s” is no role of an address.") % {"role": str(role)[:40]},
                _("Use one of: %(words)s.") % {"words": ", ".join(ROLES)},
                code="bad_role",
            )
        found[known] = role
    return found


def clean(values: Mapping[str, Any]) -> dict[str, Any]:
    """Editable values such as can be stored. Raises Invalid."""
    cleaned: dict[str, Any] = {}
    for name, value in values.items():
        if name == "labels":
            cleaned[name] = clean_labels(value)
        elif name == "address_roles":
            cleaned[name] = clean_roles(value)
        elif name in LIMITS:
            cleaned[name] = _clean_text(name, value)
        else:
            raise Invalid(
                _("“%(name)s” cannot be edited.") % {"name": name[:40]},
                _("Use one of: %(words)s.") % {"words": ", ".join(EDITABLE)},
                code="not_editable",
            )
    return cleaned


def _clean_text(name: str, value: Any) -> str:
    text = value.replace("\r\n", "\n").strip() if isinstance(value, str) else None
    if (
        text is None
        or len(text) > LIMITS[name]
        or not text.replace("\n", "" if name == "notes" else "\n").isprintable()
    ):
        raise Invalid(
            _("%(field)s is not a text of at most %(most)s characters.")
            % {"field": history.title(name), "most": LIMITS[name]},
            _("Shorten it, and leave control characters out."),
            code="bad_text",
        )
    return text


# ---------- one server ----------


def edit(
    server: Server, values: Mapping[str, Any], *, by: User, ticket: str = "", version: str | None = None
) -> Server:
    """Change what `values` names. `version` is what the editor saw: Conflict (412) where it is no longer so.

    Raises NotAllowed, Invalid.
    """
    jobs.check_may_operate(by)
    jobs.check_ticket(ticket)
    cleaned = clean(values)
    with transaction.atomic():
        row = lock_server(server.pk)
        if version is not None and version != version_of(row):
            raise Conflict(
                _("%(name)s was changed by somebody else in the meantime.") % {"name": row.name},
                _("Look at it again, then make your change once more."),
                code="changed_meanwhile",
                status=412,
            )
        _write([(row, cleaned)], by=by, ticket=ticket, change_set=history.new_set())
    return row


def _write(wanted: Iterable[tuple[Server, Mapping[str, Any]]], *, by: User, ticket: str, change_set: str) -> int:
    """Write what differs on these servers (server, values), with history and an audit entry for each; how many servers
    that were. Within a transaction."""
    rows: list[Server] = []
    changes: list[ServerChange] = []
    for row, values in wanted:
        before = values_of(row)
        changed = history.differences(before, {**before, **values}, values)
        if not changed:
            continue
        for name, (old, new) in changed.items():
            kept = {key: value for key, value in row.labels.items() if key in OURS}
            setattr(row, name, {**kept, **new} if name == "labels" else new)
            changes.append(history.change(row, name, old, new, by=by, ticket=ticket, change_set=change_set))
        audit.record(by, "server.edited", row, fields=sorted(changed), change_set=change_set)
        rows.append(row)
    if rows:
        Server.objects.bulk_update(rows, sorted({change.field for change in changes}), batch_size=AT_ONCE)
        ServerChange.objects.bulk_create(changes, batch_size=500)
    return len(rows)


# ---------- many servers ----------


@dataclass(frozen=True)
class Bulk:
    """What is changed on every server of a selection; None leaves a value as it is, '' empties it."""

    add_labels: dict[str, str] = field(default_factory=dict)
    remove_labels: list[str] = field(default_factory=list)
    site: str | None = None
    rack: str | None = None

    def values_for(self, server: Server) -> dict[str, Any]:
        labels = {name: value for name, value in labels_of(server).items() if name not in self.remove_labels}
        wanted = {"labels": {**labels, **self.add_labels}, "site": self.site, "rack": self.rack}
        return {name: value for name, value in wanted.items() if value is not None}


@dataclass(frozen=True)
class Hit:
    """One server and what would change there: [(field, before, after)]."""

    server: Server
    changes: list[tuple[str, Any, Any]]


def clean_bulk(bulk: Bulk) -> Bulk:
    """Raises Invalid, also for a change of nothing."""
    texts = clean({name: value for name, value in (("site", bulk.site), ("rack", bulk.rack)) if value is not None})
    removed = [name.strip() for name in bulk.remove_labels if name.strip()]
    for name in removed:
        if not LABEL.fullmatch(name):
            raise _bad_label(name)
    cleaned = Bulk(clean_labels(bulk.add_labels), removed, texts.get("site"), texts.get("rack"))
    if cleaned == Bulk():
        raise Invalid(
            _("Nothing was chosen to be changed."),
            _("Name a label to add or remove, a rack or a site."),
            code="nothing",
        )
    return cleaned


def plan(servers: Iterable[Server], bulk: Bulk) -> list[Hit]:
    """What `bulk` would do to each server; those where nothing changes have no changes."""
    hits = []
    for server in servers:
        wanted = bulk.values_for(server)
        now = {name: labels_of(server) if name == "labels" else getattr(server, name) for name in wanted}
        found = history.differences(now, wanted, wanted)
        hits.append(Hit(server, [(name, old, new) for name, (old, new) in found.items()]))
    return hits


def edit_many(servers: Sequence[Server], bulk: Bulk, *, by: User, ticket: str = "") -> tuple[str, int]:
    """Do it: (name of the change set, servers changed). All or nothing. Raises NotAllowed, Invalid."""
    jobs.check_may_operate(by)
    jobs.check_ticket(ticket)
    bulk = clean_bulk(bulk)
    if len(servers) > MOST_SERVERS:
        raise Invalid(
            _("%(n)s servers are more than can be edited at once (%(most)s).")
            % {"n": len(servers), "most": MOST_SERVERS},
            _("Narrow the selection."),
            code="too_many",
        )
    change_set = history.new_set()
    with transaction.atomic():
        rows = lock_servers(server.pk for server in servers).values()
        wanted = [(row, bulk.values_for(row)) for row in rows]
        for _row, values in wanted:
            clean_labels(values["labels"])
        changed = _write(wanted, by=by, ticket=ticket, change_set=change_set)
    return change_set, changed


# ---------- back ----------


def undo(change_set: str, *, by: User, ticket: str = "") -> tuple[int, list[str]]:
    """Take the edits of a change set back: (how many, sentences about those that were changed again since).

    Raises NotAllowed, NotFound, Conflict where none of it can be taken back.
    """
    jobs.check_may_operate(by)
    jobs.check_ticket(ticket)
    with transaction.atomic():
        rows = list(
            ServerChange.objects.select_for_update(of=("self",))
            .filter(change_set=change_set, field__in=EDITABLE)
            .order_by("pk")
        )
        if not rows:
            raise NotFound(_("There is no such change to take back."), _("Choose one in the history of a server."))
        done, left = _take_back([row for row in rows if row.undone_at is None], by, ticket)
        if not done:
            raise Conflict(
                _("Nothing was taken back: what was changed then has been changed again, or is back already."),
                _("Edit the server instead."),
                code="changed_since",
            )
    return done, left


def _take_back(rows: Sequence[ServerChange], by: User, ticket: str) -> tuple[int, list[str]]:
    """Written together, in as few statements as the edit itself."""
    servers = lock_servers([row.server_id for row in rows])
    back: dict[int, dict[str, Any]] = {pk: {} for pk in servers}
    done, left = [], []
    for row in rows:
        server = servers[row.server_id]
        if {**values_of(server), **back[server.pk]}[row.field] != row.after:
            left.append(
                _("%(field)s of %(server)s has been changed since.")
                % {"field": history.title(row.field), "server": server.name}
            )
            continue
        back[server.pk][row.field] = row.before
        done.append(row.pk)
    _write([(servers[pk], values) for pk, values in back.items()], by=by, ticket=ticket, change_set=history.new_set())
    ServerChange.objects.filter(pk__in=done).update(undone_at=timezone.now())
    return len(done), left


def guessed_roles(server: Server) -> list[dict[str, str]]:
    """[{address, interface, role, source}] of every address that is known: set by somebody, else guessed, else ''.

    The address of the interface that has the default route is the management address; others that reach other
    machines are service addresses. BMC addresses no agent sees: somebody sets them.
    """
    found = server.facts.get("addresses")
    rows = [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []
    told, seen = server.address_roles, set()
    made = []
    for row in rows:
        address, interface = str(row.get("address", "")), str(row.get("interface", ""))
        guess = "management" if row.get("default") else "" if row.get("local") else "service"
        seen.add(address)
        role = told.get(address, guess)
        source = "set" if address in told else "guess" if role else ""
        made.append({"address": address, "interface": interface, "role": role, "source": source})
    made += [
        {"address": address, "interface": "", "role": role, "source": "set"}
        for address, role in sorted(told.items())
        if address not in seen
    ]
    return made
