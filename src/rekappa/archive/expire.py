"""Dropping the oldest hours of an archive on purpose.

    hours = look(spark, route, cut)     # what would go
    drop(spark, route, cut, pins)       # one commit: the hours go, and the table says so

Only whole files go, by their metadata. Their bytes are free once the snapshots from before are gone, by the table's own
rule (`rekappa.iceberg.upkeep`): until then a rollback brings them back.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from rekappa.archive.expired import PROPERTY, Expired, Place
from rekappa.archive.tables import Route, exists, quoted_table
from rekappa.errors import InputError
from rekappa.iceberg.commits import load_table
from rekappa.iceberg.private import Filters
from rekappa.iceberg.upkeep import expire as let_go
from rekappa.record import INGESTION, OFFSET, PARTITION, REGION, TOPIC
from rekappa.timeline import format_instant, micros

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class OldHours:
    """What goes, or would go, of one source: files that hold only events from before the cut."""

    source: str
    table: str
    before: datetime
    oldest: datetime | None
    files: int
    rows: int
    bytes: int
    dead_letters: int


def cut_at(older_than: timedelta, now: datetime) -> datetime:
    """The beginning of the hour that age ago: an hour goes when all of it is older."""
    return (now - older_than).replace(minute=0, second=0, microsecond=0)


def look(spark: SparkSession, route: Route, cut: datetime) -> OldHours:
    """What would go. Refuses a table with a file that lies on both sides of the cut."""
    from pyspark.sql import functions as F

    spark.sql(f"REFRESH TABLE {quoted_table(route.table)}")
    bounds = f"readable_metrics.`{INGESTION}`"
    low, high = F.col(f"{bounds}.lower_bound"), F.col(f"{bounds}.upper_bound")
    files = spark.table(f"{quoted_table(route.table)}.files").where(low < F.lit(cut))
    astride = files.where(high >= F.lit(cut)).select("file_path").first()
    if astride is not None:
        raise InputError(
            f"Cannot drop what is older than {format_instant(cut)} from {route.table}: a file holds later events too: "
            f"{astride[0]}",
            hint="Only tables that are partitioned by the hour of ingestion, as the router makes them, can be cut.",
        )
    size = F.sum("file_size_in_bytes")
    found = files.agg(F.count("*"), F.sum("record_count"), size, F.min(low)).collect()[0]
    dead = _letters(spark, route, cut)
    return OldHours(
        route.source_name,
        route.table,
        cut,
        found[3].astimezone(UTC) if found[3] else None,
        int(found[0]),
        int(found[1] or 0),
        int(found[2] or 0),
        dead.count() if dead is not None else 0,
    )


def drop(spark: SparkSession, route: Route, cut: datetime, pinned: Collection[int]) -> None:
    """Drop what `look` shows, and remember in the table that it was. Killed in between, the next call ends it."""
    floors = _floors(spark, route, cut)
    table = load_table(spark, quoted_table(route.table))
    told = Expired.of(dict(table.properties())).and_then(cut, floors)
    both = table.newTransaction()
    both.newDelete().deleteFromRowFilter(Filters(spark).below(INGESTION, micros(cut))).commit()
    both.updateProperties().set(PROPERTY, told.as_property()).commit()
    both.commitTransaction()
    if _letters(spark, route, cut) is not None:
        spark.sql(f"DELETE FROM {quoted_table(route.dead_letters)} WHERE {_old_letters(route, cut)}")
    spark.sql(f"REFRESH TABLE {quoted_table(route.table)}")
    for name in (route.table, route.dead_letters):
        if exists(spark, name):
            let_go(spark, quoted_table(name), pinned)


def above_floors(rows: DataFrame, expired: Expired) -> DataFrame:
    """Positions (columns topic, region, partition, offset) of partitions' stretches that nobody dropped from."""
    from pyspark.sql import functions as F

    if not expired.floors:
        return rows
    known = [(*place, floor) for place, floor in expired.floors.items()]
    floors = rows.sparkSession.createDataFrame(known, "topic STRING, region STRING, partition INT, floor BIGINT")
    place = ["topic", "region", "partition"]
    kept = rows.join(F.broadcast(floors), place, "left").where("floor IS NULL OR offset >= floor")
    return kept.select(*rows.columns)


def _floors(spark: SparkSession, route: Route, cut: datetime) -> list[tuple[Place, int]]:
    from pyspark.sql import functions as F

    names = {"topic": TOPIC, "region": REGION, "partition": PARTITION, "offset": OFFSET}
    columns = [F.col(path).alias(name) for name, path in names.items()]
    old = spark.table(quoted_table(route.table)).where(F.col(INGESTION) < F.lit(cut)).select(*columns)
    letters = _letters(spark, route, cut)
    if letters is not None:
        old = old.unionByName(letters.select(*columns))
    highest = old.groupBy("topic", "region", "partition").agg(F.max("offset").alias("last"))
    return [((row["topic"], row["region"], row["partition"]), row["last"] + 1) for row in highest.collect()]


def _letters(spark: SparkSession, route: Route, cut: datetime) -> DataFrame | None:
    if not exists(spark, route.dead_letters):
        return None
    return spark.table(quoted_table(route.dead_letters)).where(_old_letters(route, cut))


def _old_letters(route: Route, cut: datetime) -> str:
    source = route.source_name.replace("'", "''")
    return f"source = '{source}' AND {INGESTION} < TIMESTAMP '{cut.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z'"
