"""Every class and method of Spark that is not meant for others and that rekappa uses all the same, in one place.

A replay is a stream of Spark's own kind whose rows come from planned files; Spark's public API has no such source that
is fast enough. `rekappa.spark.releases` refuses an unknown version; `tests/spark/test_private.py` uses each of these.
"""

from __future__ import annotations

import re
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rekappa.jvm.compiled import compiled

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation, SparkSession
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
IN_PAGES = "rekappa.StateInPages"
"""Ours, made of the one before."""
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


def stream_leaf(spark: SparkSession, schema: StructType) -> DataFrame:
    """An empty streaming DataFrame that `with_leaves` finds again by `leaf_id` wherever it is used."""
    from pyspark.sql import DataFrame

    nothing: Any = spark.createDataFrame([], schema)._jdf
    session: Any = spark._jsparkSession
    # The schema as it was given: it may carry the mark of the event time.
    java = session.internalCreateDataFrame(nothing.queryExecution().toRdd(), java_schema(spark, schema), True)
    return DataFrame(java, spark)


def leaf_id(leaf: DataFrame) -> int:
    """What tells a leaf of `stream_leaf` from all others."""
    return int(analysed(leaf).rdd().id())


def with_leaves(
    spark: SparkSession, plan: Any, rows: Callable[[int], DataFrame | None], carried: Sequence[str] = ()
) -> Any:
    """A logical plan over leaves of `stream_leaf` as one of a batch query: `rows` is asked for each leaf by its id, and
    watermarks are taken out of it.

    What `rows` answers has the leaf's columns and after them those of `carried`, which then go through every step up
    to the top, unseen by the steps themselves: a projection passes them on beside what it chooses.
    """
    from pyspark.java_gateway import ensure_callback_server_started

    ensure_callback_server_started(spark.sparkContext._gateway)  # type: ignore[no-untyped-call]
    marks = set(carried)
    jvm: Any = spark._jvm
    catalyst = jvm.org.apache.spark.sql.catalyst

    def extra(node: Any) -> list[Any]:
        return [one for one in _each(node.output()) if one.name() in marks]

    class Swap:
        """A Scala function that is called with every node of the plan, from the bottom."""

        class Java:
            implements = ("scala.PartialFunction",)

        def applyOrElse(self, node: Any, default: Any) -> Any:
            name = node.getClass().getSimpleName()
            if name == "EventTimeWatermark":
                return node.child()
            if name == "LogicalRDD" and (own := rows(int(node.rdd().id()))) is not None:
                return named_as(analysed(own), _each(node.output()))
            if name == "Project" and marks:
                chosen = node.projectList()
                for one in extra(node.child()):
                    chosen = chosen.appended(one)
                return node.copy(chosen, node.child())
            if name == "Union" and marks:
                # The columns of a union are told by their place: those that are carried are the last in each part.
                return node.withNewChildren(_seq([last(child) for child in _each(node.children())]))
            return default.apply(node)

    def last(child: Any) -> Any:
        chosen = [one for one in _each(child.output()) if one.name() not in marks]
        return project([*chosen, *extra(child)], child)

    def named_as(plan: Any, wanted: list[Any]) -> Any:
        """The plan's columns under the names and ids that the leaf had, and those that are carried."""
        found = _each(plan.output())
        own = [one.newInstance() for one in found[len(wanted) :]]
        ids = [one.exprId() for one in (*wanted, *own)]
        names = [one.name() for one in (*wanted, *own)]
        none, nothing = jvm.scala.Option.empty(), _seq([])
        chosen = [
            catalyst.expressions.Alias(one, name, key, nothing, none, nothing)
            for one, name, key in zip(found, names, ids, strict=True)
        ]
        return project(chosen, plan)

    def project(columns: list[Any], child: Any) -> Any:
        return catalyst.plans.logical.Project(_seq(columns), child)

    def _seq(values: list[Any]) -> Any:
        return jvm.org.apache.spark.api.python.PythonUtils.toSeq(values)

    return plan.transformUp(Swap())


def united(spark: SparkSession, frames: Sequence[DataFrame]) -> DataFrame:
    """The rows of all frames, which have the same columns, as one. Each is planned by itself, at once: Spark would take
    minutes to optimise a union of thousands."""
    from pyspark.sql import DataFrame

    plans: list[Any] = [frame._jdf for frame in frames]
    rows = [one.queryExecution().toRdd() for one in plans]
    jvm: Any = spark._jvm
    seq = jvm.org.apache.spark.api.python.PythonUtils.toSeq(rows)
    both = jvm.org.apache.spark.rdd.UnionRDD(rows[0].sparkContext(), seq, rows[0].elementClassTag())
    session: Any = spark._jsparkSession
    return DataFrame(session.internalCreateDataFrame(both, plans[0].schema(), False), spark)


