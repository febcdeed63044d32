"""Iceberg tables: append and upsert, each batch one stamped commit.

The snapshot's summary names the run, the query and the batch that made it (`rekappa.iceberg.commits`), so a batch
that was committed just before a crash is recognised and skipped, also when its snapshot has expired meanwhile. The
table of a live run lets old snapshots go by itself (`rekappa.iceberg.upkeep`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING

from rekappa.errors import SinkError
from rekappa.iceberg.commits import BATCH, WRITER, last_batch, stamp
from rekappa.iceberg.upkeep import FEW_METADATA_FILES, LASTING, Pins, Upkeep
from rekappa.rate import paced
from rekappa.sinks.changes import SPARK_TAKES, Changes, Step, TypeRules, compare, require_fit, widening
from rekappa.sinks.contract import BatchId, Rerun, Sink, in_window
from rekappa.sinks.fit import columns_ddl, columns_of, require_columns, stored_columns
from rekappa.sinks.keys import newest_per_key, refused
from rekappa.spark.computing import compute
from rekappa.spark.names import quoted
from rekappa.spark.private import united

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from rekappa.timeline import Window

_RULES = TypeRules(
    takes=SPARK_TAKES,
    widens=widening(("int", "bigint"), ("float", "double")),
    instead="Iceberg widens int to bigint, float to double and decimals before the point; for any other type give the "
    "column a new name",
)
_SESSION_STAMP = "spark.sql.iceberg.snapshot-property."


def create_table(
    spark: SparkSession, table: str, schema: StructType, partition_by: tuple[str, ...], properties: dict[str, str]
) -> None:
    """Create the table, and its namespace, unless it is there."""
    namespace = f"CREATE NAMESPACE IF NOT EXISTS {table.rsplit('.', 1)[0]}"
    try:
        spark.sql(namespace)
    except Exception:
        # A catalog looks and adds in two steps: one that somebody else made in between is there the second time.
        spark.sql(namespace)
    partitions = f"PARTITIONED BY ({', '.join(partition_by)})" if partition_by else ""
    given = {"format-version": "2", **FEW_METADATA_FILES, **properties}
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS {table} ({columns_ddl(columns_of(schema))}) USING iceberg {partitions} "
        f"TBLPROPERTIES ({listed})"
    )


class IcebergSink(Sink):
    """What both ways of writing share: the table, its partitions, the memory of what was committed.

    Given `pins`, it is written for as long as the app lives and lets old snapshots go, but for the pinned.
    """

    rerun = Rerun.RESETTABLE

    def __init__(
        self,
        name: str,
        table: str,
        *,
        key: tuple[str, ...] = (),
        event_time: str | None = None,
        version: str | None = None,
        deletes: str | None = None,
        partition_by: tuple[str, ...] | None = None,
        properties: dict[str, str] | None = None,
        pins: Pins | None = None,
    ) -> None:
        self.name = name
        self.table = table
        self.key = key
        self.event_time = event_time
        self.version = version
        self.deletes = deletes
        self._partition_by = partition_by
        self._upkeep = None if pins is None else Upkeep(table, pins)
        self._properties = {**({} if pins is None else LASTING), **(properties or {})}
        self._committed: dict[str, int] = {}

    def prepare(self, spark: SparkSession, schema: StructType) -> None:
        require_columns(schema, self.key, "key", self.name)
        require_columns(schema, (self.event_time,) if self.event_time else (), "event_time", self.name)
        require_columns(schema, (self.version,) if self.version else (), "version", self.name)
        stored = stored_columns(schema, self.deletes, self.name)
        if not spark.catalog.tableExists(self.table):
            create_table(spark, self.table, stored, self._partitions(stored), self._properties)
        require_fit(self.changes(spark, schema))

    def changes(self, spark: SparkSession, schema: StructType) -> Changes:
        if not spark.catalog.tableExists(self.table):
            return Changes(self.table)
        spark.catalog.refreshTable(self.table)
        stored = stored_columns(schema, self.deletes, self.name)
        return compare(self.table, columns_of(stored), columns_of(spark.table(self.table).schema), _RULES)

    def evolve(self, spark: SparkSession, steps: Sequence[Step]) -> None:
        held = columns_of(spark.table(self.table).schema)
        left = [step for step in steps if held.get(step.column) != step.kind]
        added = {step.column: step.kind for step in left if step.was is None}
        if added:
            spark.sql(f"ALTER TABLE {self.table} ADD COLUMNS ({columns_ddl(added)})")
        for step in left:
            if step.was is not None:
                spark.sql(f"ALTER TABLE {self.table} ALTER COLUMN {quoted(step.column)} TYPE {step.kind}")
        spark.catalog.refreshTable(self.table)

    def _partitions(self, schema: StructType) -> tuple[str, ...]:
        """As configured; otherwise by the hour of the event time, so that a window is a set of files."""
        if self._partition_by is not None:
            return self._partition_by
        if not self.event_time:
            return ()
        kind = schema[self.event_time].dataType.typeName() if self.event_time in schema.names else "timestamp"
        return (f"{'days' if kind == 'date' else 'hours'}({quoted(self.event_time)})",)

    def write(self, rows: DataFrame, batch: BatchId) -> None:
        spark = rows.sparkSession
        if self._last(spark, batch.writer) >= batch.number:
            compute(rows)
            return
        try:
            self._commit(rows, batch)
        except Exception:
            # The commit may have succeeded before its answer was lost: look at the table again next time.
            self._committed.pop(batch.writer, None)
            raise
        self._committed[batch.writer] = batch.number
        if self._upkeep is not None:
            self._upkeep.after_commit(spark)

    def _last(self, spark: SparkSession, writer: str) -> int:
        if writer not in self._committed:
            found = last_batch(spark, self.table, writer)
            self._committed[writer] = -1 if found is None else found
        return self._committed[writer]

    @abstractmethod
    def _commit(self, rows: DataFrame, batch: BatchId) -> None:
        """One stamped commit of the batch's rows."""

    def read(self, spark: SparkSession, window: Window | None = None) -> DataFrame:
        if not spark.catalog.tableExists(self.table):
            raise SinkError(f"Cannot read sink {self.name!r}: table {self.table} does not exist")
        return in_window(spark.table(self.table), self.event_time, window, self.name)


