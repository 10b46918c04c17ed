"""What a person does to a deployment as a whole: create, stop, start, pause, resume, delete, restart, schedule."""

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from console import alerts, audit
from console.errors import Conflict, Invalid, NotFound
from console.models import User
from deployments.models import GONE, Artifact, Deployment, Gateway, Replica, Revision, Server, Spread
from deployments.row_locks import lock_deployment
from deployments.services import jobs, reconcile_asking, revision_checks, rollout, schedules

NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
RESERVED = ("new", "keys")  # what addresses of pages have in the place of a name
MOST_REPLICAS = schedules.MOST_REPLICAS
MOST_DRAIN_S = 24 * 3600
SWITCHES = ("drain_s", "replace_lost", "spread", "servers", "title", "notes")


def find(name: str) -> Deployment:
    """The deployment of that name, with what its JSON needs. Raises NotFound."""
    from deployments.services import deployment_json

    found: Deployment | None = deployment_json.rows().filter(name=name[:63]).first()
    if found is None:
        raise NotFound(
            _("There is no deployment “%(name)s”.") % {"name": name[:63]},
            _("Open the list of deployments and choose one."),
            code="no_such_deployment",
        )
    return found


def create(
    name: str, artifact: Artifact, settings: Mapping[str, Any], *, by: User, replicas: int = 1,
    servers: Sequence[str] = (), spread: str = Spread.RACKS, note: str = "", unproved: str = "", dry_run: bool = False,
) -> Deployment:  # fmt: skip
    """The deployment with its first revision, which is brought about from here on; with `dry_run` it is only checked.

    `unproved` is why a model that was not proved is served all the same. Raises NotAllowed, Invalid, Conflict.
    """
    jobs.check_may_operate(by)
    _check_name(name)
    check_replicas(replicas)
    check_spread(spread)
    check_servers(servers, simulated=artifact.simulated)
    kept = revision_checks.settings(settings, artifact)
    revision_checks.gate(artifact, unproved)
    revision_checks.check_note(note)
    made = Deployment(
        name=name, owner=by, simulated=artifact.simulated, replicas=replicas, servers=list(servers), spread=spread
    )
    if dry_run:
        return made
    try:
        with transaction.atomic():
            made.save()
            first = revision_checks.new(made, 1, artifact, kept, note or unproved, by)
            made.revision = first
            made.save(update_fields=["revision"])
            audit.record(by, "deployment.created", made, model=artifact.name, replicas=replicas, **_why(unproved))
            reconcile_asking.ask(made.pk)
    except IntegrityError as error:
        raise _taken(name) from error
    return made


def _why(unproved: str) -> dict[str, str]:
    return {"unproved": unproved} if unproved else {}


def _check_name(name: str) -> None:
    if not NAME.fullmatch(name) or name in RESERVED:
        raise Invalid(
            _("“%(name)s” is no name for a deployment.") % {"name": name[:63]},
            _("Use 1 to 63 small letters, digits and hyphens, beginning and ending with a letter or digit."),
            code="invalid_name",
        )
    if Deployment.objects.present().filter(name=name).exists():
        raise _taken(name)


def _taken(name: str) -> Conflict:
    return Conflict(
        _("There is a deployment “%(name)s” already.") % {"name": name}, _("Choose another name."), code="name_taken"
    )


def check_replicas(replicas: int) -> None:
    """Raises Invalid."""
    if not 0 <= replicas <= MOST_REPLICAS:
        raise Invalid(
            _("A deployment has 0 to %(most)s replicas.") % {"most": MOST_REPLICAS}, _("Give such a number."),
            code="invalid_replicas",
        )  # fmt: skip


def check_spread(spread: str) -> None:
    """Raises Invalid."""
    if spread not in Spread.values:
        raise Invalid(
            _("Replicas cannot be laid over the fleet as “%(spread)s”.") % {"spread": str(spread)[:20]},
            _("Use one of: %(names)s.") % {"names": ", ".join(Spread.values)},
            code="invalid_spread",
        )


def check_servers(names: Sequence[str], *, simulated: bool) -> None:
    """Raises Invalid that names those which may not be used."""
    known = dict(Server.objects.present().filter(name__in=list(names)).values_list("name", "simulated"))
    unknown = [name for name in names if name not in known]
    if unknown:
        raise Invalid(
            _("There is no server “%(names)s”.") % {"names": ", ".join(name[:63] for name in unknown[:5])},
            _("GET /api/v1/servers lists the names."),
            code="unknown_server",
        )
    if other := [name for name in names if known[name] != simulated]:
        raise Invalid(
            _("Real and simulated servers do not mix: %(names)s.") % {"names": ", ".join(other[:5])},
            _("Leave them out, or choose another model."),
            code="servers_mixed",
        )


# ---------- switches ----------


