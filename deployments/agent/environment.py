"""What of our environment goes on to the programs we start. The console may have started this agent, with secrets."""

import os

NAMES = {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH"}
PREFIXES = ("LC_", "ASCEND_", "HCCL_", "SSL_CERT_")
ENDINGS = ("_proxy", "_PROXY")


def passed_on() -> dict[str, str]:
    """The variables that any program needs; all others are ours alone."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in NAMES or name.startswith(PREFIXES) or name.endswith(ENDINGS)
    }
