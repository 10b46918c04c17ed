"""The codes of an NPU's faults: asked for only where npu-smi says that it is not well, and not oftener than every half
minute, for each answer takes a call of the tool."""

import re
import time
from collections.abc import Callable
from typing import Any

from deployments.agent.tools import Output
from monitoring.parsers import npu_smi_health
from monitoring.parsers.failures import values_of

AGAIN_S = 30.0
TOOL_S = 5.0
MOST_ASKED = 8  # of one reading: it has its own deadline to keep
CODE = re.compile(r"(?:0[xX])?([0-9A-Fa-f]{8})\b")
Ask = Callable[[tuple[str, ...], float], Output]


class FaultCodes:
    """`ask` runs a tool with a deadline in seconds."""

    def __init__(self, ask: Ask, clock: Callable[[], float] = time.monotonic) -> None:
        self.ask = ask
        self.clock = clock
        self._known: dict[tuple[Any, Any], tuple[float, str, list[str]]] = {}

    def of(self, npus: list[dict[str, Any]]) -> dict[tuple[Any, Any], list[str]]:
        """{(npu, chip): codes} of those that are not well; what could not be read has none."""
        sick = [npu for npu in npus if npu.get("health") not in ("OK", None)]
        places = {(npu.get("npu"), npu.get("chip")) for npu in sick}
        self._known = {place: told for place, told in self._known.items() if place in places}
        asked, now = 0, self.clock()
        for npu in sick:
            place, health = (npu.get("npu"), npu.get("chip")), str(npu.get("health"))
            known = self._known.get(place)
            due = known is None or known[1] != health or now - known[0] >= AGAIN_S
            if due and asked < MOST_ASKED:
                asked += 1
                self._known[place] = (now, health, self._read(*place))
        return {place: codes for place, (_at, _health, codes) in self._known.items()}

    def _read(self, npu: Any, chip: Any) -> list[str]:
        more = ("-c", str(chip)) if chip is not None else ()
        output = self.ask(("npu-smi", "info", "-t", "health", "-i", str(npu), *more), TOOL_S)
        if output.problem:
            return []
        told = values_of(npu_smi_health, output.text)
        return list(dict.fromkeys(code.upper() for code in CODE.findall(str(told.get("Error Code") or ""))))[:16]