@contextlib.contextmanager
def changing(
    deployment: Deployment, by: User, verb: str, *, paused_too: bool = False, **more: Any
) -> Iterator[Deployment]:
    """Its row under its lock; saved with an audit entry, told and looked at after the commit. Raises ConsoleError."""
    jobs.check_may_operate(by)
    with transaction.atomic():
        try:
            row = lock_deployment(deployment.pk)
        except Deployment.DoesNotExist:
            raise NotFound(_("The deployment is no more."), _("Open the list of deployments.")) from None
        if row.deleted_at:
            raise NotFound(
                _("The deployment “%(name)s” was deleted.") % {"name": row.name}, _("Open the list of deployments.")
            )
        if row.paused and not paused_too:
            raise Conflict(
                _("The deployment “%(name)s” is paused.") % {"name": row.name},
                _("Resume it, then try again."),
                code="paused",
            )
        details: dict[str, Any] = dict(more)
        row.details = details  # type: ignore[attr-defined]  # what else the audit entry is to say
        yield row
        row.save()
        audit.record(by, verb, row, **details)
        reconcile_asking.ask(row.pk)
        transaction.on_commit(lambda: _tell(row.pk))


def _tell(pk: int) -> None:
    from deployments.services import reconcile

    reconcile.tell(pk)


def stop(deployment: Deployment, *, by: User) -> Deployment:
    """Drain and end every replica; the number wished is kept for the next start. It ends a pause and a rollout."""
    with changing(deployment, by, "deployment.stopped", paused_too=True) as row:
        if row.stopped:
            raise Conflict(
                _("The deployment “%(name)s” is stopped already.") % {"name": row.name},
                _("Reload the page."),
                code="already_stopped",
            )
        row.stopped, row.paused, row.rollout, row.reason = True, False, None, None
        alerts.resolve("rollout-failed", f"deployment:{row.pk}")
    return row


def start(deployment: Deployment, *, by: User) -> Deployment:
    """Bring it up again after a stop, or try again after replicas have failed."""
    with changing(deployment, by, "deployment.started") as row:
        _check_model(row)
        if not row.stopped and not _has_failed(row):
            raise Conflict(
                _("The deployment “%(name)s” is not stopped.") % {"name": row.name},
                _("Reload the page to see how it is."),
                code="not_stopped",
            )
        if not row.replicas:
            raise Conflict(
                _("The deployment “%(name)s” wishes no replica.") % {"name": row.name},
                _("Scale it to one or more."),
                code="no_replicas",
            )
        row.stopped, row.tried_at, row.reason = False, timezone.now(), None
        if row.rollout and row.rollout["phase"] == "stuck":
            row.rollout = None
    return row


def _has_failed(row: Deployment) -> bool:
    stuck = row.rollout is not None and row.rollout["phase"] == "stuck"
    return stuck or row.replica_set.filter(state="failed", ended_at__gte=row.tried_at or row.created_at).exists()


def _check_model(row: Deployment) -> None:
    if row.revision is not None:
        revision_checks.check_there(row.revision)


def pause(deployment: Deployment, *, by: User) -> Deployment:
    """The console starts and stops nothing by itself any more; what runs goes on."""
    with changing(deployment, by, "deployment.paused") as row:
        row.paused = True
    return row


def resume(deployment: Deployment, *, by: User) -> Deployment:
    with changing(deployment, by, "deployment.resumed", paused_too=True) as row:
        if not row.paused:
            raise Conflict(
                _("The deployment “%(name)s” is not paused.") % {"name": row.name}, _("Reload the page."),
                code="not_paused",
            )  # fmt: skip
        row.paused = False
    return row


def delete(deployment: Deployment, *, by: User, confirm: str) -> Deployment:
    """It leaves the lists; its history stays. Only where no replica is there, and by its name. Raises ConsoleError."""
    with changing(deployment, by, "deployment.deleted", paused_too=True) as row:
        if confirm != row.name:
            raise Invalid(
                _("The name does not match."),
                _("Type “%(name)s” to delete it.") % {"name": row.name},
                code="not_confirmed",
            )
        if there := row.replica_set.exclude(state__in=GONE).count():
            raise Conflict(
                _("The deployment “%(name)s” has %(n)s replicas yet.") % {"name": row.name, "n": there},
                _("Stop it, and delete it when they have ended."),
                code="replicas_there",
            )
        if Gateway.objects.filter(deployment=row, enabled=True).exists():
            raise Conflict(
                _("The deployment “%(name)s” has a gateway yet.") % {"name": row.name},
                _("Remove the gateway first, on the page Gateways."),
                code="gateway_there",
            )
        row.deleted_at, row.rollout, row.reason = timezone.now(), None, None
        for name in ("rollout-failed", "replica-failed"):
            alerts.resolve(name, f"deployment:{row.pk}")
    return row


