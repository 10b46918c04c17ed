"""Connections to Redis, one pool a process and address."""

from functools import lru_cache
from typing import Any

import redis
from django.conf import settings


@lru_cache(maxsize=4)
def _client(url: str, timeout_s: float) -> Any:
    return redis.Redis.from_url(url, socket_timeout=timeout_s, socket_connect_timeout=2, health_check_interval=30)


def client(timeout_s: float = 2.0) -> Any:
    """The shared client for short commands; a page waits for it at most `timeout_s`."""
    return _client(settings.REDIS_URL, timeout_s)
