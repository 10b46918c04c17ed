"""What helps a replica that failed: its log is read when a piece of it ended badly, and remedies become revisions."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from console.errors import Conflict, NotFound
from console.language import pick
from console.models import User
from deployments.models import Deployment, EngineLog, Replica, Revision
from deployments.services import logs, reconcile, remedy_asking, replica_causes, revision_checks, revisions
from deployments.serving import findings, remedies
from deployments.serving import settings as serving_settings
from deployments.serving.failures import Remedy
from deployments.serving.findings import Finding
from deployments.serving.remedies import Offer
from deployments.serving.remedy_case import Case
from deployments.steps import BadParams, Text
from monitoring import diagnoses

MOST_LINES = 6000  # of the end of a piece: each start of an engine has one of its own
TEXTS = ("o", "e", "s", "p", "+")  # kinds of records that an engine has printed
MOST_CONTEXT = 10**8


@dataclass(frozen=True)
class Shown:
    """One finding with what can be done; `said` is where it stands in the log."""

    finding: Finding
    offers: list[Offer]
    piece: str


# ---------- reading ----------


def run_asked(replica: str) -> int:
    """What the console's worker does: read what was asked for last of this replica (`e12`)."""
    asked = remedy_asking.take(replica)
    return run(*asked) if asked else 0


def run(log_pk: str, died: bool) -> int:
    """Read the end of a piece and keep what it says; how many findings there are."""
    log = EngineLog.objects.select_related("replica").filter(pk=log_pk).first()
    if log is None:
        return 0
    first = max(1, log.next_line - MOST_LINES)
    found = look(log.replica, _texts(log, first), died=died, first=first, piece=log.pk)
    replica_causes.tell(log, log.replica.findings if found else [])
    if found:
        reconcile.tell(log.replica.deployment_id)
    return len(found)


def _texts(log: EngineLog, first: int) -> Iterable[str]:
    """Each record as a line, '' for one that no engine has printed: so that numbers are those of the log."""
    at = first - 1
    while (part := logs.after(log, at)).n:
        for record in part.text.encode().split(b"\n"):
            _at, kind, text = logs.split(record)
            yield text if kind in TEXTS else ""
        at = part.first + part.n - 1


def look(
    replica: Replica, lines: Iterable[str], *, died: bool = True, first: int = 1, piece: str = ""
) -> list[Finding]:
    """Fill `Replica.findings` with what these lines say, best first; where they say nothing, it stays as it is."""
    said = list(lines)
    found = findings.look(said, died=died)
    if died and all(one.id in findings.NAMELESS for one in found):
        found = _diagnosed(said) or found
    if found:
        kept = [{**one.as_json(), "line": one.line + first - 1, "piece": piece} for one in found]
        Replica.objects.filter(pk=replica.pk).update(findings=kept)
        replica.findings = kept
    return found


def _diagnosed(lines: list[str]) -> list[Finding]:
    """What the rules for all logs know (monitoring/diagnoses), of which servers have none: error codes of CANN most of
    all."""
    found = []
    for one in diagnoses.named(diagnoses.diagnose("\n".join(line.rstrip("\r\n") for line in lines)))[: findings.MOST]:
        helps = tuple(
            Remedy(Text(**one.words(each.words)), job={"kind": each.job, "params": {}} if each.job else None)
            for each in one.rule.remedies
        )
        text = one.text[: findings.MOST_SHOWN]
        found.append(Finding(one.rule.id, one.line, text, Text(**one.words(one.rule.cause)), helps))
    return found


# ---------- what to do ----------


def find_replica(deployment: Deployment, n: int) -> Replica:
    """Raises NotFound."""
    rows = deployment.replica_set.select_related("server", "revision__artifact", "deployment__revision")
    row = rows.filter(n=n).first() if 0 < n < 2**31 else None
    if row is None:
        raise NotFound(
            _("%(name)s has no replica %(n)s.") % {"name": deployment.name, "n": n},
            _("Choose one on the page of the deployment."),
            code="no_replica",
        )
    return row


def case_of(replica: Replica, data: dict[str, Any]) -> Case | None:
    """What remedies are worked out from, with `data` as the settings; None where those cannot be read any more."""
    try:
        read = serving_settings.read(data)
    except BadParams:
        return None
    artifact = replica.revision.artifact
    npus = list(replica.server.npus.all())
    totals = [npu.memory_total_mb for npu in npus if npu.memory_total_mb]
    facts = replica.engine.get("facts") if isinstance(replica.engine, dict) else None
    tokens = (facts or {}).get("kv_tokens")
    return Case(
        data,
        read,
        revision_checks.spec_of(artifact) if artifact else None,
        float(min(totals)) if totals else None,
        len(npus),
        tokens if isinstance(tokens, int) and 0 < tokens < MOST_CONTEXT else None,
    )


def shown(replica: Replica) -> list[Shown]:
    """Its findings with what can be done, for the settings that it ran with."""
    case = case_of(replica, dict(replica.revision.settings))
    found = []
    for row in replica_causes.findings(replica):
        finding = remedies.from_json(row) if isinstance(row, dict) else None
        if finding is not None:
            found.append(Shown(finding, remedies.offers(finding, case) if case else [], str(row.get("piece", ""))))
    return found


def offer_of(replica: Replica, key: str) -> Offer:
    """The one that a form names, which must change settings. Raises NotFound."""
    every = (offer for one in shown(replica) for offer in one.offers)
    offer = next((one for one in every if one.key == key and one.change), None)
    if offer is None:
        raise NotFound(
            _("This remedy is not offered any more."),
            _("Reload the page and choose from what it shows."),
            code="no_remedy",
        )
    return offer


def is_current(replica: Replica) -> bool:
    """Whether it ran with the revision that the deployment has now."""
    return replica.revision_id == replica.deployment.revision_id


def changes(replica: Replica, offer: Offer) -> list[serving_settings.Change]:
    before = dict(replica.revision.settings)
    return serving_settings.diff(before, offer.applied(before))


def apply(replica: Replica, key: str, *, by: User) -> Revision:
    """A new revision with this remedy, rolled out from here on. Raises Conflict, NotFound and what a revision does."""
    offer = offer_of(replica, key)
    if not is_current(replica):
        raise Conflict(
            _("Replica %(n)s ran with revision %(old)s, and the deployment has another one by now.")
            % {"n": replica.n, "old": replica.revision.n},
            _("See whether the present revision works before changing it."),
            code="other_revision",
        )
    note = _("Remedy for replica %(n)s: %(what)s") % {"n": replica.n, "what": pick(offer.text)}
    applied = offer.applied(dict(replica.revision.settings))
    return revisions.make(replica.deployment, applied, by=by, note=note[:500])


def as_json(replica: Replica) -> dict[str, Any]:
    rows = [
        {
            "id": one.finding.id,
            "line": one.finding.line,
            "log": one.piece or None,
            "text": one.finding.text,
            "cause": pick(one.finding.cause),
            "remedies": [_offer_json(offer) for offer in one.offers],
        }
        for one in shown(replica)
    ]
    return {"deployment": replica.deployment.name, "replica": replica.n, "revision": replica.revision.n,
            "current": is_current(replica), "findings": rows}  # fmt: skip


def _offer_json(offer: Offer) -> dict[str, Any]:
    return {"key": offer.key, "text": pick(offer.text), "change": dict(offer.change),
            "numbers": [pick(one) for one in offer.numbers], "job": offer.job}  # fmt: skip
