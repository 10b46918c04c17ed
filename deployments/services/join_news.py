"""What pages of joining hear at once: topic `join:<enrolment>`, “moved” when a step is reached or something stops."""

import re
from collections.abc import Iterable

import redis
from django.db import transaction

from console import live
from deployments.models import Enrolment

TOPIC = re.compile(r"join:([1-9]\d{0,17})")


def moved(enrolment_id: int) -> None:
    """Tell the page once what was written is there for all to read. Without Redis the page asks by itself."""
    transaction.on_commit(lambda: tell(f"join:{enrolment_id}", enrolment_id))


def tell(topic: str, pk: int) -> None:
    try:
        live.publish(topic, "moved", {"id": pk})
    except redis.RedisError:
        pass  # the page polls while it hears nothing


def open_pages(topics: Iterable[str]) -> list[int]:
    """The enrolments whose pages are open, of the names of all open topics."""
    return [int(match[1]) for match in map(TOPIC.fullmatch, topics) if match]


def watch(topics: Iterable[str]) -> None:
    """Look whether servers whose pages are open have come online or sent a first reading; that tells the page."""
    from deployments.services import join  # which tells its steps through this module

    pages = open_pages(topics)
    if pages:
        for enrolment in Enrolment.objects.select_related("server").filter(pk__in=pages).exclude(used_at=None):
            join.progress(enrolment)
