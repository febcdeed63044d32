"""Proving that the archive has every offset once: no gap, no duplicate, partition by partition.

Messages in the dead letters count as present; below what was dropped on purpose (`rekappa.archive.expire`) nothing is
looked at. Some offsets hold no message for a reader: transaction markers, aborted
transactions where only committed ones are read, messages that compaction removed. By the archive alone they can't be
told from lost ones, so Kafka is asked what it has in the gaps (`rekappa.archive.gaps`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rekappa.archive.damage import naming_damage
from rekappa.archive.expire import above_floors
from rekappa.archive.expired import Expired
from rekappa.archive.gaps import AskedTopic, told_by_kafka
from rekappa.archive.proofs import SHOWN, PartitionProof, times_of
from rekappa.archive.tables import Route, exists, quoted_table
from rekappa.iceberg.commits import load_table
from rekappa.plan.model import OffsetRange
from rekappa.record import INGESTION, OFFSET, PARTITION, REGION, TOPIC
from rekappa.replay.scan import within_offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def verify(
    spark: SparkSession,
    route: Route,
    ask: Callable[[], Sequence[AskedTopic]] = lambda: (),
    within: Sequence[OffsetRange] = (),
) -> list[PartitionProof]:
    """One proof per region, topic and partition of the route's table. Where there are gaps, `ask` gives the clusters to
    be asked about them; an offset of any other counts as missing.

    With `within`, only these offsets are looked at; what is missing before the first or after the last that is there is
    the caller's to tell. Counts are exact; of gaps and duplicates no more than the first `SHOWN` of a partition are
    gathered.
    """
    held = _positions(spark, route, within)
    proofs = _by_the_archive(spark, route, held)
    clusters = ask() if any(proof.missing for proof in proofs) else ()
    if not clusters:
        return proofs
    offsets = held.select("topic", "region", "partition", "offset").distinct()
    with naming_damage(spark, route.table, "verify"):
        return told_by_kafka(spark, proofs, offsets, clusters)


def _by_the_archive(spark: SparkSession, route: Route, held: DataFrame) -> list[PartitionProof]:
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    part = ["topic", "region", "partition"]
    times = held.groupBy(*part, "offset").agg(
        F.count("*").alias("times"), F.sum("dead").alias("dead"), F.min("micros").alias("micros")
    )
    in_order = Window.partitionBy(*part).orderBy("offset")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    checked = times.withColumn("hole", F.col("offset") - F.lag("offset").over(in_order) - 1)
    checked = checked.withColumn("before", F.lag("micros").over(in_order))
    checked = checked.withColumn("nth_gap", F.count_if(F.col("hole") > 0).over(so_far))
    checked = checked.withColumn("nth_twice", F.count_if(F.col("times") > 1).over(so_far))
    is_gap = (F.col("hole") > 0) & (F.col("nth_gap") <= SHOWN)
    is_twice = (F.col("times") > 1) & (F.col("nth_twice") <= SHOWN)
    gap = F.when(is_gap, F.array(F.col("offset") - F.col("hole"), F.col("offset") - 1, "before", "micros"))
    twice = F.when(is_twice, F.array(F.col("offset"), F.col("offset")))
    found = checked.groupBy(*part).agg(
        F.min("offset").alias("first"),
        F.max("offset").alias("last"),
        F.sum("times").alias("rows"),
        F.sum("dead").alias("dead"),
        F.coalesce(F.sum("hole"), F.lit(0)).alias("missing"),
        F.sum(F.col("times") - 1).alias("repeated"),
        F.sort_array(F.collect_list(gap)).alias("gaps"),
        F.sort_array(F.collect_list(twice)).alias("duplicates"),
    )
    with naming_damage(spark, route.table, "verify"):
        rows = found.collect()
    return [
        PartitionProof(
            route.source_name,
            row["topic"],
            row["region"],
            row["partition"],
            row["first"],
            row["last"],
            row["rows"] - row["dead"],
            row["dead"],
            tuple((low, high) for low, high, *_ in row["gaps"]),
            tuple((low, high) for low, high in row["duplicates"]),
            row["missing"],
            row["repeated"],
            untold=row["missing"],
            empty=0,
            gap_times=tuple(times_of(since, until) for _, _, since, until in row["gaps"]),
        )
        for row in sorted(rows, key=lambda row: tuple(str(row[name]).zfill(9) for name in part))
    ]


def _positions(spark: SparkSession, route: Route, within: Sequence[OffsetRange]) -> DataFrame:
    from pyspark.sql import functions as F

    def positions(rows: DataFrame, dead: int) -> DataFrame:
        if within:
            # The second condition is one that Iceberg can leave out files by.
            rows = rows.where(within_offsets(within)).where(F.col(OFFSET) >= min(one.start for one in within))
        names = {"topic": TOPIC, "region": REGION, "partition": PARTITION, "offset": OFFSET}
        columns = [F.col(path).alias(name) for name, path in names.items()]
        return rows.select(*columns, F.lit(dead).alias("dead"), F.unix_micros(F.col(INGESTION)).alias("micros"))

    spark.sql(f"REFRESH TABLE {quoted_table(route.table)}")
    found = positions(spark.table(route.table), 0)
    if exists(spark, route.dead_letters):
        spark.sql(f"REFRESH TABLE {quoted_table(route.dead_letters)}")
        letters = spark.table(route.dead_letters).where((F.col("source") == route.source_name) & ~F.col("archived"))
        found = found.unionByName(positions(letters, 1))
    return above_floors(found, Expired.of(dict(load_table(spark, quoted_table(route.table)).properties())))
