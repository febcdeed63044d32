"""The driver's token server, and how tasks ask it.

One thread-per-connection server per process, started when the first cap is set. A request is the secret, the
bucket's number and a count; the answer is the seconds to wait. A task that dies after asking wastes its tokens,
which keeps the rate below the cap, never above.
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import socketserver
import struct
import threading
import time
from collections import deque
from dataclasses import dataclass

from rekappa.errors import RunError
from rekappa.rate import BURST_SECONDS, Bucket, TokenBucket

_ASK = struct.Struct("!16sIi")
"""The secret, the bucket's number and how many rows; fewer than none gives back what was asked for and not used."""
_ANSWER = struct.Struct("!d")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class RateReport:
    """How fast rows pass one cap now, for the progress line."""

    name: str
    current: float
    cap: float

    def __str__(self) -> str:
        return f"{self.name} {self.current:,.0f}/{self.cap:,.0f} rows/s"


class _Metered:
    """A bucket with a memory of what it let pass lately."""

    def __init__(self, name: str, cap: float) -> None:
        self.name = name
        self.tokens = TokenBucket(cap, burst=max(1.0, cap * BURST_SECONDS))
        self.passed: deque[tuple[float, int]] = deque()
        self.total = 0
        self.lock = threading.Lock()

    def reserve(self, count: int) -> float:
        with self.lock:
            now = time.monotonic()
            wait = self.tokens.reserve(count, now)
            self.passed.append((now + wait, count))
            self.total += count
            return wait

    def report(self, span: float = 5.0) -> RateReport:
        with self.lock:
            now = time.monotonic()
            while self.passed and self.passed[0][0] < now - span:
                self.passed.popleft()
            recent = [(at, count) for at, count in self.passed if at <= now]
            length = max(now - recent[0][0], BURST_SECONDS) if recent else span
            return RateReport(self.name, sum(count for _, count in recent) / length, self.tokens.rate)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, host: str) -> None:
        self.secret = secrets.token_bytes(16)
        self.buckets: list[_Metered] = []
        super().__init__((host, 0), _Connection)


class _Connection(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        while True:
            asked = _read(self.request, _ASK.size)
            if asked is None:
                return
            secret, number, count = _ASK.unpack(asked)
            if not hmac.compare_digest(secret, self.server.secret) or number >= len(self.server.buckets):
                return
            self.request.sendall(_ANSWER.pack(self.server.buckets[number].reserve(count)))


def _read(connection: socket.socket, size: int) -> bytes | None:
    """Exactly `size` bytes, or None when the other side is gone."""
    held = b""
    while len(held) < size:
        try:
            more = connection.recv(size - len(held))
        except OSError:
            return None
        if not more:
            return None
        held += more
    return held


_lock = threading.Lock()
_server: _Server | None = None
_connections: dict[tuple[int, str, int], socket.socket] = {}


def bucket(host: str, name: str, rows_per_second: float) -> Bucket:
    """In the driver: the address of the bucket of this name and cap, made if it is new."""
    global _server
    with _lock:
        if _server is None:
            local = host in _LOOPBACK
            _server = _Server("127.0.0.1" if local else "")
            threading.Thread(target=_server.serve_forever, name="rekappa-tokens", daemon=True).start()
        numbers = {(held.name, held.tokens.rate): at for at, held in enumerate(_server.buckets)}
        if (name, rows_per_second) not in numbers:
            numbers[name, rows_per_second] = len(_server.buckets)
            _server.buckets.append(_Metered(name, rows_per_second))
        # The name is only for people; tasks ask by number, which is put in front of it.
        return Bucket(
            "127.0.0.1" if host in _LOOPBACK else host,
            _server.server_address[1],
            _server.secret,
            f"{numbers[name, rows_per_second]}:{name}",
            rows_per_second,
        )


def ask(bucket: Bucket, rows: int) -> None:
    """In a task: reserve the rows and sleep until they may pass."""
    where = (os.getpid(), bucket.host, bucket.port)
    request = _ASK.pack(bucket.secret, bucket.number, rows)
    for attempt in range(2):
        connection = _connections.get(where)
        try:
            if connection is None:
                connection = _connections[where] = socket.create_connection((bucket.host, bucket.port), timeout=30)
            connection.sendall(request)
            answer = _read(connection, _ANSWER.size)
        except OSError:
            answer = None
        if answer is not None:
            (wait,) = _ANSWER.unpack(answer)
            time.sleep(wait)
            return
        # A worker process outlives a run: its connection may be to a server that is gone.
        if (stale := _connections.pop(where, None)) is not None:
            stale.close()
        if attempt:
            raise RunError(
                f"Cannot ask the rate limiter at {bucket.host}:{bucket.port}",
                hint="Tasks must be able to reach the driver: check spark.driver.host and the firewall.",
            )


def reports() -> list[RateReport]:
    """In the driver: how fast rows pass each cap now."""
    return [held.report() for held in _server.buckets] if _server else []


def passed(name: str) -> int:
    """In the driver: how many rows passed all caps of this name since the process began."""
    return sum(held.total for held in _server.buckets if held.name == name) if _server else 0
