"""A port in front of a server, that can be shut and opened again: a server that is away for a while."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

from servers.process import free_port


class Proxy:
    """Passes bytes on, from when it is opened until it is shut; shutting cuts what is open."""

    def __init__(self, target: int) -> None:
        self.port, self._target = free_port(), target
        self._listening: socket.socket | None = None
        self._open: list[socket.socket] = []

    def open(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=(self._listening,), daemon=True).start()

    def shut(self) -> None:
        listening, self._listening = self._listening, None
        if listening is not None:
            # Wakes the thread that waits for the next connection; closing alone does not.
            with suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)
            listening.close()
        for one in self._open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._open = []

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                near, _ = listening.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._target))
            self._open += [near, far]
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=_pass_on, args=(source, target), daemon=True).start()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with source, suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)
