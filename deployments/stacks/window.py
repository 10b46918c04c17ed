"""`python -m deployments.stacks.window 22:00-05:00`: wait until the server's own clock is within that span."""

import re
import sys
import time

from deployments.stacks.options import WINDOW

LOOK_S = 20.0


def minutes(text: str) -> int:
    """Minutes of `22:00` since midnight."""
    hours, _colon, rest = text.partition(":")
    return int(hours) * 60 + int(rest)


def is_within(span: str, now: int) -> bool:
    """Whether a minute of the day lies in the span; one that ends before it begins goes over midnight."""
    first, last = map(minutes, span.split("-"))
    return first <= now < last if first <= last else now >= first or now < last


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or not re.fullmatch(WINDOW, arguments[0]):
        print("It takes a span such as 22:00-05:00.", file=sys.stderr)
        return 2
    told = False
    while True:
        now = time.localtime()
        if is_within(arguments[0], now.tm_hour * 60 + now.tm_min):
            return 0
        if not told:
            print(f"{time.strftime('%H:%M %z', now)}: {arguments[0]}", flush=True)
            told = True
        time.sleep(LOOK_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
