"""Trying a rewind before anything is touched: the code as it is now, one small batch, on a scratch fork, into nothing.

Spark says there whether the state fits the query. What Spark does not notice is asked of the state's fingerprint first,
and what comes next of Kafka and the archive.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import uuid4

from rekappa.checkpoints.files import listed
from rekappa.checkpoints.fingerprint import read_fingerprint, require_same_state
from rekappa.checkpoints.fork import files_of, fork
from rekappa.checkpoints.points import last_restorable, restart_points
from rekappa.checkpoints.restarts import Restart
from rekappa.config.load import Loaded
from rekappa.config.model import KafkaCandidate
from rekappa.errors import RunError
from rekappa.home import Home
from rekappa.plan.coverage import Want, dropped
from rekappa.plan.offsets import Position
from rekappa.planning.catch_up import kept_by_kafka, look
from rekappa.runs.built import BuiltQuery, build_queries
from rekappa.runs.catch_up import FromKafka
from rekappa.runs.history import reached
from rekappa.runs.live_run import LiveRun
from rekappa.runs.queries import StopBetweenBatches
from rekappa.spark.failures import read_failure
from rekappa.spark.offsetlog import last_committed, last_planned, read_batch
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
    gone = _archived(spark, live, built, chosen)
    return {query: _try(spark, live, built[query], one, gone) for query, one in chosen.items()}


def _archived(
    spark: SparkSession, live: LiveRun, built: Mapping[str, BuiltQuery], chosen: Mapping[str, Restart]
) -> bool:
    """Whether the archive has to be read first; refuses where that lacks some of what Kafka has dropped."""
    wants: dict[Position, Want] = {}
    for name, at in chosen.items():
        for place, end in reached(at.folder, at.point.batch, live.feeds(built[name].query)).items():
            wants[place] = Want(place, min(end, wants[place].start) if place in wants else end)
    if not dropped(wants.values(), kept_by_kafka(live.loaded, live.home, live.sources)):
        return False
    look(spark, live.loaded, live.home, list(wants.values())).require(f"rewind {live.loaded.config.app!r}")
    return True


def _try(spark: SparkSession, live: LiveRun, one: BuiltQuery, at: Restart, archived: bool) -> tuple[str, ...]:
    kept = read_fingerprint(at.folder)
    notes = [] if kept is None else list(require_same_state(at.query, kept, one.operators))
    if kept is None and one.operators:
        notes.append("nobody kept what its state is of: only Spark's own comparison of types was made")
    if archived:
        return (*notes, "not tried: Kafka has dropped what comes next, the archive will be read first")
    mode = live.loaded.config.sinks[one.query.sink].output_mode
    ran = _run(spark, live.home, one, at.folder, at.point.batch, mode)
    if not ran:
        # Nothing comes after the point: the batch before it has something to read.
        earlier = last_restorable(each for each in restart_points(listed(at.folder)) if each.batch < at.point.batch)
        ran = earlier is not None and _run(spark, live.home, one, at.folder, earlier.batch, mode)
    if not ran:
        notes.append("not tried: there is nothing to read after this point")
    return tuple(notes)


def _run(spark: SparkSession, home: Home, one: BuiltQuery, folder: Location, batch: int, mode: str) -> bool:
    """One batch after the point, into nothing; false if there was nothing to read."""
    with _scratch(home) as scratch:
        fork(folder, files_of(folder, batch), scratch)
        done: list[int] = []

        def nowhere(rows: DataFrame, number: int) -> None:
            if done:
                raise StopBetweenBatches
            rows.write.format("noop").mode("overwrite").save()
            done.append(number)

        writer = one.rows.writeStream.foreachBatch(nowhere).outputMode(mode).queryName(f"preflight {scratch.name}")
        writer = writer.option("checkpointLocation", scratch.uri).trigger(availableNow=True)
        try:
            with settings(spark, {PROVIDER: one.provider}):
                query = writer.start()
            query.awaitTermination()
        except Exception as error:
            if StopBetweenBatches.__name__ not in str(error):
                found = read_failure(error)
                raise RunError(
                    f"Cannot go on with query {one.query.name!r} after batch {batch}: {found.cause}",
                    hint=f"{found.remedy or 'It was tried on a copy, into nothing.'} Nothing was changed.",
                ) from error
        if done and last_planned(scratch) is not None:
            _require_same_topics(one, folder, batch, scratch)
        return bool(done)


def _require_same_topics(one: BuiltQuery, folder: Location, batch: int, scratch: Location) -> None:
    """Refuse sources in another order than the log has them: Spark compares their number alone."""
    last = last_committed(scratch)
    before, after = (
        [sorted(_topics(line)) for line in read_batch(at, number).sources]
        for at, number in ((folder, batch), (scratch, batch if last is None else last))
    )
    if before != after:
        raise RunError(
            f"Cannot go on with query {one.query.name!r}: its state was made of {before}, now it reads {after}",
            hint="Read the same topics in the same order, or rewind with --no-state.",
        )


def _topics(line: str | None) -> list[str]:
    import json

    told = json.loads(line) if line and line.startswith("{") else None
    return list(told) if isinstance(told, dict) else []


@contextmanager
def _scratch(home: Home) -> Iterator[Location]:
    folder = home.storage / "preflight" / uuid4().hex
    try:
        yield folder
    finally:
        folder.remove()
