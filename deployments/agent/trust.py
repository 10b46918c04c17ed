"""The order `trust` {"pem": authorities}: whom to trust for Redis from now on, in place of the config's.

A connection is tried first: one that Redis does not show itself by would lock the server out. Connections that are
open go on; the worker, a process of its own, sees the changed file and starts anew.
"""

import dataclasses
from typing import Any

from deployments.agent import addresses, authorities
from deployments.agent.config import Config
from deployments.agent.orders import CannotObey
from deployments.agent.repoint import Probe


class Trust:
    """`handlers` are for the link, whose client of Redis is `connection`; `probe` as in `repoint.py`."""

    def __init__(self, config: Config, connection: Any, probe: Probe) -> None:
        self.config = config
        self.connection = connection
        self.probe = probe
        self.handlers = {"trust": self.trust}

    def trust(self, args: dict[str, Any]) -> str:
        """Says the digest of what is trusted now. Raises CannotObey."""
        pem = args.get("pem")
        if not isinstance(pem, str) or len(pem) > authorities.MAX_PEM or not authorities.is_authority(pem):
            raise CannotObey("指令中没有签发机构的证书", "the order holds no certificate of an authority")
        if not self.config.redis_url.startswith("rediss://"):
            raise CannotObey("这台服务器不经 TLS 连接 Redis", "this server reaches Redis without TLS")
        self.probe(dataclasses.replace(self.config, redis_ca=pem), addresses.present(self.config))
        authorities.write(self.config.state_dir, self.config.config_ca, pem)
        self.connection.connection_pool.connection_kwargs["ssl_ca_data"] = pem  # for the next connection
        return authorities.digest(pem)
