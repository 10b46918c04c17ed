"""A network between an agent and Redis that can be cut: a TCP proxy in this process."""

import contextlib
import socket
import struct
import threading

RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close with RST


class Proxy:
    """Listens on `host` and passes everything on to `port` of loopback.

    `hold()` keeps what is on its way and takes no connection, as a cable that was pulled; `reset()` breaks every
    connection, loses what was on its way and refuses new ones; `restore()` ends both.
    """

    def __init__(self, host: str, port: int) -> None:
        self.target = port
        self.open = threading.Event()
        self.open.set()
        self.refusing = False
        self.pairs: set[tuple[socket.socket, socket.socket]] = set()
        self.listener = socket.create_server((host, 0), backlog=64)
        self.address = self.listener.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()

    def hold(self) -> None:
        self.open.clear()

    def reset(self) -> None:
        self.refusing = True
        for pair in list(self.pairs):
            self._break(pair)

    def restore(self) -> None:
        self.refusing = False
        self.open.set()

    def close(self) -> None:
        self.listener.close()
        self.reset()
        self.open.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                self.open.wait()
                if self.refusing:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                    client.close()
                    continue
                try:
                    server = socket.create_connection(("127.0.0.1", self.target), timeout=5)
                except OSError:
                    client.close()
                    continue
                server.settimeout(None)
                self.pairs.add((client, server))
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self.open.wait()
                if self.refusing:
                    break
                sink.sendall(data)
        self._break((source, sink) if (source, sink) in self.pairs else (sink, source))

    def _break(self, pair: tuple[socket.socket, socket.socket]) -> None:
        self.pairs.discard(pair)
        for end in pair:
            with contextlib.suppress(OSError):
                if self.refusing:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                end.shutdown(socket.SHUT_RDWR)
            end.close()
