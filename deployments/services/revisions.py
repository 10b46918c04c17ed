"""Revisions: any change is a new one, and going back means going to an earlier one."""

from collections.abc import Mapping
from typing import Any

from django.db.models import Max
from django.utils import timezone
from django.utils.translation import gettext as _

from console.errors import Conflict, Invalid
from console.language import pick
from console.models import User
from deployments.models import GONE, Artifact, Deployment, Replica, ReplicaState, Revision
from deployments.services import deployments, placement, revision_checks, rollout
from deployments.serving import settings as serving_settings

HOWS = (rollout.IN_PLACE, rollout.SURGE)


def make(
    deployment: Deployment, settings: Mapping[str, Any], *, artifact: Artifact | None = None, by: User, note: str = "",
    how: str = rollout.IN_PLACE, unproved: str = "",
) -> Revision:  # fmt: skip
    """A new revision with the whole of these settings, rolled out from here on. Raises ConsoleError, in words also
    where nothing would change."""
    check_how(how)
    revision_checks.check_note(note)
    with deployments.changing(deployment, by, "deployment.revised", note=note) as row:
        deployments.check_not_moving(row)
        before = row.revision
        model = artifact or _model_of(before)
        kept = _checked(before, model, settings, unproved)
        n = (row.revisions.aggregate(last=Max("n"))["last"] or 0) + 1
        made = revision_checks.new(row, n, model, kept, note or unproved, by)
        row.details.update({"revision": n, "how": how} | ({"unproved": unproved} if unproved else {}))  # type: ignore[attr-defined]
        _go_to(row, made, "revision", by=by, how=how)
    return made


def back(deployment: Deployment, n: int, *, by: User, how: str = rollout.IN_PLACE) -> Revision:
    """Go to an earlier revision, also in the middle of a rollout, which ends by it. Raises ConsoleError."""
    check_how(how)
    with deployments.changing(deployment, by, "deployment.rolled_back", revision=n) as row:
        wanted = deployments.revision_of(row, n)
        _check_back(row, wanted)
        _go_to(row, wanted, "rollback", by=by, how=how)
    return wanted


def abort(deployment: Deployment, *, by: User) -> Revision:
    """End the rollout that is under way by going back to where it came from. Raises ConsoleError."""
    kept = Deployment.objects.get(pk=deployment.pk).rollout or {}
    if not kept.get("from") or kept.get("phase") == "back":
        raise Conflict(
            _("There is no rollout of “%(name)s” to go back from.") % {"name": deployment.name},
            _("Reload the page."),
            code="no_rollout",
        )
    return back(deployment, kept["from"], by=by)


def _go_to(row: Deployment, to: Revision, why: str, *, by: User, how: str) -> None:
    before = row.revision
    there = row.replica_set.exclude(state__in=(*GONE, ReplicaState.DRAINING)).exclude(revision=to).count()
    row.revision, row.tried_at, row.reason = to, timezone.now(), None
    row.rollout = rollout.begin(row, to, why, by=by, how=how, of=there, before=before) if there and row.wished else None


def _model_of(before: Revision | None) -> Artifact:
    if before is None or before.artifact is None:
        raise Conflict(
            _("The model of the present revision is not known any more."), _("Choose a model."), code="model_gone"
        )
    return before.artifact


def _checked(before: Revision | None, model: Artifact, settings: Mapping[str, Any], unproved: str) -> dict[str, Any]:
    """The settings as kept. Raises Invalid, Conflict."""
    kept = revision_checks.settings(settings, model)
    same_model = before is not None and before.fingerprint == model.fingerprint
    if not same_model:
        revision_checks.gate(model, unproved)
    if before is not None and same_model and not serving_settings.diff(before.settings, kept):
        raise Conflict(
            _("Nothing has changed, so no revision was made."), _("Change a setting or the model."), code="unchanged"
        )
    return kept


def _check_back(row: Deployment, wanted: Revision) -> None:
    if row.revision_id == wanted.pk and not (row.rollout and row.rollout["phase"] == "stuck"):
        raise Conflict(
            _("Revision %(n)s is the present one already.") % {"n": wanted.n},
            _("Choose another one."),
            code="already_there",
        )
    revision_checks.check_there(wanted)


