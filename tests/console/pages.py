"""A page as the hub sees it: one socket, spoken to without a network."""

import asyncio
import json

from asgiref.testing import ApplicationCommunicator

from console.sockets import LiveConsumer


class Page:
    """`say` sends a frame, `hear` returns the next message; `room` bounds what it takes without reading."""

    def __init__(self, user, *, headers=(), room=0, application=None):
        scope = {"type": "websocket", "path": "/ws/", "headers": list(headers)}
        if application is None:
            scope |= {"cookies": {}, "user": user}
        self.wire = ApplicationCommunicator(application or LiveConsumer.as_asgi(), scope)
        self.wire._output_queue = asyncio.Queue(room)

    async def __aenter__(self):
        await self.wire.send_input({"type": "websocket.connect"})
        assert (await self.wire.receive_output(5))["type"] == "websocket.accept"
        return self

    async def __aexit__(self, *error):
        await self.wire.send_input({"type": "websocket.disconnect", "code": 1001})
        if self.wire.output_queue.maxsize:
            self.wire.output_queue._maxsize = 0
        await self.wire.wait(5)

    async def say(self, frame=None, **named):
        text = frame if isinstance(frame, str) else json.dumps(frame if frame is not None else named)
        await self.wire.send_input({"type": "websocket.receive", "text": text})

    async def event(self, timeout=5):
        return await self.wire.receive_output(timeout)

    async def hear(self, timeout=5):
        event = await self.event(timeout)
        assert event["type"] == "websocket.send", event
        return json.loads(event["text"])

    async def hear_type(self, *types, timeout=5):
        """The next message of one of the types; what comes before it is passed over."""
        async with asyncio.timeout(timeout):
            while True:
                message = await self.hear(timeout)
                if message["type"] in types:
                    return message

    async def subscribe(self, topic, **more):
        await self.say(op="subscribe", topic=topic, **more)
        message = await self.hear_type("subscribed", "error")
        assert message["type"] == "subscribed", message
        assert message["topic"] == topic

    async def silent(self, seconds=0.15):
        """True when nothing is said for a while."""
        return await self.wire.receive_nothing(seconds)
