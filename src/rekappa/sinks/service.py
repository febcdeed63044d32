"""Sinks that upsert by key into a service, written to by Spark's tasks through the service's own client.

A `Service` is a small frozen value with the address and the credentials. It travels to the tasks inside their
pickled function, so no secret appears in a plan, a log line or a process list.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from rekappa.errors import SinkError
from rekappa.rate import Pace
from rekappa.sinks.changes import Changes, Step, require_fit
from rekappa.sinks.contract import BatchId, Rerun, Sink, in_window
from rekappa.sinks.fit import require_columns, stored_columns
from rekappa.sinks.keys import newest_per_key, refused, removing, staying
from rekappa.spark.names import map_batches, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from rekappa.timeline import Window

Action = Literal["upsert", "advance", "delete"]


class Service(ABC):
    """A server that holds rows by key. What asks for or alters its columns runs in the driver, the rest in tasks."""

    @abstractmethod
    def prepare(self, schema: StructType) -> None:
        """Create what is missing; refuse a table that the key does not fit."""

    @abstractmethod
    def changes(self, schema: StructType) -> Changes:
        """See `Sink.changes`."""

    @abstractmethod
    def evolve(self, steps: Sequence[Step]) -> None:
        """See `Sink.evolve`."""

    @abstractmethod
    def schema(self) -> StructType:
        """The columns that `read` answers. Refuses when there is nothing to read."""

    @abstractmethod
    def upsert(self, batches: Iterable[Any]) -> int:
        """Write Arrow batches, each row replacing the one of its key; answer how many rows."""

    def advance(self, batches: Iterable[Any]) -> int:
        """Like `upsert`, but a row of a higher version than the one to write stays as it is."""
        raise SinkError(f"Cannot compare versions in {type(self).__name__}")

    @abstractmethod
    def delete(self, batches: Iterable[Any]) -> int:
        """Remove the rows whose keys these Arrow batches hold (key columns only)."""

    @abstractmethod
    def parts(self, wanted: int) -> int:
        """Into how many parts a read may be split, `wanted` if the service does not care."""

    @abstractmethod
    def read(self, part: int, parts: int, window: Window | None) -> Iterator[dict[str, Any]]:
        """The rows of one part, as Python values, of the window if the service knows a row's time."""

    @abstractmethod
    def look_up(self, batches: Iterable[Any]) -> Iterator[dict[str, Any]]:
        """The rows whose keys these Arrow batches hold (key columns only), as Python values. One question per batch."""

    def as_stored(self, rows: DataFrame) -> DataFrame:
        """See `Sink.as_stored`."""
        return rows


def _send(service: Service, action: Action, pace: Pace | None, batches: Iterable[Any]) -> Iterator[Any]:
    import pyarrow as pa

    done = getattr(service, action)(pace.through(batches) if pace else batches)
    yield pa.RecordBatch.from_pydict({"rows": pa.array([done], pa.int64())})


def send(rows: DataFrame, service: Service, action: Action, pace: Pace | None) -> int:
    """Let every task send its rows; answer how many were sent."""
    sent = map_batches(rows, partial(_send, service, action, pace), "rows BIGINT")
    return sum(row.rows for row in sent.collect())


READ_AT_ONCE = 4096
ASK_AT_ONCE = 1000


def fetch(spark: SparkSession, service: Service, window: Window | None, pace: Pace | None = None) -> DataFrame:
    """What the service holds of the window (all, if None), read by Spark's tasks, no faster than the pace."""
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = service.schema()
    parts = service.parts(spark.sparkContext.defaultParallelism)
    read = partial(_fetch, service, parts, window, to_arrow_schema(schema), pace)
    return spark.range(0, parts, 1, parts).mapInArrow(read, schema)


def look_up(spark: SparkSession, service: Service, keys: DataFrame, pace: Pace | None = None) -> DataFrame:
    """The rows that the service holds of these keys, asked for in batches by Spark's tasks."""
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = service.schema()
    return map_batches(keys, partial(_look_up, service, to_arrow_schema(schema), pace), schema)


