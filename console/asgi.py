"""HTTP by Django, websockets by channels, and the end of the process for the live hub."""

# ruff: noqa: E402  Django must be set up before anything that reads its models is imported

import gc
import os
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")

from django.core.asgi import get_asgi_application

http = get_asgi_application()

from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from django.urls import path

from console.bodies import Bounded
from console.hub import hub
from console.sockets import LiveConsumer, NoSuchSocket


def rest_from_collecting() -> None:
    """A page of 1,000 servers makes 100,000 dicts, which by Python's defaults means a search of the whole process
    for cycles, 80 ms each. What was imported stays for good, and a search comes after 50,000 objects instead of 700."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


async def lifespan(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """The server tells when it starts and stops; the hub connects by itself, but is closed here."""
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            rest_from_collecting()
        if message["type"] == "lifespan.shutdown":
            await hub().close()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


# The consumer itself compares Origin and Host, and says in words why it refuses.
application = ProtocolTypeRouter(
    {
        "http": Bounded(http),
        "websocket": AuthMiddlewareStack(
            URLRouter([path("ws/", LiveConsumer.as_asgi()), path("<path:rest>", NoSuchSocket.as_asgi())])
        ),
        "lifespan": lifespan,
    }
)
