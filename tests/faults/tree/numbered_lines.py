"""Prints numbered lines, and notes in a file that it began and ended: `python -m … STEP LINES PAUSE_S NOTES`.

It does not end while there is a file NOTES.held.
"""

import os
import sys
import time
from pathlib import Path


def note(path, step, word):
    """One write, so that notes of several processes stay whole."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, f"{os.environ['ASCEND_ATTEMPT']} {step} {word}\n".encode())
    os.close(descriptor)


def main():
    step, lines, pause_s, notes = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
    note(notes, step, "began")
    for n in range(1, lines + 1):
        print(f"{step}:{n} {'x' * 40}", flush=True)
        if n % 10 == 0:
            time.sleep(10 * pause_s)
    while Path(f"{notes}.held").exists():
        time.sleep(0.02)
    note(notes, step, "ended")


if __name__ == "__main__":
    main()
