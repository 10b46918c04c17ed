"""The clock of an agent whose environment names a file of seconds to add: what the system's clock would say after a
jump. Every process of an agent has this folder on its path."""

import os
import time

PATH = os.environ.get("ASCEND_FAULTS_CLOCK")
if PATH:
    real, monotonic = time.time, time.monotonic
    known = [0.0, 0.0]  # seconds to add, and when the file was read

    def jumped():
        now = monotonic()
        if now - known[1] > 0.05:
            known[1] = now
            try:
                with open(PATH) as file:  # noqa: PTH123 - before anything else is imported
                    known[0] = float(file.read())
            except (OSError, ValueError):
                pass
        return real() + known[0]

    time.time = jumped
