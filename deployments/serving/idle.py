"""Memory that an idle chip holds: what is above without a process that is listed is somebody's. One table for all who
ask: placement, and the programs that wait for NPUs before a start and after an end."""

# MB in use with nothing on the card, by what the names of its chips begin with (npu-smi info of idle servers: 2.8-3.5
# GB on A2 and A3, 4.8-5.9 on 950, 1.3-1.6 on 310P).
IDLE_MB = (("310", 1600), ("910", 3500), ("950", 5900), ("A2", 3500), ("A3", 3500), ("A5", 5900))
USUAL_MB = 3500  # of a chip that is not known
LOOSE_MB = 1100  # where no reading of the same card is at hand, cards of one kind differ by so much


def by_chip(*names: str | None) -> int | None:
    """What a card of that chip uses at most when idle, MB; None for an unknown one."""
    for name in names:
        plain = (name or "").upper().removeprefix("ASCEND").strip()
        for begin, most in IDLE_MB:
            if plain.startswith(begin):
                return most
    return None


def most_mb(chip: str) -> int:
    """The most that an idle chip of this name holds, MB, as npu-smi prints the name."""
    return (by_chip(chip) or USUAL_MB) + LOOSE_MB
