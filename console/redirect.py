"""Plain HTTP is answered with the same address by HTTPS, and with nothing else. Standard library only.

python -m console.redirect BIND PORT HTTPS_PORT
"""

import asyncio
import re
import sys

MAX_HEAD = 16384
WAIT_S = 5.0
AT_ONCE = 200
PLACE = re.compile(r"/[!-~]*")
HOST = re.compile(r"[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]")


def location(head: bytes, port: int) -> str | None:
    """Where the request belongs; None for what is no request, or names no host."""
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    hosts = [line.partition(":")[2].strip() for line in lines[1:] if line.lower().startswith("host:")]
    if len(words) != 3 or len(hosts) != 1 or not PLACE.fullmatch(words[1]):
        return None
    name = re.sub(r":[0-9]{1,5}$", "", hosts[0])
    if not HOST.fullmatch(name):
        return None
    return f"https://{name}{'' if port == 443 else f':{port}'}{words[1]}"


def answer(target: str | None) -> bytes:
    """308 keeps the method, so that a client of the API is told, rather than led to a page."""
    text = f"This console speaks HTTPS: {target}\n" if target else "This console speaks HTTPS.\n"
    first = "308 Permanent Redirect" if target else "400 Bad Request"
    head = [f"HTTP/1.1 {first}", "Content-Type: text/plain; charset=utf-8", f"Content-Length: {len(text)}"]
    head += ["Connection: close", "Cache-Control: no-store", *([f"Location: {target}"] if target else [])]
    return "\r\n".join([*head, "", text]).encode("latin-1")


class Redirect:
    """At most AT_ONCE connections are held, each for WAIT_S at most; who comes beside them is turned away."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            if self.open <= AT_ONCE:
                async with asyncio.timeout(WAIT_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(answer(location(head, self.port)))
                    await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            self.open -= 1
            writer.close()


async def main(bind: str, port: int, https_port: int) -> None:
    server = await asyncio.start_server(Redirect(https_port).serve, bind, port, limit=MAX_HEAD)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