def restart(deployment: Deployment, *, by: User, replicas: Sequence[int] = ()) -> Deployment:
    """Let these replicas (their numbers; none: all of them) start anew, one by one, each drained first."""
    with changing(deployment, by, "deployment.restarted") as row:
        check_not_moving(row)
        chosen = restarted(row, replicas)
        row.details["replicas"] = [one.n for one in chosen]  # type: ignore[attr-defined]
        row.rollout = rollout.begin_restart(row, chosen, by=by)
    return row


def restarted(deployment: Deployment, numbers: Sequence[int]) -> list[Replica]:
    """Replicas that `restart` would start anew. Raises NotFound, Conflict."""
    there = deployment.replica_set.filter(state__in=("ready", "degraded", "loading")).select_related("server")
    found = [row for row in there.order_by("n") if not numbers or row.n in numbers]
    if missing := sorted(set(numbers) - {row.n for row in found}):
        raise NotFound(
            _("Replica %(n)s is not running.") % {"n": ", ".join(map(str, missing[:5]))},
            _("Reload the page to see which are."),
            code="no_such_replica",
        )
    if not found:
        raise Conflict(_("No replica is running."), _("Start the deployment instead."), code="no_replicas")
    return found


def stop_again(deployment: Deployment, n: int, *, by: User) -> Deployment:
    """Another try at a replica that would not stop."""
    with changing(deployment, by, "replica.stop_again", paused_too=True, replica=n) as row:
        found = row.replica_set.filter(n=n, stop_job__state__in=("failed", "cancelled")).exclude(stop_job=None)
        if not found.update(stop_job=None):
            raise Conflict(
                _("Replica %(n)s is not one that would not stop.") % {"n": n}, _("Reload the page."), code="wrong_state"
            )
    return row


def check_not_moving(row: Deployment) -> None:
    """Raises Conflict while a rollout is under way."""
    if rollout.is_moving(row):
        raise Conflict(
            _("A rollout of “%(name)s” is under way.") % {"name": row.name},
            _("Wait until it has ended, or go back first."),
            code="rollout_under_way",
        )


def set_rollout_paused(deployment: Deployment, paused: bool, *, by: User) -> Deployment:
    """Let the rollout wait where it is, or go on."""
    with changing(deployment, by, "rollout.paused" if paused else "rollout.resumed") as row:
        kept = row.rollout or {}
        if not rollout.is_moving(row) or kept["paused"] is paused:
            raise Conflict(
                _("There is no rollout of “%(name)s” for that.") % {"name": row.name}, _("Reload the page."),
                code="no_rollout",
            )  # fmt: skip
        row.rollout = {**kept, "paused": paused}
    return row


def set_schedule(deployment: Deployment, points: Sequence[Any], *, by: User) -> Deployment:
    """Replicas by day and time; [] for none. What is due is set from the next point on."""
    kept = schedules.check(points)
    with changing(deployment, by, "deployment.schedule_changed", paused_too=True, schedule=kept) as row:
        row.schedule, row.schedule_at = kept, timezone.now()
    return row


def edit(deployment: Deployment, values: Mapping[str, Any], *, by: User) -> Deployment:
    """Change what is no part of a revision: SWITCHES. Raises ConsoleError."""
    if unknown := sorted(set(values) - set(SWITCHES)):
        raise Invalid(
            _("A deployment has no “%(names)s”.") % {"names": ", ".join(unknown)[:100]}, _("Mend it and try again."),
            code="unknown_field",
        )  # fmt: skip
    with changing(deployment, by, "deployment.edited", paused_too=True, changed=sorted(values)) as row:
        for name, value in values.items():
            setattr(row, name, _checked(row, name, value))
    return row


def _checked(row: Deployment, name: str, value: Any) -> Any:
    if name == "drain_s" and (type(value) is not int or not 0 <= value <= MOST_DRAIN_S):
        raise Invalid(
            _("Running requests get 0 to %(most)s s.") % {"most": MOST_DRAIN_S}, _("Give such a number."),
            code="invalid_drain",
        )  # fmt: skip
    if name == "spread":
        check_spread(value)
    if name == "servers":
        check_servers(value, simulated=row.simulated)
    if name in ("title", "notes") and len(value) > (most := 100 if name == "title" else 10_000):
        raise Invalid(_("The text is longer than %(most)s characters.") % {"most": most}, _("Shorten it."))
    return list(value) if name == "servers" else value


def revision_of(deployment: Deployment, n: int) -> Revision:
    """Raises NotFound."""
    found = deployment.revisions.select_related("artifact", "by").filter(n=n).first() if 0 < n < 2**31 else None
    if found is None:
        raise NotFound(
            _("“%(name)s” has no revision %(n)s.") % {"name": deployment.name, "n": n},
            _("Open its page and choose one."),
            code="no_such_revision",
        )
    return found
