"""Whom this server trusts for Redis over TLS: what its config says, or what the console has ordered since, which is
a layer over it."""

import dataclasses
import hashlib
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from deployments.agent import layers

if TYPE_CHECKING:
    from deployments.agent.config import Config

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


def layered(config: "Config") -> "Config":
    """The config with the authorities that the console ordered since the file was written."""
    return dataclasses.replace(config, redis_ca=newest(config.state_dir, config.redis_ca))


def newest(state_dir: Path, config_pem: str) -> str:
    """What was ordered since the config, which says `config_pem`, was written; else that."""
    kept = layers.read(
        state_dir / layers.AUTHORITIES,
        lambda data: (str(data["over"]), str(data["pem"])),
        "the config's own authorities are trusted",
    )
    return kept[1] if kept and kept[0] == digest(config_pem) and is_authority(kept[1]) else config_pem


def write(state_dir: Path, config_pem: str, pem: str) -> None:
    layers.write(state_dir / layers.AUTHORITIES, {"over": digest(config_pem), "pem": pem})
