"""Every class and method of Spark that is not meant for others and that rekappa uses all the same, in one place.

A replay is a stream of Spark's own kind whose rows come from planned files; Spark's public API has no such source that
is fast enough. `rekappa.spark.releases` refuses an unknown version; `tests/spark/test_private.py` uses each of these.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

SOURCE = (
    "org.apache.spark.sql.execution.streaming.Source",
    "org.apache.spark.sql.connector.read.streaming.SupportsAdmissionControl",
)
"""What a stream source that lives in Python implements."""
SOURCE_THAT_ENDS = (*SOURCE, "org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow")
"""The same for one that a query reads to its end, batch by batch, and then ends itself."""

_STATE = "org.apache.spark.sql.execution.streaming.state"
ROCKSDB = f"{_STATE}.RocksDBStateStoreProvider"
IN_MEMORY = f"{_STATE}.HDFSBackedStateStoreProvider"
PLAIN_CHECKPOINT_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


def log_lost_connection(spark: SparkSession, log: Path) -> None:
    """When the JVM goes, the thread that takes its counters says so in a log, not as a traceback on stderr."""

    def note(request: Any, address: Any) -> None:
        with log.open("a") as file:
            traceback.print_exc(file=file)

    server: Any = spark.sparkContext._accumulatorServer
    server.handle_error = note


def java_schema(spark: SparkSession, schema: StructType) -> Any:
    """A schema as Spark's own type."""
    java: Any = spark._jsparkSession
    return java.parseDataType(schema.json())


def stream_of(spark: SparkSession, source: Any, schema: StructType) -> DataFrame:
    """A streaming DataFrame over a `SOURCE` that lives in Python."""
    from pyspark.java_gateway import ensure_callback_server_started

    ensure_callback_server_started(spark.sparkContext._gateway)  # type: ignore[no-untyped-call]
    jvm: Any = spark._jvm
    attributes = jvm.org.apache.spark.sql.catalyst.types.DataTypeUtils.toAttributes(java_schema(spark, schema))
    relation = jvm.org.apache.spark.sql.execution.streaming.runtime.StreamingExecutionRelation(
        source, attributes, jvm.scala.Option.empty(), spark._jsparkSession
    )
    return frame_of(spark, relation)


def with_sources(spark: SparkSession, rows: DataFrame, other: Callable[[Any], Any | None]) -> DataFrame:
    """The same query over other sources: `other` is asked for each of its stream sources, in the order in which Spark
    logs their offsets, and answers the one to take instead, or None."""

    class Swap:
        """A Scala function that is called with every node of the query, from the top, left to right."""

        class Java:
            implements = ("scala.PartialFunction",)

        def applyOrElse(self, node: Any, default: Any) -> Any:
            if node.getClass().getSimpleName() != "StreamingExecutionRelation":
                return default.apply(node)
            own = other(node.source())
            if own is None:
                return default.apply(node)
            return node.copy(own, node.output(), node.catalogTable(), spark._jsparkSession)

    return frame_of(spark, analysed(rows).transform(Swap()))


def frame_of(spark: SparkSession, plan: Any) -> DataFrame:
    """A DataFrame over a logical plan."""
    from pyspark.sql import DataFrame

    jvm: Any = spark._jvm
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan), spark)


def offset_of(spark: SparkSession, text: str) -> Any:
    """A stream source's offset, as it is written to the log."""
    jvm: Any = spark._jvm
    return jvm.org.apache.spark.sql.execution.streaming.runtime.SerializedOffset(text)


def read_all(spark: SparkSession) -> Any:
    """The limit that is none."""
    jvm: Any = spark._jvm
    return jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit.allAvailable()


def as_stream_batch(spark: SparkSession, rows: DataFrame) -> Any:
    """Rows as a Java Dataset that Spark takes for a part of a stream. They are planned at once."""
    session: Any = spark._jsparkSession
    chosen: Any = rows._jdf
    return session.internalCreateDataFrame(chosen.queryExecution().toRdd(), chosen.schema(), True)


def files_as_stream(spark: SparkSession, files: DataFrame) -> DataFrame:
    """Files that Spark reads itself: its plan of them needs but to be called a stream, as its own file source does."""
    java: Any = files._jdf
    plan = java.logicalPlan()
    return frame_of(spark, plan.copy(plan.relation(), plan.output(), plan.catalogTable(), True, plan.stream()))


def activate(spark: SparkSession) -> None:
    """Make this session the one of the calling thread of the JVM."""
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.SparkSession.setActiveSession(spark._jsparkSession)


def cloned(spark: SparkSession) -> SparkSession:
    """A session of its own that starts with the settings, views and catalogs of this one."""
    from pyspark.sql import SparkSession

    java: Any = spark._jsparkSession
    return SparkSession(spark.sparkContext, java.cloneSession())


def analysed(rows: DataFrame) -> Any:
    """The analysed plan."""
    java: Any = rows._jdf
    return java.queryExecution().analyzed()


def move_watermark(query: StreamingQuery, millis: int) -> int:
    """Give the next batch of a running query at least this watermark (milliseconds since 1970); answer the one before.
    0 is none."""
    java: Any = query._jsq
    tracker = java.streamingQuery().watermarkTracker()
    before = int(tracker.currentWatermark())
    tracker.setWatermark(max(millis, before))
    return before


def set_watermark(query: StreamingQuery, millis: int) -> None:
    """Give the next batch of a running query exactly this watermark (milliseconds since 1970)."""
    java: Any = query._jsq
    java.streamingQuery().watermarkTracker().setWatermark(millis)


def check_for_streaming(spark: SparkSession, plan: Any, output_mode: str) -> None:
    """Spark's own check of an analysed plan that shall run as a stream; raises Spark's `AnalysisException`."""
    jvm: Any = spark._jvm
    mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, output_mode.capitalize())()
    jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(plan, mode)


def changes_something(spark: SparkSession, sql: str) -> str | None:
    """What a statement would do other than read, by Spark's own parser; None if it only reads.

    A TRANSFORM starts programs and a call of Java's methods runs code, which may do anything. Looks into common table
    expressions and subqueries, wherever they stand.
    """
    from py4j.java_gateway import is_instance_of

    parser: Any = spark._jsparkSession.sessionState().sqlParser()
    kinds = [
        f"org.apache.spark.sql.catalyst.plans.logical.{name}"
        for name in ("Command", "ParsedStatement", "ScriptTransformation", "InsertIntoDir")
    ]
    waiting = [parser.parsePlan(sql)]
    while waiting:
        node = waiting.pop()
        if any(is_instance_of(spark.sparkContext._gateway, node, kind) for kind in kinds):
            return str(node.getClass().getSimpleName()).removesuffix("Statement")
        if called := _RUNS_JAVA.search(str(node.expressions().toString())):
            return called.group(1)
        for inner in (node.children(), node.innerChildren(), node.subqueries()):
            waiting += [inner.apply(at) for at in range(inner.size())]
    return None


_RUNS_JAVA = re.compile(r"'(?:`?\w+`?\.)*`?((?:java_method|reflect|try_reflect))`?\(", re.IGNORECASE)
"""Functions that call any method of any Java class, as Spark writes calls that are not resolved yet."""
