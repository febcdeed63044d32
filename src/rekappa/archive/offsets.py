"""Offsets of the router's batches: from its checkpoint, and from the table itself."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from rekappa.archive.completeness import Broker, Partition
from rekappa.archive.expired import Expired
from rekappa.archive.tables import Route, exists, quoted_table
from rekappa.iceberg.commits import load_table
from rekappa.record import OFFSET, PARTITION, REGION, TOPIC
from rekappa.spark.offsetlog import read_batch
from rekappa.storage.location import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def batch_ends(checkpoint: Location, number: int, regions: Sequence[str]) -> dict[Partition, int]:
    """Where a batch ends in each partition, from the line that Spark wrote before running it.

    The checkpoint has one line per cluster, in the order in which the streams were united.
    """
    found: dict[Partition, int] = {}
    for region, line in zip(regions, read_batch(checkpoint, number).sources, strict=True):
        if line is None:
            continue
        for partitions in json.loads(line).values():
            found |= {(region, int(part)): end for part, end in partitions.items()}
    return found


def archived_ends(spark: SparkSession, route: Route, clusters: Sequence[Broker]) -> dict[Partition, int]:
    """The next offset after the highest that the table or the dead letters hold, or that was dropped on purpose, per
    partition."""
    from pyspark.sql import functions as F

    found = _dropped(spark, route, clusters)
    ours = reduce(or_, [(F.col(REGION) == one.region) & (F.col(TOPIC) == one.topic) for one in clusters])
    for table in (route.table, route.dead_letters):
        if not exists(spark, table):
            continue
        rows = spark.table(table).where(ours)
        if table == route.dead_letters:
            rows = rows.where(F.col("source") == route.source_name)
        highest = rows.groupBy(F.col(REGION).alias("r"), F.col(PARTITION).alias("p")).agg(F.max(OFFSET).alias("o"))
        for row in highest.collect():
            found[row["r"], row["p"]] = max(found.get((row["r"], row["p"]), 0), row["o"] + 1)
    return found


def _dropped(spark: SparkSession, route: Route, clusters: Sequence[Broker]) -> dict[Partition, int]:
    if not exists(spark, route.table):
        return {}
    floors = Expired.of(dict(load_table(spark, quoted_table(route.table)).properties())).floors
    ours = {(one.topic, one.region) for one in clusters}
    return {(region, number): floor for (topic, region, number), floor in floors.items() if (topic, region) in ours}


def starting_offsets(ends: Mapping[Partition, int], cluster: Broker) -> str:
    """Spark's `startingOffsets` that carries on after these ends; partitions not named start at the beginning."""
    starts = {str(number): ends.get((region, number), -2) for region, number in cluster.bounds()}
    return json.dumps({cluster.topic: starts})
