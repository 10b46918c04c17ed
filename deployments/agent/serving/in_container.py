"""`python -m deployments.agent.serving.in_container FOLDER`: become the client of the container that the folder's
spec.json names, with the devices that its NPUs have now.

The keeper starts it as it does any engine; ASCEND_RT_VISIBLE_DEVICES holds the device indexes, and is not passed on:
inside, the NPUs are those whose devices are there, counted anew.
"""

import json
import os
import sys
from pathlib import Path

from deployments.serving import container


def main(arguments: list[str]) -> int:
    spec = json.loads((Path(arguments[0]) / "spec.json").read_bytes())
    shown = os.environ.pop("ASCEND_RT_VISIBLE_DEVICES", "")
    os.environ[container.SECRET] = str(spec.get("api_key") or os.environ.get(container.SECRET, ""))
    argv = container.run(spec, [int(word) for word in shown.split(",") if word.strip().isdecimal()])
    sys.stdout.flush()
    os.execvp(argv[0], argv)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
