"""A topic's archived changes as versions of the rows of a table: new rows, Debezium's envelope, and tombstones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rekappa.config.lookups import ChangesLookup
from rekappa.record import INGESTION, METADATA, OFFSET
from rekappa.spark.names import quoted
from rekappa.timeline import TICK

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

GONE = "rekappa_deleted"
"""Whether a version is the end of its key, where the rows have no column that says so."""
ARRIVED, PLACE, RANK = "__arrived", "__place", "__rank"
"""When a change counts, its place in Kafka, and what ranks it: its own number if there is one, then its place."""
KAFKA = ("__kafka_key", "__kafka_place")
"""The key and the partition that Kafka had a change under: a tombstone tells nothing else."""


def changes(rows: DataFrame, declared: ChangesLookup) -> DataFrame:
    """Archived changes as versions: the columns of the table that changed, when each change counts, and KAFKA."""
    from pyspark.sql import functions as F

    if declared.envelope is None:
        gone = [] if declared.deleted else [F.lit(False).alias(GONE)]
        own = [F.col(quoted(name)) for name in rows.columns if name != METADATA]
        return rows.select(*own, *_when(declared), *gone)
    after = rows.schema["after"].dataType
    values = [
        F.coalesce(F.col(f"after.{quoted(name)}"), F.col(f"before.{quoted(name)}")).alias(name)
        if name in declared.key
        else F.col(f"after.{quoted(name)}").alias(name)
        for name in after.fieldNames()  # type: ignore[attr-defined]
    ]
    ranked = [F.col(declared.sequence).alias(declared.sequence)] if declared.sequence else []
    known = rows.where(F.col("op").isNotNull())
    made = known.select(*values, *ranked, *_when(declared), (F.col("op") == "d").alias(GONE))
    # An update may give a row another key: the one that it had before ends.
    moved = F.lit(False)
    for name in declared.key:
        moved = moved | (F.col(f"before.{quoted(name)}") != F.col(f"after.{quoted(name)}"))
    left = [F.col(f"before.{quoted(name)}").alias(name) for name in declared.key]
    ended = known.where(moved).select(*left, *ranked, *_when(declared), F.lit(True).alias(GONE))
    return made.unionByName(ended, allowMissingColumns=True)


def ranked_by(rows: DataFrame, declared: ChangesLookup) -> DataFrame:
    """The rows with RANK in place of what it is made of, and without KAFKA: of equal numbers the later one counts."""
    from pyspark.sql import functions as F

    parts = [F.col(quoted(declared.sequence))] if declared.sequence else []
    made = rows.withColumn(RANK, F.struct(*parts, F.col(PLACE)))
    return made.drop(*KAFKA, PLACE, *(one for one in (declared.sequence,) if one and one not in declared.key))


def tombstones(letters: DataFrame, known: DataFrame, declared: ChangesLookup) -> DataFrame:
    """The ends that messages without a value tell. `letters` are what the router put aside, `known` the `changes`.

    Such a message has nothing but Kafka's key: it ends the rows whose changes came before it under the same key, and
    has the number of the newest of them.
    """
    from pyspark.sql import functions as F

    ends = letters.where(F.col("value").isNull() & F.col(f"{METADATA}.key").isNotNull()).select(*_when(declared))
    before = known.select(
        *(F.col(quoted(name)) for name in declared.key),
        *(F.col(name).alias(f"{name}_known") for name in (*KAFKA, PLACE)),
        *([F.col(quoted(declared.sequence))] if declared.sequence else []),
    )
    same = F.col(PLACE) > F.col(f"{PLACE}_known")
    for name in KAFKA:
        same = same & F.col(name).eqNullSafe(F.col(f"{name}_known"))
    ranked = [F.max(quoted(declared.sequence)).alias(declared.sequence)] if declared.sequence else []
    found = ends.join(before, same).groupBy(*map(quoted, declared.key), *KAFKA, PLACE, ARRIVED)
    told = found.agg(*ranked, F.lit(True).alias(declared.deleted or GONE))
    # A union reads columns of one name as of one type.
    return told.select(*(F.col(quoted(name)).cast(known.schema[name].dataType).alias(name) for name in told.columns))


def _when(declared: ChangesLookup) -> list[Column]:
    from pyspark.sql import functions as F

    counts = F.unix_micros(F.col(INGESTION)) + F.lit(declared.lag // TICK)
    place = F.struct(*(F.col(f"{METADATA}.{name}") for name in ("topic", "partition", "region")))
    key, where = KAFKA
    return [
        F.timestamp_micros(counts).alias(ARRIVED),
        F.col(OFFSET).alias(PLACE),
        F.col(f"{METADATA}.key").alias(key),
        place.alias(where),
    ]
