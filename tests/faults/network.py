"""Between the far server and Redis: a network namespace of its own where we are root, and a proxy everywhere."""

import secrets

from tests.faults.proxy import Proxy
from tests.netns import Namespace, may_make


class Network:
    """`inside` begins the command line of what runs on the far server. `unplug` is a cable, `proxy` a bad network."""

    def __init__(self, redis_port: int) -> None:
        self.space = _namespace() if may_make() else None
        self.inside = self.space.inside if self.space else []
        self.proxy = Proxy(self.space.ours if self.space else "127.0.0.1", redis_port)

    @property
    def is_real(self) -> bool:
        return self.space is not None

    def unplug(self) -> None:
        self.space.unplug()

    def plug_in(self) -> None:
        self.space.plug_in()

    def restore(self) -> None:
        """Whatever was cut."""
        self.proxy.restore()
        if self.is_real:
            self.plug_in()

    def close(self) -> None:
        self.proxy.close()
        if self.space:
            self.space.close()


def _namespace() -> Namespace | None:
    """None in a container that may not make one."""
    a, b = secrets.randbelow(256), 4 * secrets.randbelow(64)
    try:
        return Namespace(f"10.251.{a}.{b + 1}", f"10.251.{a}.{b + 2}")
    except OSError:
        return None
