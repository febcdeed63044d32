"""Trying a rewind before anything is touched: the code as it is now, one small batch, on a scratch fork, into nothing.

Spark says there whether the state fits the query. What Spark does not notice is asked of the state's fingerprint first,
and what comes next of Kafka and the archive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rekappa.checkpoints.attempts import trial
from rekappa.checkpoints.files import listed
from rekappa.checkpoints.fingerprint import read_fingerprint, require_same_state
from rekappa.checkpoints.fork import files_of, fork
from rekappa.checkpoints.points import last_restorable, restart_points
from rekappa.checkpoints.restarts import Restart
from rekappa.config.bind import Query
from rekappa.config.load import Loaded
from rekappa.config.model import KafkaCandidate
from rekappa.errors import RunError
from rekappa.plan.catch_up import aligned_ends
from rekappa.plan.coverage import Want, dropped
from rekappa.plan.offsets import Position
from rekappa.planning.catch_up import kept_by_kafka, look
from rekappa.replay.positions import BUCKET
from rekappa.runs.built import BuiltQuery, build_queries
from rekappa.runs.catch_up import NO_DATA, FromArchive, FromKafka
from rekappa.runs.history import reached
from rekappa.runs.live_run import LiveRun, require_kafka
from rekappa.runs.queries import StopBetweenBatches
from rekappa.spark.computing import compute
from rekappa.spark.failures import read_failure
from rekappa.spark.offsetlog import logged_topic, read_batch
from rekappa.spark.plans.topics import topics_read
from rekappa.spark.state import PROVIDER, settings
from rekappa.storage.location import Location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS = 1000
"""How many events the trial reads of each topic."""


def lightly(loaded: Loaded) -> Loaded:
    """The same app, reading little at a time."""

    def light(candidate: object) -> object:
        if not isinstance(candidate, KafkaCandidate):
            return candidate
        return candidate.model_copy(update={"max_records_per_batch": RECORDS * len(candidate.cluster)})

    sources = {
        name: source.model_copy(
            update={"candidates": {key: light(candidate) for key, candidate in source.candidates.items()}}
        )
        for name, source in loaded.config.sources.items()
    }
    return replace(loaded, config=loaded.config.model_copy(update={"sources": sources}))


def preflight(spark: SparkSession, live: LiveRun, chosen: Mapping[str, Restart]) -> dict[str, tuple[str, ...]]:
    """Try every query from its point; answer what is worth saying of each. Refuses what would not go on, or wrongly."""
    light = replace(live, loaded=lightly(live.loaded))
    built = {one.query.name: one for one in build_queries(spark, light, FromKafka(light, spark))}
    notes = {name: _compared(built[name], at) for name, at in chosen.items()}
    tried = _from_archive(spark, live, chosen) or built
    return {name: (*notes[name], *_try(spark, live, tried[name], at)) for name, at in chosen.items()}


@dataclass(frozen=True)
class _ArchiveTrial(FromArchive):
    """The archive from where each query's point is, as far as one small batch goes."""

    points: Mapping[str, Restart] = field(default_factory=dict)

    def query(self, query: Query, rows: DataFrame) -> DataFrame:
        at, order = self.points[query.name], self.live.feeds(query)
        starts = reached(at.folder, at.point.batch, order)
        until = {place: max(start, self.until[query.name].get(place, 0)) for place, start in starts.items()}
        ends = aligned_ends(self.found.points, starts, until, max_rows=RECORDS, max_span=BUCKET)
        log = read_batch(at.folder, at.point.batch).sources
        return self._feeds[query.job].in_step(rows, log, ends[:1])


def _from_archive(spark: SparkSession, live: LiveRun, chosen: Mapping[str, Restart]) -> dict[str, BuiltQuery]:
    """The queries on the archive, where Kafka no longer has what comes next; none where it has. Refuses where the
    archive lacks some of it."""
    wants: dict[Position, Want] = {}
    for query in (query for query in live.bound if query.name in chosen):
        at = chosen[query.name]
        for place, end in reached(at.folder, at.point.batch, live.feeds(query)).items():
            wants[place] = Want(place, min(end, wants[place].start) if place in wants else end)
    if not dropped(wants.values(), kept_by_kafka(live.loaded, live.home, live.sources)):
        return {}
    require_kafka(live)
    found = look(spark, live.loaded, live.home, list(wants.values()))
    found.require(f"rewind {live.loaded.config.app!r}")
    starts, until = {at: want.start for at, want in wants.items()}, dict.fromkeys(chosen, found.coverage.hand_over)
    feeding = _ArchiveTrial(live, spark, found, starts, until, points=chosen)
    return {one.query.name: one for one in build_queries(spark, live, feeding)}


def _compared(one: BuiltQuery, at: Restart) -> tuple[str, ...]:
    """What Spark does not notice: other topics than the log's, and state that would be taken for other state."""
    _require_same_topics(one, at)
    kept = read_fingerprint(at.folder)
    if kept is not None:
        return require_same_state(at.query, kept, one.operators)
    return ("nobody kept what its state is of: only Spark's own comparison of types was made",) * bool(one.operators)


def _try(spark: SparkSession, live: LiveRun, one: BuiltQuery, at: Restart) -> tuple[str, ...]:
    mode = live.loaded.config.sinks[one.query.sink].output_mode
    if _run(spark, live, one, at.folder, at.point.batch, mode):
        return ()
    # Nothing comes after the point: the batch before it has something to read.
    earlier = last_restorable(each for each in restart_points(listed(at.folder)) if each.batch < at.point.batch)
    if earlier is not None and _run(spark, live, one, at.folder, earlier.batch, mode):
        return ()
    return ("not tried: there is nothing to read after this point",)


def _run(spark: SparkSession, live: LiveRun, one: BuiltQuery, folder: Location, batch: int, mode: str) -> bool:
    """One batch after the point, into nothing; false if there was nothing to read."""
    with trial(live.home, live.loaded.config.app, live.run, one.query.name) as scratch:
        fork(folder, files_of(folder, batch), scratch)
        done: list[int] = []

        def nowhere(rows: DataFrame, number: int) -> None:
            if done:
                raise StopBetweenBatches
            compute(rows)
            done.append(number)

        writer = (
            one.rows.writeStream.foreachBatch(nowhere)
            .outputMode(mode)
            .queryName(f"preflight {live.run} {scratch.name}")
        )
        writer = writer.option("checkpointLocation", scratch.uri).trigger(availableNow=True)
        try:
            with settings(spark, {PROVIDER: one.provider, NO_DATA: "false"}):
                query = writer.start()
            query.awaitTermination()
        except Exception as error:
            if StopBetweenBatches.__name__ not in str(error):
                found = read_failure(error)
                raise RunError(
                    f"Cannot go on with query {one.query.name!r} after batch {batch}: {found.cause}",
                    hint=f"{found.remedy or 'It was tried on a copy, into nothing.'} Nothing was changed.",
                ) from error
        return bool(done)


def _require_same_topics(one: BuiltQuery, at: Restart) -> None:
    """Refuse sources that differ from the log in number, order or topic: Spark compares their number alone."""
    before = [logged_topic(line) for line in read_batch(at.folder, at.point.batch).sources]
    now = list(topics_read(one.rows))
    if before != now:
        raise RunError(
            f"Cannot go on with query {one.query.name!r}: by its log it reads {_shown(before)}, now {_shown(now)}",
            hint="Read the same topics in the same order, or rewind with --no-state.",
        )


def _shown(topics: Sequence[str | None]) -> str:
    return ", ".join(topic or "no topic" for topic in topics) or "nothing"
