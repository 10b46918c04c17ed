"""Periodic work: what runs when. RQ's cron reads `JOBS`; the console worker runs the functions.

Times are local, in settings.TIME_ZONE. Every function may run twice or late without harm.
"""

from collections.abc import Callable
from datetime import timedelta

from django.core.management import call_command
from django.utils import timezone

from console import alerts, database, own_alerts
from console.models import ApiToken, KeptAnswer
from deployments.services import (
    agent_logs,
    clocks,
    engine_logs,
    enrol,
    holds,
    job_keeping,
    join_many,
    log_keeping,
    reconcile,
    refusals,
    retention,
    support_bundles,
    support_own,
    trust,
)
from monitoring.services import rollups

ANSWER_HOURS = 24


def end_old_sessions() -> None:
    """Sessions past their time go."""
    call_command("clearsessions")


def forget_failed_logins() -> None:
    """Attempts that no longer lock anybody out go."""
    call_command("axes_reset_logs", age=30)


def end_old_tokens() -> int:
    """Tokens that ended a month ago go; a younger one still answers who it was."""
    return ApiToken.objects.filter(expires_at__lt=timezone.now() - timedelta(days=30)).delete()[0]


def roll_history() -> int:
    """Minutes become rows of five minutes, those become hours."""
    return rollups.roll()


def prune_history() -> int:
    """Rows of history that are older than settings say go."""
    return rollups.prune()


def prune_answers() -> int:
    """Answers kept for repeated REST calls go after ANSWER_HOURS."""
    return KeptAnswer.objects.filter(created_at__lt=timezone.now() - timedelta(hours=ANSWER_HOURS)).delete()[0]


def forget_gone_servers() -> list[int]:
    """Redis users and keys of servers that are no more go."""
    return enrol.forget_gone()


def prune_alerts() -> int:
    """Alerts that ended long ago go."""
    return alerts.prune()


def prune_join_lists() -> int:
    """Lists of hosts that joined by SSH go after a while, with what their scripts said."""
    return join_many.prune()


def settle_refusals() -> int:
    """Alerts of refused payloads end after a day without another."""
    return refusals.settle()


def tell_whom_to_trust() -> int:
    """Servers that do not trust a new authority yet are told again, where no order is under way."""
    return trust.tell(trust.behind())


def end_holds() -> int:
    """Holds of NPUs whose time is over end, with a notice."""
    return holds.end_due()


def judge_clocks() -> None:
    """Servers whose clock is wrong are alerted, and no longer when it is right again."""
    clocks.look()


def look_at_deployments() -> int:
    """Every deployment is compared with what is wished."""
    return reconcile.look_at_all()


def prune_engine_logs() -> int:
    """Old pieces of the logs of engines and of agents go."""
    return engine_logs.prune() + agent_logs.prune()


def prune_logs() -> int:
    """Old logs of jobs lose their lines, then the oldest where all take too much; the disk gets its room back."""
    pruned = log_keeping.prune()
    database.give_back()
    return pruned


def prune_jobs() -> int:
    """Jobs that ended long ago go where nothing refers to them."""
    return job_keeping.prune()


def prune_deployments() -> int:
    """Replicas that ended long ago go, with what else of deployments is old."""
    return retention.prune()


def tend_support_bundles() -> int:
    """What the console itself has for a support bundle is put in where a worker died over it."""
    return support_own.tend()


def prune_support_bundles() -> int:
    """Support bundles that are old, or too many, go."""
    return support_bundles.prune()


JOBS: list[tuple[str, Callable[[], object]]] = [
    ("17 * * * *", end_old_sessions),
    ("27 3 * * *", forget_failed_logins),
    ("37 3 * * *", end_old_tokens),
    ("1-59/5 * * * *", roll_history),
    ("7 * * * *", prune_history),
    ("47 * * * *", prune_answers),
    ("57 * * * *", forget_gone_servers),
    ("13 * * * *", own_alerts.look),
    ("* * * * *", end_holds),
    ("*/5 * * * *", judge_clocks),
    ("23 * * * *", tell_whom_to_trust),
    ("7,37 * * * *", settle_refusals),
    ("47 3 * * *", prune_alerts),
    ("52 3 * * *", prune_join_lists),
    ("* * * * *", look_at_deployments),
    ("33 4 * * *", prune_engine_logs),
    ("43 4 * * *", prune_deployments),
    ("* * * * *", tend_support_bundles),
    ("21 * * * *", prune_support_bundles),
    ("21 * * * *", prune_logs),
    ("53 4 * * *", prune_jobs),
]
