"""Starts vllm-router in its own environment. Nothing of ours is imported: it is run by path.

    python router_main.py <file with the engines' key> OPTION …

The router sends the key to engines on those paths where it does not pass on what the client sent.
"""

import dataclasses
import sys
from pathlib import Path


def main() -> None:
    from vllm_router.launch_router import launch_router, parse_router_args

    key = Path(sys.argv[1]).read_text().strip()
    options = parse_router_args(sys.argv[2:])
    launch_router(dataclasses.replace(options, api_key=key) if key else options)


if __name__ == "__main__":
    main()
