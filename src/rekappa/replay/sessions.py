"""Session windows that a bulk chunk may have cut: they touch an edge of what was read, so they may go on beyond it.

What the job makes of a session need not show where it began or ended, so the sessions are taken from the job's own
query, below whatever it does with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rekappa.plan.finality import Finality
from rekappa.spark.plans.jvm import each, nodes, simple_name
from rekappa.spark.private import analysed, frame_of
from rekappa.timeline import Window, instant

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NAME = "session_window"
"""What Spark calls the column that `session_window` makes, whatever the job calls it afterwards."""
_WINDOW = "struct<start:timestamp"


def cut_from(
    spark: SparkSession, rows: DataFrame, finality: Finality, reads: Window, output: Window
) -> datetime | None:
    """The earliest moment of the output that a cut session lies at; None if no session touches an edge.

    `reads` is what the rows' inputs were read from. Only an edge counts at which nothing bounds what a row needs. A
    session counts if any of it lies in the output, because its sink time may be any moment of it.
    """
    from pyspark.sql import functions as F

    java: Any = rows._jdf
    if _NAME not in java.queryExecution().analyzed().toString():
        return None
    found = list(_sessions(spark, rows))
    if not found:
        # There are sessions and it is not to be seen where they end: nothing can be called final.
        return output.start
    moments = []
    for sessions in found:
        start, end = F.col("session.start"), F.col("session.end")
        later = (end > F.lit(finality.settled(reads))) & F.lit(finality.after is None)
        earlier = (start < F.lit(finality.known_from(reads))) & F.lit(finality.open_before)
        inside = (start < F.lit(output.end)) & (end > F.lit(output.start))
        # Spark would push the filter below the aggregate, to sessions of one event each; not one that is undetermined.
        touching = sessions.where(F.when(F.spark_partition_id() >= 0, (later | earlier) & inside))
        first = touching.agg(F.unix_micros(F.min(start.cast("timestamp")))).first()
        if first is not None and first[0] is not None:
            moments.append(max(instant(first[0]), output.start))
    return min(moments, default=None)


def _sessions(spark: SparkSession, rows: DataFrame) -> Iterator[DataFrame]:
    """The session windows of every aggregate over them, as column `session`."""
    for node in nodes(analysed(rows)):
        if simple_name(node) != "Aggregate" or _NAME not in node.toString():
            continue
        kinds = [str(one.dataType().simpleString()) for one in each(node.output())]
        found = [at for at, kind in enumerate(kinds) if kind.startswith(_WINDOW)]
        if found:
            made = frame_of(spark, node)
            names = [f"c{at}" for at in range(len(made.columns))]
            names[found[0]] = "session"
            yield made.toDF(*names).select("session")