def check_how(how: str) -> None:
    """Raises Invalid."""
    if how not in HOWS:
        raise Invalid(
            _("A rollout cannot go “%(how)s”.") % {"how": str(how)[:20]},
            _("Use one of: %(names)s.") % {"names": ", ".join(HOWS)},
            code="invalid_how",
        )


# ---------- what it would do ----------


def plan(
    deployment: Deployment, settings: Mapping[str, Any], *, artifact: Artifact | None = None,
    how: str = rollout.IN_PLACE, unproved: str = "",
) -> dict[str, Any]:  # fmt: skip
    """What `make` would do, in the shape of `effects`, with "changes"; it changes nothing. Raises as `make` does."""
    check_how(how)
    deployments.check_not_moving(deployment)
    model = artifact or _model_of(deployment.revision)
    kept = _checked(deployment.revision, model, settings, unproved)
    before = deployment.revision
    return {**effects(deployment, kept, model, how), "changes": changes(before, kept, model)}


def plan_back(deployment: Deployment, n: int, *, how: str = rollout.IN_PLACE) -> dict[str, Any]:
    """The same of `back`."""
    check_how(how)
    wanted = deployments.revision_of(deployment, n)
    _check_back(deployment, wanted)
    assert wanted.artifact is not None
    found = changes(deployment.revision, wanted.settings, wanted.artifact)
    return {**effects(deployment, wanted.settings, wanted.artifact, how, wanted), "changes": found}


def effects(
    deployment: Deployment, kept: Mapping[str, Any], model: Artifact, how: str, to: Revision | None = None
) -> dict[str, Any]:
    """{"restarts": [{n, server, npus, state}], "how", "surge": whether there is room for it, "no_service": whether
    nobody answers meanwhile, "away_s": for how long, as the last start took, None where nothing started yet}."""
    there = deployment.replica_set.exclude(state__in=(*GONE, ReplicaState.DRAINING)).select_related("server")
    rows = [row for row in there.order_by("n") if to is None or row.revision_id != to.pk]
    room = any(
        one.fits
        for one in placement.look(
            serving_settings.read(kept), model, servers=deployment.servers or None, spread=deployment.spread,
            deployment=deployment,
        )
    )  # fmt: skip
    alone = len(rows) == 1 and not (how == rollout.SURGE and room)
    return {
        "restarts": [which(row) for row in rows] if deployment.wished else [],
        "how": how if room else rollout.IN_PLACE,
        "surge": room,
        "no_service": alone and bool(deployment.wished),
        "away_s": last_start_s(deployment) if alone else 0.0,
    }


def which(row: Replica) -> dict[str, Any]:
    """A replica as a plan names it."""
    return {"n": row.n, "server": row.server.name, "npus": row.npus, "state": row.state}


def last_start_s(deployment: Deployment) -> float | None:
    """How long the last replica that became ready took for it, in seconds; None where none has yet."""
    row = deployment.replica_set.exclude(ready_at=None).select_related("serve_job").order_by("-ready_at").first()
    if row is None or row.ready_at is None:
        return None
    began = row.serve_job.created_at if row.serve_job else row.created_at
    took = (row.ready_at - began).total_seconds()
    return round(took, 1) if took > 0 else None


def changes(before: Revision | None, kept: Mapping[str, Any], model: Artifact) -> list[dict[str, str]]:
    """[{field, label, before, after}] against that revision, the model first."""
    made = []
    if before is None or before.fingerprint != model.fingerprint:
        name = before.artifact.name if before and before.artifact else ""
        made.append({"field": "artifact", "label": _("Model"), "before": name, "after": model.name})
    found = serving_settings.diff(before.settings if before else {}, dict(kept))
    return made + [
        {"field": one.field, "label": pick(one.label), "before": one.before, "after": one.after} for one in found
    ]


def history(deployment: Deployment) -> list[dict[str, Any]]:
    """Every revision, newest first, each with what it changed against the one before it. One query."""
    from deployments.services import deployment_json

    rows = list(deployment.revisions.select_related("artifact", "by").order_by("n"))
    made = []
    for before, row in zip([None, *rows], rows, strict=False):
        found = changes(before, row.settings, row.artifact) if before and row.artifact else []
        made.append({**deployment_json.revision(row), "changes": found, "present": row.pk == deployment.revision_id})
    return made[::-1]
