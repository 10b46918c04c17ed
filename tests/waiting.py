"""Waiting for what other processes do."""

import time


def until(condition, timeout=10.0, every=0.02):
    """The first true answer of `condition`; fails the test when there is none within `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if answer := condition():
            return answer
        time.sleep(every)
    raise AssertionError(f"not within {timeout} s: {condition}")
