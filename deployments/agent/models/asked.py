"""What a download is asked for, as arguments; on simulated servers it is read by who acts."""

import argparse
from pathlib import Path

from deployments.artifacts.paths import tidy


def asked(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="deployments.agent.models.download")
    parser.add_argument("folder", type=lambda text: Path(tidy(text)))
    parser.add_argument("--look", action="store_true")
    parser.add_argument("--source", required=True)
    for name in ("endpoint", "model", "revision", "pair"):
        parser.add_argument(f"--{name}", default="")
    for name in ("only", "leave-out"):
        parser.add_argument(f"--{name}", action="append", default=[])
    for name in ("pickles", "in-place", "private"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--at-once", type=int, default=4)
    return parser.parse_args(argv)
