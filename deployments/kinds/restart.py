"""Stop an engine and start it again on the same NPUs; it begins when they have their memory back."""

from dataclasses import dataclass

from deployments.kinds import serve, stop
from deployments.steps import Step, Text

locks, undo = serve.locks, serve.undo

TITLE = Text("重启引擎", "Restart an engine")
OWN_PAGE = True
ACTED = True  # on simulated servers, and never run there
NEEDS_ROOT = True  # for a unit of systemd; the other routes need none
MOSTLY_WITHOUT = True
FILLED = serve.FILLED
INTERRUPTS = stop.INTERRUPTS


@dataclass(frozen=True)
class Params(serve.Params):
    pass


def steps(p: Params) -> list[Step]:
    return [*stop.stopping(serve.ask_of(p), drain_s=0, remove=False), *serve.steps(p)]
