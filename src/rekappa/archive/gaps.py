"""Asking Kafka what it has at the offsets that the archive lacks.

Kafka is read once more over the stretch with the gaps, by the same reader and with the same settings as the router: an
offset at which it hands out a message is lost, one that it passes over holds none. Of what retention has deleted since,
nothing can be told. Nor can a message that was lost first and compacted then.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from rekappa.archive.completeness import clusters
from rekappa.archive.proofs import SHOWN, PartitionProof, times_of
from rekappa.sources.kafka import cluster_options

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from rekappa.archive.tables import Route
    from rekappa.config.load import Loaded
    from rekappa.home import Home

PLACE = ("topic", "region", "partition")
Place = tuple[str, str, int]
Ranges = tuple[tuple[int, int], ...]
Times = tuple[tuple[datetime, datetime] | None, ...]


@dataclass(frozen=True, slots=True)
class AskedTopic:
    """A topic on a cluster. `firsts` are the first offsets that its partitions still have."""

    region: str
    topic: str
    firsts: Mapping[int, int]
    options: Mapping[str, str] = field(repr=False)


def asked(loaded: Loaded, home: Home, route: Route) -> list[AskedTopic]:
    """The clusters behind a route; refuses with `SourceError` where one does not answer."""
    return [
        AskedTopic(
            broker.region,
            broker.topic,
            {number: low for (_, number), (low, _) in broker.bounds().items()},
            cluster_options(loaded.config, name, home),
        )
        for name, broker in zip(route.kafka.cluster, clusters(loaded, home, route), strict=True)
    ]


def told_by_kafka(
    spark: SparkSession, proofs: Sequence[PartitionProof], held: DataFrame, clusters: Sequence[AskedTopic]
) -> list[PartitionProof]:
    """The proofs with their gaps told apart. `held` are the positions that the archive has, each once."""
    firsts = {(one.topic, one.region, number): first for one in clusters for number, first in one.firsts.items()}
    doubtful = {_place(one): one for one in proofs if one.missing and _place(one) in firsts}
    if not doubtful:
        return list(proofs)
    below = _held_below(held, {place: firsts[place] for place in doubtful})
    lost = _lost(spark, held, clusters, doubtful)
    return [
        told(one, firsts[_place(one)], below.get(_place(one), 0), *lost.get(_place(one), (0, (), ())))
        if _place(one) in doubtful
        else one
        for one in proofs
    ]


def told(
    proof: PartitionProof, first: int, held_below: int, lost: int, ranges: Ranges, times: Times = ()
) -> PartitionProof:
    """A proof whose gaps were asked about: Kafka begins at `first`, below which the archive has `held_below` offsets,
    and hands out `lost` messages that the archive lacks, in these ranges, of these times."""
    # What Kafka has no more is a gap as long as the archive does not have it either.
    untold = max(0, min(first, proof.last + 1) - proof.first) - held_below
    gone = tuple((low, min(high, first - 1)) for low, high in proof.gaps if low < first)
    gone_times = proof.gap_times[: len(gone)]
    return replace(
        proof,
        gaps=(*gone, *ranges)[:SHOWN],
        gap_times=(*gone_times, *times)[:SHOWN],
        missing=untold + lost,
        untold=untold,
        empty=proof.missing - untold - lost,
    )


def _held_below(held: DataFrame, firsts: Mapping[Place, int]) -> dict[Place, int]:
    """How many offsets the archive has below each of these, in their partition."""
    from pyspark.sql import functions as F

    first = F.coalesce(*[F.when(_at(place), F.lit(offset)) for place, offset in firsts.items()])
    rows = held.where(F.col("offset") < first).groupBy(*PLACE).count().collect()
    return {(row["topic"], row["region"], row["partition"]): row["count"] for row in rows}


def _lost(
    spark: SparkSession, held: DataFrame, clusters: Sequence[AskedTopic], doubtful: Mapping[Place, PartitionProof]
) -> dict[Place, tuple[int, Ranges, Times]]:
    """What Kafka hands out and the archive lacks: how many, the first ranges of it, and when they were ingested."""
    from pyspark.sql import DataFrame, Window
    from pyspark.sql import functions as F

    streams = [found for one in clusters if (found := _read(spark, one, doubtful)) is not None]
    if not streams:
        return {}
    lacking = reduce(DataFrame.unionByName, streams).join(held, [*PLACE, "offset"], "left_anti")
    in_order = Window.partitionBy(*PLACE).orderBy("offset")
    runs = lacking.withColumn("run", F.col("offset") - F.row_number().over(in_order)).groupBy(*PLACE, "run")
    ranges = runs.agg(
        F.min("offset").alias("low"),
        F.max("offset").alias("high"),
        F.min("micros").alias("since"),
        F.max("micros").alias("until"),
    )
    nth = F.row_number().over(Window.partitionBy(*PLACE).orderBy("low"))
    shown = F.when(F.col("nth") <= SHOWN, F.array("low", "high", "since", "until"))
    found = (
        ranges.withColumn("nth", nth)
        .groupBy(*PLACE)
        .agg(F.sum(F.col("high") - F.col("low") + 1).alias("n"), F.sort_array(F.collect_list(shown)).alias("ranges"))
    )
    return {
        (row["topic"], row["region"], row["partition"]): (
            row["n"],
            tuple((low, high) for low, high, *_ in row["ranges"]),
            tuple(times_of(since, until) for _, _, since, until in row["ranges"]),
        )
        for row in found.collect()
    }


def _read(spark: SparkSession, one: AskedTopic, doubtful: Mapping[Place, PartitionProof]) -> DataFrame | None:
    """The positions that Kafka hands out between the first gap and the end of what the archive has."""
    from pyspark.sql import functions as F

    starts, ends = {}, {}
    for number, first in one.firsts.items():
        proof = doubtful.get((one.topic, one.region, number))
        if proof is not None and proof.last > first:
            starts[str(number)], ends[str(number)] = max(first, proof.gaps[0][0]), proof.last
    if not starts:
        return None
    reader = spark.read.format("kafka").options(**one.options).option("failOnDataLoss", "false")
    reader = reader.option("assign", json.dumps({one.topic: [int(number) for number in starts]}))
    reader = reader.option("startingOffsets", json.dumps({one.topic: starts}))
    rows = reader.option("endingOffsets", json.dumps({one.topic: ends})).load()
    micros = F.unix_micros("timestamp").alias("micros")
    return rows.select("topic", F.lit(one.region).alias("region"), "partition", "offset", micros)


def _at(place: Place) -> Column:
    from pyspark.sql import functions as F

    return reduce(and_, [F.col(name) == F.lit(value) for name, value in zip(PLACE, place, strict=True)])


def _place(proof: PartitionProof) -> Place:
    return proof.topic, proof.region, proof.partition
