"""What no log may hold: tokens of commands for joining and of links to logs."""

import logging
import re

TOKEN = re.compile(r"/(join|shared/log)/[A-Za-z0-9_-]{20,}")


class WithoutTokens(logging.Filter):
    """Django names the address of each request that it refuses."""

    def filter(self, record: logging.LogRecord) -> bool:
        said = record.getMessage()
        if "/join/" in said or "/shared/log/" in said:
            record.msg, record.args = TOKEN.sub(r"/\1/…", said), ()
        return True
