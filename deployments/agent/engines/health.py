"""Asks an engine how it is, in a thread of its own: the keeper goes on with its log while the engine is silent."""

import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from deployments.agent.engines import probe, scrape
from deployments.agent.engines.probe import Address
from deployments.steps import Text

EVERY_S = 2.0
FIRST_S = 0.25  # while it loads and nobody listens on its port yet, asking costs nothing
SCRAPE_S = 3.0
MOST_METRICS = 4 * 1024 * 1024


class Told(NamedTuple):
    """One round: `status` of /health (None: no answer), `completed` whether it has answered a completion since its
    start, `trouble` why not; `metrics` are None where they were not asked for."""

    status: int | None
    completed: bool
    trouble: Text | None
    metrics: dict[str, Any] | None


class Asker(threading.Thread):
    """Rounds until `stop`; `tell` is called with each, from this thread."""

    def __init__(
        self, at: Address, model: str, tell: Callable[["Asker", Told], None], *, completed: bool = False
    ) -> None:
        super().__init__(name="asker", daemon=True)
        self.at = at
        self.model = model
        self.tell = tell
        self.completed = completed
        self.meter = scrape.Meter()
        self.scraped_at = float("-inf")
        self.ended = threading.Event()

    def stop(self) -> None:
        self.ended.set()

    def run(self) -> None:
        while not self.ended.is_set():
            told = self.round()
            if self.ended.is_set():
                return
            self.tell(self, told)
            self.ended.wait(EVERY_S if told.completed or told.status is not None else FIRST_S)

    def round(self) -> Told:
        status, trouble, metrics = probe.health(self.at).status, None, None
        if status == probe.OK and not self.completed:
            trouble = probe.completion(self.at, self.model)
            self.completed = trouble is None
        if status == probe.OK and self.completed and time.monotonic() - self.scraped_at >= SCRAPE_S:
            self.scraped_at = time.monotonic()
            metrics = self._metrics()
        return Told(status, self.completed, trouble, metrics)

    def _metrics(self) -> dict[str, Any]:
        answer = probe.ask(self.at, "/metrics", within_s=probe.HEALTH_S, most=MOST_METRICS)
        if answer.status != probe.OK:
            self.meter.clear()
            return dict(scrape.NOTHING)
        return self.meter.take(answer.body.decode(errors="replace"))
