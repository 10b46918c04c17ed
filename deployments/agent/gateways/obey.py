"""The order `gateway`: other keys, engines or settings for a gateway that is here. Its keeper takes them at once.

gateway {"gateway": number, "version": n, "sealed": base64}     `sealed` is a whole Spec, zlib and JSON
"""

import base64
import json
import zlib
from collections.abc import Callable
from typing import Any

from deployments.agent import indexed
from deployments.agent.config import Config
from deployments.agent.gateways import folder as folders
from deployments.agent.orders import CannotObey, Handler
from deployments.serving import gateway_conf

MOST = 4 << 20


class Gateways:
    """`handlers` are those of the link."""

    def __init__(self, current: Callable[[], Config]) -> None:
        self.current = current
        self.handlers: dict[str, Handler] = {"gateway": self.gateway}

    def gateway(self, args: dict[str, Any]) -> str:
        """An older one that comes late changes nothing. Raises CannotObey."""
        config = self.current()
        try:
            number, spec = int(args["gateway"]), unpack(config, str(args["sealed"]))
        except (KeyError, ValueError, TypeError, zlib.error) as error:
            raise CannotObey("指令中没有网关的设置", "the order holds no settings of a gateway") from error
        folder = folders.of(config, number)
        before = folders.read_raw(folder)
        if not before:
            raise CannotObey("这台服务器上没有这个网关", "this gateway is not on this server")
        if before.get("version", 0) < spec.get("version", 0):
            try:
                folders.write(folder, spec)
            except gateway_conf.BadSpec as error:
                raise CannotObey(f"设置不能用（{error}）", f"the settings are not fit ({error})") from error
        return ""


def unpack(config: Config, sealed: str) -> dict[str, Any]:
    """Raises ValueError, zlib.error."""
    unpacker = zlib.decompressobj()
    text = unpacker.decompress(indexed.opened(config, base64.b64decode(sealed, validate=True)), MOST)
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("no settings")
    return found
