"""How long to wait before a command that failed is started again, and when to give up. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Patience:
    """The pause doubles with each failure. A command that ran for `healthy` had recovered: counting begins anew."""

    first: timedelta = timedelta(seconds=2)
    longest: timedelta = timedelta(minutes=5)
    most: int = 10
    healthy: timedelta = timedelta(minutes=10)

    def pause(self, restarts: int, ran: timedelta) -> tuple[int, timedelta] | None:
        """After a failure: how many restarts that makes in a row, and how long to wait; None to give up."""
        count = 1 if ran >= self.healthy else restarts + 1
        if count > self.most:
            return None
        return count, min(self.longest, self.first * 2 ** (count - 1))
