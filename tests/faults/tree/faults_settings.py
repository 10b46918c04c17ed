"""The console's settings with a shorter patience for silent servers."""

from console.settings import *  # noqa: F403

SILENT_AFTER_S = 10
OFFLINE_AFTER_S = 20
