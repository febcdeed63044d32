"""Where a live run reads from: the archive as long as it must, then Kafka, on one checkpoint.

    for feeding in feedings(live):
        start the queries on feeding.inputs(job), and wait until they end

The archive is read for the history of a bootstrapped run, and whenever Kafka no longer has what comes next: after a
rewind, or a stop, past its retention. If Kafka has dropped the hand-over too when a round is done, another one follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from rekappa.app import Job
from rekappa.config.bind import Query
from rekappa.errors import SourceError, WorkFailed
from rekappa.plan.catch_up import EndOffsets
from rekappa.plan.coverage import Want, dropped
from rekappa.plan.offsets import Position
from rekappa.planning.catch_up import ArchiveLook, kept_by_kafka, look
from rekappa.replay.batches import feeds, positions
from rekappa.replay.catch_up import ArchivedFeeds, offset_line
from rekappa.runs.history import History, reached
from rekappa.runs.live_run import LiveRun, require_kafka
from rekappa.sources.open import open_stream
from rekappa.spark.offsetlog import last_planned, read_batch
from rekappa.store.claim import Claim
from rekappa.store.record import Batch
from rekappa.store.runs import RunStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NO_DATA = "spark.sql.streaming.noDataMicroBatches.enabled"


class Feeding(Protocol):
    """What the queries of a live run read for a while."""

    @property
    def ends(self) -> bool:
        """Whether the queries end by themselves when they have read it."""

    def takes(self, query: Query) -> bool:
        """Whether the query reads it at all."""

    def inputs(self, job: Job) -> Mapping[str, DataFrame]:
        """The job's sources."""

    def query(self, query: Query, rows: DataFrame) -> DataFrame:
        """The query as it is started."""

    def settings(self, query: Query) -> Mapping[str, str]:
        """Spark's settings for it, besides those of the run."""


@dataclass(frozen=True)
class FromKafka:
    """Live, until stopped."""

    live: LiveRun
    spark: SparkSession
    ends: bool = False

    def takes(self, query: Query) -> bool:
        return True

    def inputs(self, job: Job) -> Mapping[str, DataFrame]:
        return {name: open_stream(self.spark, self.live.loaded, self.live.home, name) for name in job.sources}

    def query(self, query: Query, rows: DataFrame) -> DataFrame:
        return rows

    def settings(self, query: Query) -> Mapping[str, str]:
        return {}


@dataclass(frozen=True)
class FromArchive:
    """One round: each query from where it is up to `until`, by its name."""

    live: LiveRun
    spark: SparkSession
    found: ArchiveLook
    starts: EndOffsets
    until: Mapping[str, EndOffsets]
    closed: frozenset[str] = frozenset()
    ends: bool = True
    _feeds: dict[str, ArchivedFeeds] = field(default_factory=dict)

    def takes(self, query: Query) -> bool:
        return query.name in self.until

    def inputs(self, job: Job) -> Mapping[str, DataFrame]:
        order = feeds(self.live.loaded.config, job)
        archives = {name: self.found.archives[name] for name in job.sources}
        self._feeds[job.name] = ArchivedFeeds(self.spark, order, archives, self.found.holdings, self.starts)
        return self._feeds[job.name].inputs()

    def query(self, query: Query, rows: DataFrame) -> DataFrame:
        checkpoint = self.live.checkpoint(query)
        planned = last_planned(checkpoint)
        log = read_batch(checkpoint, planned).sources if planned is not None else ()
        own = {at for at in self.starts if at[:3] in self.live.feeds(query)}
        at = {position: self.starts[position] for position in own} | self._standing(query, planned)
        until = {position: max(end, self.until[query.name].get(position, 0)) for position, end in at.items()}
        return self._feeds[query.job].in_step(rows, log, self.found.ends(at, until))

    def settings(self, query: Query) -> Mapping[str, str]:
        """Between archive and Kafka no time passes: nothing closes because there is a pause."""
        return {} if query.name in self.closed else {NO_DATA: "false"}

    def _standing(self, query: Query, planned: int | None) -> dict[Position, int]:
        if planned is None:
            return {}
        return reached(self.live.checkpoint(query), planned, self.live.feeds(query))


