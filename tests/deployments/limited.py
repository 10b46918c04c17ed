"""Starts a runner that may make no file longer than so many bytes: a disk that is full, for one process.

python -m tests.deployments.limited BYTES FOLDER CONFIG
"""

import os
import resource
import sys

from tests.deployments.agent_bench import PROGRAM

if __name__ == "__main__":
    size, folder, config = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), resource.RLIM_INFINITY))
    os.setsid() if os.getsid(0) != os.getpid() else None
    os.execv(sys.executable, [sys.executable, str(PROGRAM), "runner", folder, "--config", config])
