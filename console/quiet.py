"""What no log may hold: the token of a command for joining is a secret until it is used."""

import logging
import re

TOKEN = re.compile(r"/join/[A-Za-z0-9_-]{20,}")


class WithoutTokens(logging.Filter):
    """Django names the address of each request that it refuses."""

    def filter(self, record: logging.LogRecord) -> bool:
        said = record.getMessage()
        if "/join/" in said:
            record.msg, record.args = TOKEN.sub("/join/…", said), ()
        return True
