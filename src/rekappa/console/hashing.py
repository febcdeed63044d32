"""Comparing passwords: slow and hungry for memory on purpose, so few at a time, and nobody else waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from rekappa.console.guard import Denied
from rekappa.operations.logins import fits

AT_ONCE = 2
MOST_WAITING = 16
"""Who comes when so many wait already is sent away: strangers need no login to make a console compare."""


@dataclass(slots=True)
class Hashing:
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(AT_ONCE, "hashing"))
    _waiting: int = 0

    @contextmanager
    def room(self) -> Iterator[None]:
        """A place among those who wait; refuses when there is none. Called in the event loop, as everything here."""
        if self._waiting >= MOST_WAITING:
            raise Denied(503, "Too many logins at once. Try again in a moment.")
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    async def fits(self, password: str, secret: str) -> bool:
        """Whether it is the password of this hash."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, fits, password, secret)
