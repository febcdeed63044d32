"""When output is final: no event that is not late, and that was not read, could still change it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from rekappa.timeline import Window


@dataclass(frozen=True, slots=True)
class Finality:
    """An event comes at most `ahead` before and, unless it is late, at most `delay` after its own time; the archive
    has all that was ingested before `archived`. A row needs events up to `after` after its own time, None if nothing
    bounds it (sessions by their start, custom state); `open_before` says the same of events before it (sessions by
    their end). `gap` is the longest gap of the job's session windows, if it has any. `held` says that rows may wait in
    state until the watermark has passed them.
    """

    archived: datetime
    ahead: timedelta = timedelta()
    delay: timedelta = timedelta()
    after: timedelta | None = None
    gap: timedelta | None = None
    open_before: bool = False
    held: bool = False

    def settled(self, reads: Window) -> datetime:
        """The event time below which every event that is not late is read: as far as a watermark may be moved."""
        return min(reads.end, self.archived) - self.delay

    def final_until(self, reads: Window) -> datetime | None:
        """Rows with a lower time are final. None if only the state knows which rows are."""
        return None if self.after is None else self.settled(reads) - self.after

    def written_until(self, watermark: datetime) -> datetime:
        """Rows with a lower time have come out of a run whose watermark stands there, as far as that can be known."""
        return watermark - (self.after if self.after is not None else self.gap or timedelta())

    def of_recorded(self) -> Finality:
        """Over production's own micro-batches there is no edge at the end: what they left open, it did not write."""
        return replace(self, after=self.after or timedelta())

    def known_from(self, reads: Window) -> datetime:
        """A session that begins from here on began there: an event that it would go on from would have been read."""
        return reads.start + self.ahead + (self.gap or timedelta())
