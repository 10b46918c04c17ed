"""Memory that an idle chip holds: what is above without a process that is listed is somebody's."""

# MB, with head room (seen: 2.8-3.5 GB on A2 and A3, 4.8-5.9 on 950, 1.3-1.6 on 310P).
MOST_MB = (("950", 7000), ("310", 2600))
DEFAULT_MB = 4600


def most_mb(chip: str) -> int:
    """The most that an idle chip of this name holds, as npu-smi prints the name."""
    return next((mb for mark, mb in MOST_MB if mark in chip), DEFAULT_MB)
