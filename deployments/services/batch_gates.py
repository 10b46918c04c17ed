"""What a kind adds to its batches: when a wave may begin, with which parameters each job goes, who is held back.

A kind without a gate of its own has `Gate` itself, which lets everything through. All but `told` are called under the
lock on the batch's row.
"""

from collections.abc import Mapping, Sequence

from deployments.models import Batch, Job, Server


class Gate:
    """Lets everything through."""

    keeps_waves = False  # what is retried keeps its wave, and so goes before the waves that have not begun

    def look(self, batch: Batch) -> None:
        """Something of the batch may have moved."""

    def ready(self, batch: Batch, wave: int | None) -> bool:
        """Whether this wave may begin, or with None the batch may end; else it waits, or `batch` was stopped here."""
        return True

    def admit(self, batch: Batch, wave: Sequence[Job], servers: Mapping[int, Server]) -> list[Job]:
        """The jobs that go now, with their parameters; the state of the others was written here."""
        return list(wave)

    def forgive(self, batch: Batch) -> None:
        """Somebody saw what went wrong so far and lets the batch go on."""

    def told(self, batch: Batch) -> None:
        """The batch has changed, and that is committed."""


OPEN = Gate()
GATES: dict[str, Gate] = {}


def of(batch: Batch) -> Gate:
    return GATES.get(batch.kind, OPEN)
