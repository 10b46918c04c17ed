"""What a reader may do about a diagnosis at once: the form of a job, filled in as far as that is known, or the page of
remedies, where a change of settings is worked out. Nothing that the reader may not do."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from django.urls import reverse
from django.utils.translation import gettext as _

from console.language import pick
from console.models import User
from deployments.models import Replica
from deployments.services import filling, jobs, remedying
from deployments.views import remedy_links
from monitoring.models import Diagnosis
from monitoring.services import replica_diagnosing


class Button(NamedTuple):
    address: str
    label: str


class Known(NamedTuple):
    """What is known where it went wrong."""

    server: str
    params: Mapping[str, Any]
    stack: str
    replica: Replica | None
    offers: frozenset[str] | None = None  # keys of what the page of remedies can work out; None: not asked


def known_of(diagnosis: Diagnosis) -> Known:
    """Needs attempt with job and server, or piece with replica and deployment, at hand."""
    npu = _npu_of(diagnosis)
    if diagnosis.piece is not None:
        replica = diagnosis.piece.replica
        params = {**remedy_links.of_replica(replica), **npu}
        return Known(diagnosis.server, params, diagnosis.stack, replica)
    assert diagnosis.attempt is not None
    job = diagnosis.attempt.job
    asked = {**npu, **filling.asked(job)}
    pk = job.params.get("replica")
    rows = Replica.objects.select_related("deployment")
    replica_of = rows.filter(pk=pk).first() if isinstance(pk, int) else None
    if replica_of is not None:
        asked = {**asked, **remedy_links.of_replica(replica_of)}
    return Known(job.server.name, asked, diagnosis.stack, replica_of)


def _npu_of(diagnosis: Diagnosis) -> dict[str, str]:
    """The NPU that its best finding is about, by its bus id, where that is one of this server."""
    told = diagnosis.findings[0].get("explained", []) if diagnosis.findings else []
    found = (one["npu"] for one in told if one.get("npu") and one.get("server") == diagnosis.server)
    return {"npu": npu} if (npu := next(found, "")) else {}


def button(remedy: Mapping[str, Any], key: str, known: Known, reader: User) -> Button | None:
    """`key` is the remedy's place on the page of remedies."""
    if not reader.may("operator"):
        return None
    if remedy.get("job"):
        return _job(str(remedy["job"]), known, reader)
    replica, names = known.replica, remedy.get("change") or []
    if replica is None or known.offers is None or not (remedy.get("way") or names):
        return None
    key = str(remedy.get("way") or key)
    if key in known.offers:
        page = reverse("deployments:replica-remedy", args=[replica.deployment.name, replica.n])
        return Button(f"{page}#{key}", _("See the sum and change it"))
    if names and not replica_diagnosing.way_of(remedy):
        change = reverse("deployments:deployment-change", args=[replica.deployment.name])
        return Button(change, _("Change the settings"))
    return None


def with_offers(known: Known) -> Known:
    """With what can be worked out for its replica, which asks the database: for pages of one log."""
    replica = known.replica
    if replica is None or replica.deployment.deleted_at is not None:
        return known
    row = remedying.find_replica(replica.deployment, replica.n)
    if not remedying.is_current(row):
        return known
    shown = remedying.shown(row)
    return known._replace(offers=frozenset(offer.key for one in shown for offer in one.offers if offer.change))


def _job(kind: str, known: Known, reader: User) -> Button | None:
    address = remedy_links.job_address(kind, known.server, known.params, reader, stack=known.stack)
    return Button(address, pick(jobs.find_kind(kind).TITLE)) if address else None
