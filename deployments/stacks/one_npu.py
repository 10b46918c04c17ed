"""`python -m deployments.stacks.one_npu COMMAND …`: run it with the index of one NPU in place of `{npu}`.

It is the first without a process, of those that the job holds where it holds some. It ends with NOT_TRIED where there
is none: that says nothing against what was to be tried.
"""

import os
import sys
from collections.abc import Sequence
from typing import Protocol

from deployments.steps import Text

NOT_TRIED = 3  # the exit code
INDEX = "{npu}"
HELD = "ASCEND_HELD_NPUS"  # the names of the NPUs that the job holds, with commas between


class Place(Protocol):
    @property
    def npu(self) -> int: ...
    @property
    def chip(self) -> int | None: ...


class Npu(Place, Protocol):
    @property
    def bus_id(self) -> str | None: ...


class Sees(Protocol):
    """As far as a server's NPUs are asked for; the order printed is the device index."""

    @property
    def npus(self) -> Sequence[Npu]: ...
    @property
    def processes(self) -> Sequence[Place]: ...


def none_free(held: str = "") -> Text:
    """Why nothing was tried where `free_npu` finds none."""
    if not held:
        return Text(
            "每张 NPU 上都有进程，因此没有在 NPU 上试用。",
            "Every NPU has a process on it, so nothing was tried on one.",
        )
    return Text(
        f"本作业占用的 NPU {held} 上有进程，或 npu-smi 没有列出它，因此没有在 NPU 上试用。",
        f"NPU {held}, which this job holds, has a process on it or is not listed by npu-smi, so nothing was tried on "
        "one.",
    )


def free_npu(host: Sees, held: str = "") -> int | None:
    """The device index of the first NPU without a process, of those `held` (HELD) where some are; 0 where npu-smi
    tells of no NPU, None where there is none such."""
    names = set(filter(None, held.split(",")))
    used = {(one.npu, one.chip or 0) for one in host.processes}
    found = list(host.npus)
    free = (
        n
        for n, one in enumerate(found)
        if (one.npu, one.chip or 0) not in used and (not names or names_of(one.bus_id, one.chip) & names)
    )
    return next(free, None if found else 0)


def names_of(bus_id: str | None, chip: int | None) -> set[str]:
    """By which names a job may hold an NPU: that of its card, that of the chip."""
    return {f"{bus_id}", f"{bus_id}/{chip or 0}"} if bus_id else set()


def found() -> int | None:
    """`free_npu` of this machine."""
    from deployments.kinds.check_probes.host import Host  # probes know of stacks, and plans need none of them

    return free_npu(Host(), os.environ.get(HELD, ""))


def told(words: Text) -> int:
    """Say why nothing was tried; the exit code for it."""
    print(f"{words.zh} {words.en}", flush=True)
    return NOT_TRIED


def with_index(argv: Sequence[str], index: int) -> list[str]:
    return [word.replace(INDEX, str(index)) for word in argv]


def main(arguments: list[str]) -> int:
    if not arguments:
        print("It takes COMMAND …", file=sys.stderr)
        return 2
    index = found()
    if index is None:
        return told(none_free(os.environ.get(HELD, "")))
    print(f"NPU {index}", flush=True)
    os.execvp(arguments[0], with_index(arguments, index))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
