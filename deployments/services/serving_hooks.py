"""Who is told that the replicas of a deployment which may take requests are others than before."""

import logging
from collections.abc import Callable

from deployments.models import Deployment

log = logging.getLogger(__name__)
Changed = Callable[[Deployment], None]
CHANGED: list[Changed] = []


def on_change(act: Changed) -> Changed:
    """`act(deployment)` is called after each change, outside of transactions; it may be called once too often. Its
    module is imported by apps.ready."""
    CHANGED.append(act)
    return act


def changed(deployment: Deployment) -> None:
    """Tell everybody; who fails keeps nobody from hearing it."""
    for act in CHANGED:
        try:
            act(deployment)
        except Exception:
            log.exception("deployment %s has changed, which %s could not take", deployment.name, act.__name__)