def require_readable(live: LiveRun, spark: Callable[[], SparkSession], *, allow_gaps: bool = False) -> None:
    """Refuse a run whose next events neither Kafka nor the archive has; touches nothing. Spark is needed only where
    Kafka has dropped some."""
    wants = live.unread()
    if _dropped(live, wants):
        require_kafka(live)
        found = look(spark(), live.loaded, live.home, _all(wants, live), allow_gaps=allow_gaps)
        found.require(f"run {live.loaded.config.app!r}")


def feedings(
    live: LiveRun, spark: SparkSession, store: RunStore, claim: Claim, tell: Callable[[str], None]
) -> Iterator[Feeding]:
    """What to read, one after the other; the caller runs the queries on each and then asks for the next."""
    history = live.history()
    if history is not None:
        _record_beginning(live, history, store, claim)
        if left := _left(live, history):
            unread = _history_wants(live, history, left)
            found = look(spark, live.loaded, live.home, unread, allow_gaps=history.allow_gaps)
            found.require(f"run {live.loaded.config.app!r}")
            tell(f"reading history since {history.since:%Y-%m-%d %H:%M} UTC from the archive")
            yield FromArchive(live, spark, found, history.starts, left, history.closed)
            if left := _left(live, history):
                raise WorkFailed(f"Cannot go on with {', '.join(left)}: its query ended before its history did")
    # Once more after history, for what has been archived meanwhile; else only where Kafka lacks something.
    again = history is not None
    while True:
        wants = live.unread()
        gone = _dropped(live, wants)
        if not gone and not (again and wants):
            break
        found = look(spark, live.loaded, live.home, _all(wants, live))
        if gone:
            found.require(f"run {live.loaded.config.app!r}")
            tell(f"Kafka has dropped what comes next in {len(gone)} partitions: reading the archive first")
        if found.coverage.holes or found.doubled or not found.coverage.from_archive:
            break
        begun = [query for query in live.bound if live.wants(query)]
        until = {query.name: found.coverage.hand_over for query in begun}
        yield FromArchive(live, spark, found, {at: want.start for at, want in wants.items()}, until)
        again = False
        if live.unread() == wants:
            raise WorkFailed("Cannot go on: nothing of what the archive has was read")
    yield FromKafka(live, spark)


def _dropped(live: LiveRun, wants: Mapping[Position, Want]) -> list[Want]:
    """What Kafka no longer has. A cluster that does not answer us is left to Spark, which may know it by other
    settings."""
    try:
        return dropped(wants.values(), kept_by_kafka(live.loaded, live.home, live.sources)) if wants else []
    except SourceError:
        return []


def _all(wants: Mapping[Position, Want], live: LiveRun) -> list[Want]:
    """With the partitions that no log knows yet: they are new, and begin at 0."""
    known = kept_by_kafka(live.loaded, live.home, {at.source for at in wants})
    return [*wants.values(), *(Want(at, 0) for at in known if at not in wants)]


def _history_wants(live: LiveRun, history: History, left: Mapping[str, EndOffsets]) -> list[Want]:
    """What is left of history. It is read from the archive alone, as if it had been begun up to its end."""
    found: dict[Position, Want] = {}
    for query in (query for query in live.bound if query.name in left):
        stands = live.wants(query)
        for at, end in left[query.name].items():
            start = stands[at].start if at in stands else history.starts[at]
            other = found.get(at, Want(at, start))
            found[at] = Want(at, min(start, other.start), max(end, other.begun))
    return list(found.values())


def _left(live: LiveRun, history: History) -> dict[str, EndOffsets]:
    """The queries that have not read their history yet, with where it ends."""
    left: dict[str, EndOffsets] = {}
    for query in live.bound:
        until = {at: end for at, end in history.until.get(query.name, {}).items() if at[:3] in live.feeds(query)}
        stands = {at: want.start for at, want in live.wants(query).items()} or dict(history.starts)
        if any(stands.get(at, 0) < end for at, end in until.items()):
            left[query.name] = until
    return left


def _record_beginning(live: LiveRun, history: History, store: RunStore, claim: Claim) -> None:
    """Note where the queries began: Spark keeps that for its own Kafka source alone."""
    assert claim.run is not None, "a run that has begun"
    for query in live.bound:
        if store.last_batch(claim.run, query.name) is None:
            order = live.feeds(query)
            starts = positions([offset_line(feed, history.starts) for feed in order], order)
            store.record_batches([Batch(claim.run, query.name, -1, starts, None, datetime.now(UTC))], claim)
