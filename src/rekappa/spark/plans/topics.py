"""Which topics a streaming query reads, place by place: what each line of its log of offsets must be about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rekappa.spark.plans.jvm import nodes, simple_name
from rekappa.spark.private import analysed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_STREAMS = ("StreamingRelationV2", "StreamingRelation", "StreamingExecutionRelation")


def topics_read(rows: DataFrame) -> tuple[str | None, ...]:
    """The topic at every place where the query reads a stream, in the order in which Spark logs them; None for one that
    is no topic."""
    found: list[str | None] = []
    for node in nodes(analysed(rows)):
        kind = simple_name(node)
        if kind in _STREAMS:
            topic = node.extraOptions().get("subscribe") if kind == "StreamingRelationV2" else None
            found.append(None if topic is None else str(topic))
    return tuple(found)
