"""Colour steps of the fleet page: at most one small binary message a second for each metric.

A step is one sixteenth of the metric's span; 16 means unknown. A step changes only when the value
leaves it by more than half a step (hysteresis), so that noise on an edge sends nothing.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
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


def delta(before: Sequence[int], after: Sequence[int]) -> dict[int, int]:
    """{place: new step} of the places that changed, in order."""
    pairs = enumerate(zip(before, after, strict=True))
    return {place: new for place, (old, new) in pairs if old != new}


def write_steps(steps: Mapping[int, int]) -> bytes:
    """Pairs (gap since the last place, step) as varints; empty where there is none."""
    made = bytearray()
    last = -1
    for place in sorted(steps):
        made += varint(place - last - 1) + varint(steps[place])
        last = place
    return bytes(made)


def read_steps(pairs: bytes) -> dict[int, int]:
    """{place: step} of what `write_steps` wrote."""
    numbers: list[int] = []
    number = shift = 0
    for byte in pairs:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(number)
            number = shift = 0
    steps: dict[int, int] = {}
    place = -1
    for gap, step in zip(numbers[::2], numbers[1::2], strict=True):
        place += gap + 1
        steps[place] = step
    return steps


def data_of(generation: int, steps: Mapping[int, int]) -> dict[str, Any]:
    """What a message of type "steps" holds: {"gen", "z": base64 of the pairs}."""
    return {"gen": generation, "z": base64.b64encode(write_steps(steps)).decode()}


def steps_of(data: Mapping[str, Any]) -> dict[int, int]:
    """{place: step} of a message of type "steps"."""
    return read_steps(base64.b64decode(data["z"]))


LETTERS = "0123456789abcdefg"


def letters(steps: Iterable[int]) -> str:
    """Every step as one letter, as it is kept in Redis for who joins."""
    return "".join(LETTERS[step] for step in steps)


def from_letters(kept: str) -> dict[int, int]:
    """{place: step} of what `letters` made."""
    return {place: LETTERS.index(letter) for place, letter in enumerate(kept)}


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
            if moved := delta(old, new):
                messages[metric] = data_of(generation, moved)
        self.generation = generation
        return changed, messages