class IcebergAppend(IcebergSink):
    """Adds the batch's rows."""

    def _commit(self, rows: DataFrame, batch: BatchId) -> None:
        writer = paced(rows, self.pace(rows.sparkSession)).writeTo(self.table)
        for option, value in stamp(batch.writer, batch.number).items():
            writer = writer.option(option, value)
        writer.append()


class IcebergUpsert(IcebergSink):
    """Replaces, or removes, the rows that have the batch's keys, adds the others: one MERGE. A newer version stays."""

    rerun = Rerun.IDEMPOTENT
    _stamping = Lock()

    def _commit(self, rows: DataFrame, batch: BatchId) -> None:
        spark = rows.sparkSession
        view = f"rekappa_batch_{id(self)}"
        # MERGE reads its source twice (which files match, then the join); the batch must be computed once only.
        newest = newest_per_key(rows, self.key, self.event_time, self.version)
        pace = self.pace(spark)
        if pace:
            # A cap is a condition that Spark may not move or repeat, and MERGE takes no such source: it sees rows only.
            newest = united(spark, [paced(newest, pace)])
        newest.persist()
        newest.createOrReplaceTempView(view)
        same = " AND ".join(f"t.{quoted(column)} = s.{quoted(column)}" for column in self.key)
        version, gone = quoted(self.version or ""), quoted(self.deletes or "")
        newer = f" AND (t.{version} IS NULL OR s.{version} >= t.{version})" if self.version else ""
        removal = f"WHEN MATCHED AND s.{gone} THEN DELETE " if self.deletes else ""
        present = f" AND s.{gone} IS NOT TRUE" if self.deletes else ""
        # SQL takes no write options: the stamp goes through the session, one MERGE at a time.
        stamps = {f"{_SESSION_STAMP}{WRITER}": batch.writer, f"{_SESSION_STAMP}{BATCH}": str(batch.number)}
        with self._stamping:
            for setting, value in stamps.items():
                spark.conf.set(setting, value)
            try:
                spark.sql(
                    f"MERGE INTO {self.table} t USING {view} s ON {same} "
                    f"{removal}WHEN MATCHED{newer} THEN UPDATE SET * WHEN NOT MATCHED{present} THEN INSERT *"
                )
            except Exception as error:
                raise refused(error, self.name) from error
            finally:
                for setting in stamps:
                    spark.conf.unset(setting)
                spark.catalog.dropTempView(view)
                newest.unpersist()