def _fetch(
    service: Service, parts: int, window: Window | None, schema: Any, pace: Pace | None, batches: Iterable[Any]
) -> Iterator[Any]:
    size = min(READ_AT_ONCE, pace.step) if pace else READ_AT_ONCE
    for batch in batches:
        for part in batch.column(0).to_pylist():
            for rows in _batched(service.read(part, parts, window), size, schema):
                if pace:
                    pace.wait(len(rows))
                yield rows


def _look_up(service: Service, schema: Any, pace: Pace | None, batches: Iterable[Any]) -> Iterator[Any]:
    small = (batch.slice(start, ASK_AT_ONCE) for batch in batches for start in range(0, batch.num_rows, ASK_AT_ONCE))
    return _batched(service.look_up(pace.through(small) if pace else small), READ_AT_ONCE, schema)


def _batched(rows: Iterator[dict[str, Any]], size: int, schema: Any) -> Iterator[Any]:
    import pyarrow as pa

    while held := list(islice(rows, size)):
        yield pa.RecordBatch.from_pylist(held, schema=schema)


class ServiceSink(Sink):
    """A keyed sink over any `Service`."""

    rerun = Rerun.IDEMPOTENT

    def __init__(
        self,
        name: str,
        service: Service,
        key: tuple[str, ...],
        event_time: str | None = None,
        version: str | None = None,
        deletes: str | None = None,
    ) -> None:
        self.name = name
        self.service = service
        self.key = key
        self.event_time = event_time
        self.version = version
        self.deletes = deletes

    def prepare(self, spark: SparkSession, schema: StructType) -> None:
        require_columns(schema, self.key, "key", self.name)
        require_columns(schema, (self.event_time,) if self.event_time else (), "event_time", self.name)
        require_columns(schema, (self.version,) if self.version else (), "version", self.name)
        self.service.prepare(stored_columns(schema, self.deletes, self.name))
        require_fit(self.changes(spark, schema))

    def changes(self, spark: SparkSession, schema: StructType) -> Changes:
        return self.service.changes(stored_columns(schema, self.deletes, self.name))

    def evolve(self, spark: SparkSession, steps: Sequence[Step]) -> None:
        self.service.evolve(steps)

    def write(self, rows: DataFrame, batch: BatchId) -> None:
        """Upserts are their own protection: the same rows again leave the same content."""
        newest = newest_per_key(rows, self.key, self.event_time, self.version)
        pace = self.pace(rows.sparkSession)
        try:
            send(staying(newest, self.deletes), self.service, "advance" if self.version else "upsert", pace)
            if self.deletes:
                keys = removing(newest, self.deletes).select(*(quoted(name) for name in self.key))
                send(keys, self.service, "delete", pace)
        except Exception as error:
            raise refused(error, self.name) from error

    def read(self, spark: SparkSession, window: Window | None = None) -> DataFrame:
        return self.of_window(fetch(spark, self.service, window), window)

    def rows_of(self, spark: SparkSession, keys: DataFrame) -> DataFrame:
        """Asks for the keys in batches: a large table is not read for a few of them."""
        from pyspark.sql import functions as F

        types = {field.name: field.dataType for field in self.service.schema()}
        typed = [F.col(quoted(name)).cast(types[name]).alias(name) for name in self.key]
        return look_up(spark, self.service, self.as_stored(keys).select(*typed), self.pace(spark))

    def of_window(self, rows: DataFrame, window: Window | None) -> DataFrame:
        """Those of the rows that lie in the window: a service may answer more."""
        return in_window(rows, self.event_time, window, self.name)

    def as_stored(self, rows: DataFrame) -> DataFrame:
        return self.service.as_stored(rows)


def as_json(value: Any) -> Any:
    """A nested value as JSON text, None as None: for services without nested types."""
    if value is None:
        return None
    import json

    return json.dumps(value, default=str, ensure_ascii=False, separators=(",", ":"))


def schema_of(columns: dict[str, str]) -> StructType:
    """A schema from column names and Spark's short names of their types; needs no running Spark."""
    from pyspark.sql.types import StructType

    long_names = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long"}
    made = StructType()
    for name, kind in columns.items():
        made = made.add(name, long_names.get(kind, kind))
    return made
