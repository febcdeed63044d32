"""Opening an app's sources by name, whichever candidate is selected.

Every way of opening gives the same record: the same columns, types and nullability.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rekappa.config.model import Candidate, HiveCandidate, IcebergCandidate, KafkaCandidate, Source
from rekappa.errors import ConfigError, SourceError
from rekappa.home import Home
from rekappa.plan.plan import SourcePlan
from rekappa.record import HEADERS
from rekappa.sources.decode import payload_type
from rekappa.timeline import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rekappa.config.load import Loaded


def open_stream(spark: SparkSession, loaded: Loaded, home: Home, source_name: str) -> DataFrame:
    """The selected candidate as a stream: Kafka, or an archive with `follow: true`."""
    source = named_source(loaded, source_name)
    candidate = _selected(source_name, source)
    if isinstance(candidate, KafkaCandidate):
        from pyspark.sql import functions as F

        from rekappa.fence.filter import counting
        from rekappa.fence.line import Fence
        from rekappa.sources.fenced import live_fence
        from rekappa.sources.kafka import messages, records

        try:
            fence = live_fence(loaded.config, home, candidate)
        except SourceError:
            # Left to Spark, which may know the cluster by other settings. A message of any sender stops the query then.
            fence = Fence()
        raw = messages(spark, loaded.config, home, candidate).where(counting(F.col("headers"), fence))
        return records(raw, loaded, source)
    if isinstance(candidate, IcebergCandidate) and candidate.follow:
        from rekappa.sources.iceberg import follow_archive

        return fenced(follow_archive(spark, candidate, payload_type(source, loaded.folder)), loaded, home, source)
    raise SourceError(
        f"Cannot run source {source_name!r} live: its candidate {source.selected!r} ({candidate.type}) ends",
        hint=f"Select a kafka candidate, or an iceberg one with follow: true: --set sources.{source_name}.selected=…",
    )


def open_batch(
    spark: SparkSession,
    loaded: Loaded,
    home: Home,
    source_name: str,
    reads: Window | None,
    regions: Sequence[str] = (),
    columns: Sequence[str] | None = None,
    planned: SourcePlan | None = None,
) -> DataFrame:
    """Past events as a batch, from the source's archive: rows ingested in `reads` (all, if None) of `regions`
    (all, if empty). `columns` are the payload columns to keep (all, if None); `__metadata__` is always there.

    With `planned`, an Iceberg archive is read at the snapshot that the plan was made on, not as it is now.
    """
    source = named_source(loaded, source_name)
    _, candidate = past_candidate(source_name, source)
    payload = payload_type(source, loaded.folder)
    if isinstance(candidate, IcebergCandidate):
        from rekappa.sources.iceberg import read_archive

        rows = read_archive(spark, candidate, payload, reads, regions, columns, planned)
        return fenced(rows, loaded, home, source)
    from rekappa.sources.hive import read_hive

    return read_hive(spark, candidate, source, payload, reads, regions, columns)


def fenced(rows: DataFrame, loaded: Loaded, home: Home, source: Source) -> DataFrame:
    """The rows of a source's archive that count: it holds whatever the topic held."""
    from rekappa.sources.fenced import archive_fence

    fence = archive_fence(loaded.config, home, source)
    if fence is None:
        return rows
    from pyspark.sql import functions as F

    from rekappa.fence.filter import counting

    return rows.where(counting(F.col(HEADERS), fence))


def past_candidate(source_name: str, source: Source) -> tuple[str, IcebergCandidate | HiveCandidate]:
    """Where a backfill reads this source: the selected candidate if it holds past events, else the first that does."""
    for name in (source.selected, *source.candidates):
        candidate = source.candidates.get(name)
        if isinstance(candidate, IcebergCandidate | HiveCandidate):
            return name, candidate
    raise SourceError(
        f"Cannot read the past of source {source_name!r}: it has no iceberg or hive candidate",
        hint=f"Add one under sources.{source_name}.candidates, for example  backfill: {{type: iceberg, table: …}}",
    )


def named_source(loaded: Loaded, source_name: str) -> Source:
    """The source of that name; refused with the names there are."""
    found = loaded.config.sources.get(source_name)
    if found is None:
        raise ConfigError(
            f"Cannot find source {source_name!r}", hint=f"Sources of the app: {', '.join(loaded.config.sources)}."
        )
    return found


def _selected(source_name: str, source: Source) -> Candidate:
    found = source.candidates.get(source.selected)
    if found is None:
        raise SourceError(
            f"Cannot open source {source_name!r}: it has no candidate {source.selected!r}",
            hint=f"Candidates: {', '.join(source.candidates)}.",
        )
    return found
