"""The catch-up source: a topic of one region read from the archive, in Kafka's own offsets.

    inputs = feeds.inputs()                     a DataFrame for each source, as live has them
    rows = feeds.in_step(job_result, log, ends)

What Spark writes to its log of offsets is what its Kafka source would have written, `{"plays":{"0":120,"1":96}}`, one
line for each topic and region. So the same checkpoint goes on from Kafka, and nothing in it is edited.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from rekappa.errors import RunError
from rekappa.plan.catch_up import Cursor, EndOffsets, Holdings
from rekappa.plan.offsets import Position
from rekappa.replay.batches import Feed
from rekappa.replay.driver_source import DriverSource
from rekappa.replay.scan import SliceScan
from rekappa.replay.stream import narrowed, widened
from rekappa.replay.values import ArchiveSource
from rekappa.spark import private

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CATCH_UP = "catch-up of feed "


def offset_line(feed: Feed, ends: EndOffsets) -> str:
    """The line that Spark's Kafka source writes for these ends: those of other feeds are left out."""
    own = {at.partition: end for at, end in sorted(ends.items()) if (at.source, at.region, at.topic) == feed}
    return json.dumps({feed[2]: {str(number): end for number, end in own.items()}}, separators=(",", ":"))


def ends_of(feed: Feed, line: str) -> dict[Position, int]:
    """What a line of Spark's log says of the feed's partitions; refuses one that is about another topic."""
    told = json.loads(line)
    if not isinstance(told, dict) or set(told) != {feed[2]}:
        raise RunError(
            f"Cannot go on: the log of offsets has {', '.join(told) if isinstance(told, dict) else told!r} where the "
            f"job now reads topic {feed[2]!r}",
            hint="The sources of a job must stay as they were, in number, order and topic; or start it without state.",
        )
    return {Position(*feed, int(number)): int(end) for number, end in told[feed[2]].items()}


class CatchUpSource(DriverSource):
    """One place of one query that reads a feed. It ends at the hand-over: Spark then finds nothing more to do."""

    class Java:
        implements = private.SOURCE_THAT_ENDS

    def __init__(self, scan: SliceScan, feed: Feed, number: int, holdings: Holdings, starts: EndOffsets) -> None:
        super().__init__(scan)
        self.feed, self._number, self._holdings = feed, number, holdings
        self.starts = {at: start for at, start in starts.items() if (at.source, at.region, at.topic) == feed}
        self.reader = -1
        self.cursor: Cursor | None = None

    def prepareForTriggerAvailableNow(self) -> None:
        """Where it ends is known beforehand."""

    def latestOffset(self, start: Any, limit: Any) -> Any:
        assert self.cursor is not None, "in_step comes before the query is started"
        ends = self.cursor.next(self.reader)
        # The very offset that Spark has: another writing of it would be taken for new data.
        return start if start is not None and ends == self._ends(start) else self._offset(ends)

    def getBatch(self, start: Any, end: Any) -> Any:
        starts, ends = self._ends(start.get()) if start.isDefined() else self.starts, self._ends(end)
        rows = self._taken(_key(starts, ends), lambda: self._rows(starts, ends))
        following = self.cursor.after(self.reader) if self.cursor is not None else ends
        if following != ends:
            self._prepare(_key(ends, following), lambda: self._rows(ends, following))
        return rows

    def initialOffset(self) -> Any:
        return self._offset(self.starts)

    def toString(self) -> str:
        return f"{CATCH_UP}{self._number} from {self._scan.table}"

    def _rows(self, starts: EndOffsets, ends: EndOffsets) -> Any:
        return self._scan.stream(self._holdings.slice_of(starts, ends))

    def _ends(self, offset: Any) -> dict[Position, int]:
        return ends_of(self.feed, offset.json())

    def _offset(self, ends: EndOffsets) -> Any:
        return private.offset_of(self._scan.spark, offset_line(self.feed, ends))


@dataclass(frozen=True)
class ArchivedFeeds:
    """The feeds of a job, in the order in which live reads them, as the archive has them.

    `archives` are its sources. `starts` is where a query begins that has no log yet.
    """

    spark: SparkSession
    feeds: Sequence[Feed]
    archives: Mapping[str, ArchiveSource]
    holdings: Holdings
    starts: EndOffsets

    def inputs(self) -> dict[str, DataFrame]:
        """A stream for each source in the record's shape: of all its regions, each read by itself, as live does."""
        from pyspark.sql import DataFrame

        found: dict[str, DataFrame] = {}
        for name, archive in self.archives.items():
            narrow = narrowed(archive.schema, archive.columns)
            streams = [
                private.stream_of(self.spark, self._source(number), narrow)
                for number, feed in enumerate(self.feeds)
                if feed[0] == name
            ]
            found[name] = widened(reduce(DataFrame.unionByName, streams), narrow, archive.schema)
        return found

    def in_step(self, rows: DataFrame, log: Sequence[str | None], ends: Sequence[EndOffsets]) -> DataFrame:
        """The query with a reader of its own at every place where it reads a feed, as Spark's Kafka source has them.

        `log` are the lines of the newest batch in the query's log, none for a query that has not begun. Refuses a query
        that does not read what the log is about.
        """
        readers: list[CatchUpSource] = []

        def own(source: Any) -> CatchUpSource:
            number = int(source.toString().removeprefix(CATCH_UP).partition(" from ")[0])
            readers.append(self._source(number))
            readers[-1].reader = len(readers) - 1
            return readers[-1]

        made = private.with_sources(self.spark, rows, own)
        if log and len(log) != len(readers):
            raise RunError(
                f"Cannot go on: the job reads topics in {len(readers)} places, and in {len(log)} by its log of offsets",
                hint="The sources of a job must stay as they were, in number, order and topic; or start without state.",
            )
        cursor = Cursor(ends, [self._reached(one, log) for one in readers])
        for one in readers:
            one.cursor = cursor
        return made

    def _reached(self, one: CatchUpSource, log: Sequence[str | None]) -> EndOffsets:
        line = log[one.reader] if log else None
        # A partition that the log does not know yet is a new one.
        return one.starts if line is None else {**one.starts, **ends_of(one.feed, line)}

    def _source(self, number: int) -> CatchUpSource:
        feed = self.feeds[number]
        archive = self.archives[feed[0]]
        schema = narrowed(archive.schema, archive.columns)
        scan = SliceScan(self.spark, archive.table, schema, (feed[1],), None, archive.fence)
        return CatchUpSource(scan, feed, number, self.holdings, self.starts)


def _key(starts: EndOffsets, ends: EndOffsets) -> tuple[tuple[Position, int, int], ...]:
    return tuple((at, starts.get(at, 0), end) for at, end in sorted(ends.items()))
