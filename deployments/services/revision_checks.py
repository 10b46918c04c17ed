"""What has to be right before there is a revision: settings, the model and its copies, whether it was proved."""

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _

from console import audit
from console.errors import Conflict, Invalid
from console.language import pick
from console.models import User
from deployments.models import Artifact, Deployment, Revision
from deployments.services import model_gate
from deployments.serving import settings as serving_settings
from deployments.serving.spec import Spec, Unknown, from_summary
from deployments.steps import BadParams

MOST_NOTE = 500


def settings(given: Mapping[str, Any], artifact: Artifact, family: str = "") -> dict[str, Any]:
    """The settings as they are kept. Raises Invalid that names each field which is wrong."""
    try:
        read = serving_settings.read(given)
    except BadParams as error:
        raise _invalid(error.problems) from error
    if found := serving_settings.problems(read, spec_of(artifact), family):
        raise _invalid(found)
    return serving_settings.as_json(read)


def _invalid(problems: Any) -> Invalid:
    told = "; ".join(f"{name[:60]}: {pick(text)}" for name, text in problems[:8])
    return Invalid(
        _("The settings do not fit: %(problems)s.") % {"problems": told}, _("Mend them and try again."),
        code="invalid_settings",
    )  # fmt: skip


def spec_of(artifact: Artifact) -> Spec | None:
    """What arithmetic needs of the model; None where its files do not say."""
    try:
        return from_summary(
            artifact.summary, name=artifact.name, weight_bytes=artifact.summary.get("weight_bytes") or 0
        )
    except (Unknown, KeyError, TypeError, ValueError):
        return None


def gate(artifact: Artifact, unproved: str) -> None:
    """Raises Conflict for a model that was made of another one and not proved, unless somebody says why."""
    state = model_gate.state(artifact)
    if state not in ("failed", "not_evaluated") or unproved.strip():
        return
    failed = _("The model “%(name)s” failed its evaluation.") % {"name": artifact.name}
    raise Conflict(
        failed if state == "failed" else _("The model “%(name)s” was never evaluated.") % {"name": artifact.name},
        _("Evaluate it first, or give a reason for serving it all the same."),
        code="model_not_proved",
    )


def check_there(revision: Revision) -> None:
    """Raises Conflict where the content that the revision names is nowhere any more: other files are another model."""
    artifact = revision.artifact
    if artifact is None or artifact.fingerprint != revision.fingerprint:
        raise Conflict(
            _("The model of revision %(n)s is no longer what it was.") % {"n": revision.n},
            _("Make a new revision with a model that is there."),
            code="model_changed",
        )
    if not artifact.places.present().exists():
        raise Conflict(
            _("No server has a copy of “%(name)s” any more.") % {"name": artifact.name},
            _("Bring it to a server again, or make a revision with another model."),
            code="model_gone",
        )


def check_note(note: str) -> None:
    """Raises Invalid."""
    if len(note) > MOST_NOTE:
        raise Invalid(_("The note is longer than %(most)s characters.") % {"most": MOST_NOTE}, _("Shorten it."))


def new(deployment: Deployment, n: int, artifact: Artifact, kept: dict[str, Any], note: str, by: User) -> Revision:
    """The revision, which is not yet that of the deployment. Within a transaction of the caller. That engines begin to
    log what users write is in the audit log by a name of its own."""
    before = deployment.revision.settings if deployment.revision else {}
    if kept.get("log_requests") and not before.get("log_requests"):
        audit.record(by, "deployment.requests_logged", deployment, revision=n)
    return Revision.objects.create(
        deployment=deployment, n=n, artifact=artifact, fingerprint=artifact.fingerprint, settings=kept,
        note=note[:MOST_NOTE], by=by,
    )  # fmt: skip
