"""The keeper of engines, with less patience: python -m tests.deployments.quick_keeper FOLDER --config CONFIG [--once]

In the environment, `QUICK_FILES`: the length at which engine.log turns over, `QUICK_LIMIT`: no file grows longer,
`QUICK_PAUSE`: seconds until the next start.
"""

import os
import resource
import sys

from deployments.agent.engines import head, health, keeper, logfile, now, probe

health.EVERY_S, health.FIRST_S, health.SCRAPE_S = 0.05, 0.02, 0.1
probe.health.__defaults__ = (0.3,)
keeper.LOOK_S, keeper.MEMBERS_S, keeper.FIRST_PAUSE_S, keeper.MAX_PAUSE_S, keeper.NO_ROOM_S = 0.02, 0.1, 0.05, 0.1, 0.1
head.EVERY_S = 0.1
now.AT_MOST_S, now.AT_LEAST_S = 0.02, 0.5
if "QUICK_PAUSE" in os.environ:
    keeper.FIRST_PAUSE_S = keeper.MAX_PAUSE_S = float(os.environ["QUICK_PAUSE"])
logfile.MAX_FILE = int(os.environ.get("QUICK_FILES", logfile.MAX_FILE))
if "QUICK_LIMIT" in os.environ:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(os.environ["QUICK_LIMIT"]), resource.RLIM_INFINITY))

if __name__ == "__main__":
    sys.exit(keeper.main())