def observed(watched: Observation, patience: float = 30) -> bool:
    """Whether what was to be observed is known. Spark tells it some time after the query has ended, and never if no
    query ran: it is waited for these seconds at most."""
    java: Any = watched._jo
    if java is None:
        return False
    deadline = time.monotonic() + patience
    while not java.future().isCompleted():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
    return True


def optimised(spark: SparkSession, rows: DataFrame) -> Any:
    """The optimised plan. The optimiser is called by itself: through the query it refuses streaming sources."""
    session: Any = spark._jsparkSession
    return session.sessionState().optimizer().execute(analysed(rows))


def estimated_bytes(spark: SparkSession, rows: DataFrame) -> int:
    """How much Spark thinks the rows are, from what their tables say of themselves."""
    # A number of any size: as text it is read whatever the bridge makes of it.
    return int(str(optimised(spark, rows).stats().sizeInBytes()))


def heap_bytes(spark: SparkSession) -> int:
    """The memory that the driver may take."""
    jvm: Any = spark._jvm
    return int(jvm.java.lang.Runtime.getRuntime().maxMemory())


def _each(sequence: Any) -> list[Any]:
    return [sequence.apply(at) for at in range(sequence.size())]


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


class Pages:
    """Options for a reader of Parquet files that skip what can't have rows whose column, a whole number in the file,
    is in [low, high): row groups, and pages of those that have an index of pages. Other rows may come with them.

    A condition in the query would be pushed into the reader just so, but be a part of the generated code as well.
    """

    def __init__(self, spark: SparkSession, column: str) -> None:
        # Looked up once: to find a class by its path takes the bridge longer than to call it.
        jvm: Any = spark._jvm
        parquet = jvm.org.apache.parquet
        self._api = parquet.filter2.predicate.FilterApi
        self._format = parquet.hadoop.ParquetInputFormat
        self._configuration = jvm.org.apache.hadoop.conf.Configuration
        self._column = self._api.longColumn(column)

    def between(self, low: int, high: int) -> dict[str, str]:
        if min(abs(low), abs(high)) < 1 << 31:
            return {}  # the gateway makes another type of small numbers
        both = getattr(self._api, "and")(self._api.gtEq(self._column, low), self._api.lt(self._column, high))
        made = self._configuration(False)
        self._format.setFilterPredicate(made, both)
        key = "parquet.private.read.filter.predicate"
        return {key: str(made.get(key))}


class Chosen:
    """Columns that are chosen again and again, of frames that have them all: handed over to Spark once."""

    def __init__(self, spark: SparkSession, columns: Sequence[Column]) -> None:
        jvm: Any = spark._jvm
        self._columns = jvm.org.apache.spark.api.python.PythonUtils.toSeq([column._jc for column in columns])

    def of(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import DataFrame

        java: Any = rows._jdf
        return DataFrame(java.select(self._columns), rows.sparkSession)


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


_adding = threading.Lock()


def own_class(spark: SparkSession, name: str) -> Any:
    """A Java class of ours. A session that was not started by us is given the jar when it is first asked for."""
    from py4j.protocol import Py4JJavaError

    session: Any = spark._jsparkSession
    loader = session.sharedState().jarClassLoader()
    with _adding:
        try:
            return loader.loadClass(name)
        except Py4JJavaError:
            spark.sql(f"ADD JAR '{compiled()}'")
            return loader.loadClass(name)


def constructor(spark: SparkSession, name: str) -> Callable[..., Any]:
    """That of a Java class of ours."""
    jvm: Any = spark._jvm
    gateway: Any = spark.sparkContext._gateway
    found = own_class(spark, name)

    def make(*arguments: Any) -> Any:
        given = gateway.new_array(jvm.java.lang.Object, len(arguments))
        for at, one in enumerate(arguments):
            given[at] = one
        return found.getConstructors()[0].newInstance(given)

    return make


def always_called(spark: SparkSession, function: Any, name: str) -> Column:
    """A Java function without arguments that answers true or false, as a column: called for every row, where it stands.

    The gateway would take `functions.udf` for Scala's of the same name.
    """
    from pyspark.sql.classic.column import Column

    jvm: Any = spark._jvm
    gateway: Any = spark.sparkContext._gateway
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    kinds = gateway.new_array(jvm.java.lang.Class, 2)
    kinds[0] = loader.loadClass("org.apache.spark.sql.api.java.UDF0")
    kinds[1] = loader.loadClass("org.apache.spark.sql.types.DataType")
    given = gateway.new_array(jvm.java.lang.Object, 2)
    given[0], given[1] = function, jvm.org.apache.spark.sql.types.DataTypes.BooleanType
    made = loader.loadClass("org.apache.spark.sql.functions").getMethod("udf", kinds).invoke(None, given)
    nothing = jvm.org.apache.spark.api.python.PythonUtils.toSeq([])
    return Column(made.asNondeterministic().withName(name).apply(nothing))
