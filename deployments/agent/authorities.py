"""Whom this server trusts for Redis over TLS: what its config says, or what the console has ordered since.

An order is kept in `<state>/authorities.json`, since only root may write the config where root has installed the
agent. It stands over one config: one that joining has written anew ends it.
"""

import hashlib
import json
import logging
import ssl
from pathlib import Path

from deployments.agent import spool

log = logging.getLogger("authorities")

FILE = "authorities.json"
MAX_PEM = 65536


def is_authority(pem: str) -> bool:
    """Whether it holds at least one certificate, and nothing that cannot be read."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=pem)
    except (ssl.SSLError, ValueError):
        return False
    return bool(context.get_ca_certs())


def digest(pem: str) -> str:
    return hashlib.sha256(pem.encode()).hexdigest()


def newest(state_dir: Path, config_pem: str) -> str:
    """What was ordered since the config, which says `config_pem`, was written; else that."""
    try:
        data = json.loads((state_dir / FILE).read_bytes())
        over, pem = str(data["over"]), str(data["pem"])
    except FileNotFoundError:
        return config_pem
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("%s cannot be read (%s); the config's own authorities are trusted", state_dir / FILE, error)
        return config_pem
    return pem if over == digest(config_pem) and is_authority(pem) else config_pem


def write(state_dir: Path, config_pem: str, pem: str) -> None:
    """On the disk when it returns, whole."""
    spool.write_synced(state_dir / FILE, json.dumps({"over": digest(config_pem), "pem": pem}).encode())
