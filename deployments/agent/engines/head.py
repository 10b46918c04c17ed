"""Of a node that only computes: whether the engine that answers for the replica has ended on the first node.

With `--nnodes` such a node's engine stays when the first one dies, and the first one, started anew, would wait for it
until its time is up. So both are started anew. A head that is slow or not reached has not ended: only a port where
nobody listens any more counts.
"""

import socket
import time
from collections.abc import Mapping
from typing import Any

EVERY_S = 4.0
CONNECT_S = 0.5
REFUSALS = 2  # in a row


class Head:
    """`is_gone` once it has listened, and does not any more."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        host, _colon, port = str(spec.get("head") or "").rpartition(":")
        self.at = (host, int(port)) if host and port.isdecimal() else None
        self.has_listened = False
        self.refusals = 0
        self.due = 0.0

    def is_gone(self) -> bool:
        """Asks at most every EVERY_S."""
        if self.at is None or time.monotonic() < self.due:
            return False
        try:
            with socket.create_connection(self.at, timeout=CONNECT_S):
                self.has_listened, self.refusals = True, 0
        except ConnectionRefusedError:
            self.refusals += self.has_listened
        except OSError:
            pass
        self.due = time.monotonic() + EVERY_S
        return self.refusals >= REFUSALS
