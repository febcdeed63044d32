"""A topic's archived changes as versions of the rows of a table: new rows, Debezium's envelope, and tombstones.

The order of a key's changes is Kafka's: by offset within a partition, by Kafka's time across partitions, and at one
time by topic, partition and region. Where a producer's clock makes times of a partition go back, a change counts from
the latest time of those before it in its partition: the order within a partition holds, and what a live run has seen is
not changed by what comes later. A change that tells no key changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from rekappa.config.lookups import ChangesLookup
from rekappa.record import INGESTION, METADATA, OFFSET
from rekappa.spark.names import quoted
from rekappa.timeline import TICK

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

GONE = "rekappa_deleted"
"""Whether a version is the end of its key, where the rows have no column that says so."""
ARRIVED, RANK = "__arrived", "__rank"
"""When a change counts, and what ranks those of one key."""
_KEY, _WHERE, _OFFSET = "__kafka_key", "__kafka_partition", "__kafka_offset"
"""The key, the partition and the offset that Kafka had a change under: a tombstone tells nothing else."""
_LAST, _LEFT = "__last_word", "__left"
"""Whether a change is a tombstone, and whether its row went on under another key.

The numbers of changes after a tombstone are compared with each other alone.
"""
_CLEARED = "t"
"""What Debezium calls the truncation of the whole table."""


def versions_of_changes(rows: DataFrame, letters: DataFrame | None, declared: ChangesLookup) -> DataFrame:
    """Archived changes as versions: the columns of the table that changed, when each change counts, and RANK.

    `letters` are the messages that the router put aside, tombstones among them.
    """
    made = _unpacked(rows, declared) if declared.envelope else _plain(rows, declared)
    if letters is not None:
        made = made.unionByName(_tombstones(letters, made, declared), allowMissingColumns=True)
    return _ranked(made, declared)


def keyless(rows: DataFrame, declared: ChangesLookup) -> DataFrame:
    """The archived changes that are left out: they do not say whose they are."""
    from pyspark.sql import functions as F

    if declared.envelope is None:
        return rows.where(_any_null(F.col(quoted(name)) for name in declared.key))
    changed = rows.where(F.col("op").isNotNull() & (F.col("op") != _CLEARED))
    return changed.where(_any_null(_either(name) for name in declared.key))


def _plain(rows: DataFrame, declared: ChangesLookup) -> DataFrame:
    from pyspark.sql import functions as F

    gone = [] if declared.deleted else [F.lit(False).alias(GONE)]
    own = [F.col(quoted(name)) for name in rows.columns if name != METADATA]
    told = rows.where(~_any_null(F.col(quoted(name)) for name in declared.key))
    return told.select(*own, *_when(declared), *gone)


def _unpacked(rows: DataFrame, declared: ChangesLookup) -> DataFrame:
    """What Debezium's envelope tells: a row's new values, its end, that of the key it had before, or that of all."""
    from pyspark.sql import functions as F

    after = rows.schema["after"].dataType
    values = [
        (_either(name) if name in declared.key else F.col(f"after.{quoted(name)}")).alias(name)
        for name in after.fieldNames()  # type: ignore[attr-defined]
    ]
    numbers = [F.col(declared.sequence).alias(declared.sequence)] if declared.sequence else []
    changed = rows.where(F.col("op").isNotNull() & (F.col("op") != _CLEARED))
    made = changed.select(*values, *numbers, *_when(declared), (F.col("op") == "d").alias(GONE))
    made = made.where(~_any_null(F.col(quoted(name)) for name in declared.key))
    moved = reduce(or_, (F.col(f"before.{quoted(name)}") != F.col(f"after.{quoted(name)}") for name in declared.key))
    left = [F.col(f"before.{quoted(name)}").alias(name) for name in declared.key]
    ended = changed.where(moved).select(*left, *numbers, *_when(declared, left=True), F.lit(True).alias(GONE))
    ended = ended.where(~_any_null(F.col(quoted(name)) for name in declared.key))
    # The end of a key that has no row yet changes nothing, so that which keys there were then need not be asked.
    every = made.select(*(F.col(quoted(name)) for name in declared.key)).distinct()
    cleared = rows.where(F.col("op") == _CLEARED).select(*numbers, *_when(declared), F.lit(True).alias(GONE))
    # It concerns no row of its own: no tombstone is about it.
    cleared = cleared.withColumn(_KEY, F.lit(None).cast("binary"))
    ends = ended.unionByName(cleared.crossJoin(every))
    return made.unionByName(ends, allowMissingColumns=True)


def _tombstones(letters: DataFrame, known: DataFrame, declared: ChangesLookup) -> DataFrame:
    """The ends that messages without a value tell: of the rows whose changes came before under the same Kafka key.

    A key that such a row has left may be another row's by now: it is not ended.
    """
    from pyspark.sql import functions as F

    ends = letters.where(F.col("value").isNull() & F.col(f"{METADATA}.key").isNotNull())
    ends = ends.select(*_when(declared, last=True))
    before = known.select(
        *(F.col(quoted(name)) for name in declared.key),
        *(F.col(name).alias(f"{name}_known") for name in (_KEY, ARRIVED, _WHERE, _OFFSET, _LEFT)),
    )
    there = F.col(_WHERE).eqNullSafe(F.col(f"{_WHERE}_known"))
    later = F.when(there, F.col(f"{_OFFSET}_known") < F.col(_OFFSET)).otherwise(
        F.col(f"{ARRIVED}_known") <= F.col(ARRIVED)
    )
    found = ends.join(before, (F.col(_KEY) == F.col(f"{_KEY}_known")) & later)
    newest = F.struct(*(F.col(f"{name}_known") for name in (ARRIVED, _WHERE, _OFFSET)))
    told = found.groupBy(*map(quoted, declared.key), *ends.columns).agg(
        F.max_by(f"{_LEFT}_known", newest).alias("__by")
    )
    return told.where(~F.col("__by")).drop("__by").withColumn(declared.deleted or GONE, F.lit(True))


def _ranked(rows: DataFrame, declared: ChangesLookup) -> DataFrame:
    """The rows with RANK in place of what it is made of: of equal numbers the later one counts."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    key = [F.col(quoted(name)) for name in declared.key]
    within = Window.partitionBy(*key, _WHERE).orderBy(_OFFSET)
    made = rows.withColumn(ARRIVED, F.max(ARRIVED).over(within))
    place, numbers = [ARRIVED, _WHERE, _OFFSET], []
    if declared.sequence:
        line = F.count(F.when(F.col(_LAST), 1)).over(Window.partitionBy(*key).orderBy(*place))
        # A tombstone has no number: it comes before all that follows it.
        numbers = [line, F.col(quoted(declared.sequence))]
    made = made.withColumn(RANK, F.struct(*numbers, *map(F.col, place)))
    own = [declared.sequence] if declared.sequence and declared.sequence not in declared.key else []
    return made.drop(_KEY, _WHERE, _OFFSET, _LAST, _LEFT, *own)


def _when(declared: ChangesLookup, *, last: bool = False, left: bool = False) -> list[Column]:
    from pyspark.sql import functions as F

    counts = F.unix_micros(F.col(INGESTION)) + F.lit(declared.lag // TICK)
    place = F.struct(*(F.col(f"{METADATA}.{name}") for name in ("topic", "partition", "region")))
    return [
        F.timestamp_micros(counts).alias(ARRIVED),
        F.col(OFFSET).alias(_OFFSET),
        F.col(f"{METADATA}.key").alias(_KEY),
        place.alias(_WHERE),
        F.lit(last).alias(_LAST),
        F.lit(left).alias(_LEFT),
    ]


def _either(name: str) -> Column:
    """A column of a key: a delete tells only what was before."""
    from pyspark.sql import functions as F

    return F.coalesce(F.col(f"after.{quoted(name)}"), F.col(f"before.{quoted(name)}"))


def _any_null(columns: Iterable[Column]) -> Column:
    return reduce(or_, (column.isNull() for column in columns))
