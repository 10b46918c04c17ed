"""Colour steps of the fleet page: at most one small binary message a second for each metric.

A step is one sixteenth of the metric's span; 16 means unknown. A step changes only when the value
leaves it by more than half a step (hysteresis), so that noise on an edge sends nothing.
"""

import base64
from collections.abc import Sequence
from typing import Any

from monitoring.services.live_state import METRICS, RANGES, STEPS, UNKNOWN_STEP, Now, layout_generation, value


def step_of(amount: float | None, metric: str, before: int = UNKNOWN_STEP) -> int:
    """The step of a value, 0 … 15, or 16 for unknown; `before` is the step shown now."""
    if amount is None:
        return UNKNOWN_STEP
    low, high = RANGES[metric]
    exact = (amount - low) / (high - low) * STEPS
    if before != UNKNOWN_STEP and before - 0.5 <= exact < before + 1.5:
        return before
    return min(STEPS - 1, max(0, int(exact)))


def varint(number: int) -> bytes:
    """LEB128, as protobuf writes unsigned numbers."""
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    made.append(number)
    return bytes(made)


def delta(before: Sequence[int], after: Sequence[int]) -> bytes:
    """Pairs (gap since the last changed place, new step) as varints; empty where nothing changed."""
    made = bytearray()
    last = -1
    for place, (old, new) in enumerate(zip(before, after, strict=True)):
        if old != new:
            made += varint(place - last - 1)
            made += varint(new)
            last = place
    return bytes(made)


class FleetSteps:
    """The steps last sent, for every metric, over all NPUs by server id and order printed."""

    def __init__(self) -> None:
        self.generation = -1
        self.steps: dict[str, list[int]] = {}

    def advance(self, nows: Sequence[Now]) -> tuple[bool, dict[str, dict[str, Any]]]:
        """(layout changed, {metric: data of its message}) for the present states, sorted by id."""
        generation = layout_generation((now["id"], len(now["npus"])) for now in nows)
        changed = generation != self.generation
        messages: dict[str, dict[str, Any]] = {}
        for metric in METRICS:
            old = [] if changed else self.steps.get(metric, [])
            amounts = [value(npu, metric) for now in nows for npu in now["npus"]]
            if changed:
                self.steps[metric] = [step_of(amount, metric) for amount in amounts]
                continue
            new = [step_of(amount, metric, was) for amount, was in zip(amounts, old, strict=True)]
            self.steps[metric] = new
            pairs = delta(old, new)
            if pairs:
                messages[metric] = {"gen": generation, "z": base64.b64encode(pairs).decode()}
        self.generation = generation
        return changed, messages
