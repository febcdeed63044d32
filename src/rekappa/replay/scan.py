"""One slice of one source as a DataFrame: exactly the planned files, and of them only the planned rows and the
columns that the job uses.

Two readers do that. Spark's own for Parquet is the faster one (it reads structs in vectors, which Iceberg's does
not), and all it needs to know is in the plan. Iceberg's own knows about everything else: row-level deletes, columns
that were renamed, file systems that only Iceberg can open.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from rekappa.errors import SourceError
from rekappa.fence.filter import counting
from rekappa.fence.line import Fence
from rekappa.iceberg.commits import load_table
from rekappa.iceberg.private import Filters, planned
from rekappa.iceberg.tasks import read_tasks
from rekappa.plan.model import OffsetRange, SourceSlice, Split
from rekappa.record import HEADERS, INGESTION, METADATA, OFFSET, PARTITION, REGION, TOPIC
from rekappa.replay.by_file import HIDDEN, numbered, told_apart
from rekappa.replay.names import read_by_name
from rekappa.sources.decode import metadata_type
from rekappa.sources.iceberg import narrowed, shape, shaped
from rekappa.spark.computing import compute
from rekappa.spark.private import Chosen, Pages, activate, as_stream_batch, cloned, files_as_stream, united
from rekappa.spark.times import within_any
from rekappa.timeline import TICK, Window, micros

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField, StructType

SMALLEST_TASK = 512 * 1024
"""A task costs some milliseconds whatever it reads: less than this many bytes are not worth one."""
SLACK = 1.15
"""Files don't fall into equal parts: without some room a small rest would make a task of its own."""


class _Kind(NamedTuple):
    """What splits have in common that can be read together."""

    by_spark: bool
    cut: Window | None
    mixed: bool
    """Whether rows of regions that are not wanted may be among them."""


@dataclass(frozen=True)
class SliceScan:
    """What is the same for all slices of a source: its table, the record's columns to answer, the plan's choices, and
    which rows count, if not all do."""

    spark: SparkSession
    table: str
    schema: StructType
    regions: tuple[str, ...]
    snapshot: int | None
    fence: Fence | None = None

    def stream(self, part: SourceSlice) -> Any:
        """The slice's rows as a Java Dataset that Spark takes for a part of a stream.

        With offsets, each Kafka partition's rows come in its order.
        """
        groups = self._groups(part)
        if list(groups) == [_Kind(True, None, False)] and not part.offsets and self.fence is None:
            whole: Any = self._asked.of(files_as_stream(self._session, self._files(part.splits)))._jdf
            return whole
        with ExitStack() as staged:
            if self.fence is None and not part.offsets and all(kind.by_spark for kind in groups):
                frames = [self._asked.of(self._found(kind, splits)) for kind, splits in groups.items()]
                rows = reduce(lambda one, other: one.union(other), frames) if frames else self._nothing
            else:
                rows = self._rows(staged, groups, part.offsets)
                if part.offsets:
                    rows = self._in_kafka_order(rows, part.offsets)
                rows = rows.select(*_columns(self.schema))
            # Planned while Iceberg's tasks are staged. What Spark counts as read are the rows that are left.
            return as_stream_batch(self._session, rows)

    def together(self, parts: Iterable[tuple[int, SourceSlice]], number: str, place: str) -> DataFrame:
        """The rows of many slices as one batch DataFrame. Two columns more say the slice of a row and its place there:
        places of one slice rise in the order in which its files are read."""
        from pyspark.sql import functions as F

        listed = [(slice_number, part) for slice_number, part in parts if part.splits]
        known = HIDDEN not in self._in_files.names and told_apart(one for _, part in listed for one in part.splits)
        at_once: dict[_Kind, list[tuple[int, Split]]] = {}
        frames: list[DataFrame] = []
        with ExitStack() as staged:
            for slice_number, part in listed:
                groups = self._groups(part)
                for kind in [kind for kind in groups if known and kind.by_spark and not part.offsets]:
                    some = at_once.setdefault(kind._replace(cut=None), [])
                    some += ((slice_number, split) for split in groups.pop(kind))
                if groups:
                    rows = self._rows(staged, groups, part.offsets)
                    frames.append(self._marked(rows, F.lit(slice_number).alias(number), place, 0))
            for order, (kind, slices) in enumerate(at_once.items(), 1):
                rows = numbered(self._files([split for _, split in slices]), slices, number)
                rows = shaped(narrowed(rows, None, self._wanted(kind)), self._payload, None, number)
                frames.append(self._marked(self._fenced(rows), F.col(number), place, order))
            nothing = self._nothing.select("*", F.lit(0).alias(number), F.lit(0).cast("bigint").alias(place))
            return united(self.spark, frames or [nothing])

    def _marked(self, rows: DataFrame, number: Column, place: str, order: int) -> DataFrame:
        """The record, the slice's number, and the place. Rows of one slice may come from frames of several orders."""
        from pyspark.sql import functions as F

        here = F.monotonically_increasing_id() + F.lit(order << 56)
        return rows.select(*_columns(self.schema), number, here.alias(place))

    def activate(self) -> None:
        """Make the session that slices are planned in the one of the calling thread."""
        activate(self._session)

    def unreadable(self, part: SourceSlice) -> tuple[str, str] | None:
        """The first file of the slice that can't be read, with the reason; None if all can.

        Raises `SourceError` for one that the table no longer has.
        """
        for split in part.splits:
            try:
                with ExitStack() as staged:
                    frame = self._frame(staged, self._kind(split), [split], part.offsets)
                    compute(frame)
            except SourceError:
                raise
            except Exception as error:
                return split.path, root_cause(error)
        return None

    def _groups(self, part: SourceSlice) -> dict[_Kind, list[Split]]:
        groups: dict[_Kind, list[Split]] = {}
        for split in part.splits:
            groups.setdefault(self._kind(split), []).append(split)
        return groups

    def _rows(self, staged: ExitStack, groups: dict[_Kind, list[Split]], offsets: Sequence[OffsetRange]) -> DataFrame:
        frames = [self._frame(staged, kind, splits, offsets) for kind, splits in groups.items()]
        return reduce(lambda one, other: one.union(other), frames) if frames else self._nothing

    def _kind(self, split: Split) -> _Kind:
        return _Kind(self._by_name and not split.deletes, split.cut, bool(self.regions) and not split.region)

    def _found(self, kind: _Kind, splits: Sequence[Split]) -> DataFrame:
        """The rows of splits that Spark reads, as they are in the files."""
        found = self._files(splits, kind.cut)
        if kind.cut is not None:
            found = found.where(within_any(INGESTION, kind.cut))
        return narrowed(found, None, self._wanted(kind))

    def _frame(
        self, staged: ExitStack, kind: _Kind, splits: Sequence[Split], offsets: Sequence[OffsetRange]
    ) -> DataFrame:
        """The rows of splits of one kind, as records."""
        if kind.by_spark:
            found = self._recorded.of(self._found(kind, splits))
        else:
            tasks = self._tasks(splits, kind.cut, offsets)
            size = max(int(SLACK * sum(task.length() for task in tasks) / self._cores), SMALLEST_TASK)
            found = staged.enter_context(read_tasks(self._session, self._java, tasks, size))
            if kind.cut is not None:
                found = found.where(within_any(INGESTION, kind.cut))
            found = shaped(narrowed(found, None, self._wanted(kind)), self._payload, None)
        found = self._fenced(found)
        return found.where(within_offsets(offsets)) if offsets else found

    def _fenced(self, rows: DataFrame) -> DataFrame:
        """The rows that count."""
        from pyspark.sql import functions as F

        return rows if self.fence is None else rows.where(counting(F.col(HEADERS), self.fence))

    def _wanted(self, kind: _Kind) -> tuple[str, ...]:
        """The regions to look for, where rows of others may be among them."""
        return self.regions if kind.mixed else ()

    def _files(self, splits: Sequence[Split], cut: Window | None = None) -> DataFrame:
        """The files, read by Spark alone. Their paths are taken as they are, whatever characters are in them. Of those
        that are cut, pages without rows of the cut are not read."""
        options = {"__globPaths__": "false", "datetimeRebaseMode": "CORRECTED"}
        if cut is not None:
            options |= self._pages.between(micros(cut.start), micros(cut.end))
        paths = dict.fromkeys(one.path for one in splits)
        return self._session.read.schema(self._in_files).options(**options).parquet(*paths)

    @cached_property
    def _pages(self) -> Pages:
        return Pages(self.spark, INGESTION)

    @cached_property
    def _recorded(self) -> Chosen:
        """The whole record, of what is in the files."""
        return Chosen(self._session, shape(self._in_files, self._payload))

    @cached_property
    def _asked(self) -> Chosen:
        """What is asked for, of what is in the files."""
        *made, metadata = shape(self._in_files, self._payload)
        if METADATA in self.schema.names:
            made.append(_narrow(metadata, self.schema[METADATA]))
        return Chosen(self._session, made)

    def _tasks(self, splits: Sequence[Split], cut: Window | None, offsets: Sequence[OffsetRange]) -> list[Any]:
        """Iceberg's tasks for these files. Where not all rows are wanted, a task knows which row groups to skip."""
        filters = Filters(self.spark)
        bounds: dict[str, tuple[Any, Any]] = {}
        if cut or not offsets:
            stretch = cut or Window(min(one.low for one in splits), max(one.high for one in splits) + TICK)
            bounds[INGESTION] = (stretch.start.isoformat(), stretch.end.isoformat())
        if offsets:
            bounds[OFFSET] = (min(one.start for one in offsets), max(one.end for one in offsets))
        wanted = [
            condition
            for column, (low, high) in bounds.items()
            for condition in (filters.at_least(column, low), filters.below(column, high))
        ]
        scan = self._java.newScan().filter(filters.all_of(wanted))
        if self.snapshot is not None and self._java.snapshot(self.snapshot) is not None:
            scan = scan.useSnapshot(self.snapshot)
        if not cut and not offsets:
            # All rows are wanted, and the reader would ask for a column that nobody else reads.
            scan = scan.ignoreResiduals()
        known = {task.file().location(): task for task in planned(self.spark, scan)}
        missing = [split.path for split in splits if split.path not in known]
        if missing:
            raise SourceError(
                f"Cannot read file {missing[0]}: table {self.table} no longer has it",
                hint="The table was changed and its old snapshots expired since the plan was made. Plan again.",
            )
        return [known[split.path] for split in splits]

    def _in_kafka_order(self, rows: DataFrame, offsets: Sequence[OffsetRange]) -> DataFrame:
        partitions = len({(one.region, one.topic, one.partition) for one in offsets})
        spread = rows.repartition(min(partitions, self._cores), REGION, TOPIC, PARTITION)
        return spread.sortWithinPartitions(REGION, TOPIC, PARTITION, OFFSET)

    @cached_property
    def _session(self) -> SparkSession:
        """A session of our own: a slice is small and planned, so Spark need not look at it again while it runs."""
        own = cloned(self.spark)
        own.conf.set("spark.sql.adaptive.enabled", "false")
        own.conf.set("spark.sql.files.openCostInBytes", str(SMALLEST_TASK))
        # Files are looked up on the driver: a Spark job that asks for them would take longer.
        own.conf.set("spark.sql.sources.parallelPartitionDiscovery.threshold", "10000")
        return own

    @cached_property
    def _java(self) -> Any:
        return load_table(self.spark, self.table)

    @cached_property
    def _by_name(self) -> bool:
        return read_by_name(self.spark, self._java)

    @cached_property
    def _nothing(self) -> DataFrame:
        return self._session.createDataFrame([], self.schema)

    @cached_property
    def _payload(self) -> StructType:
        from pyspark.sql.types import StructType

        return StructType([field for field in self.schema.fields if field.name != METADATA])

    @cached_property
    def _in_files(self) -> StructType:
        """The columns to look for in the files, in the table's types."""
        from pyspark.sql.types import StructType

        wanted = {*self._payload.names, METADATA}
        return StructType([field for field in self.spark.table(self.table).schema if field.name in wanted])

    @cached_property
    def _cores(self) -> int:
        return max(self.spark.sparkContext.defaultParallelism, 1)


def root_cause(error: BaseException) -> str:
    """The first line of what went wrong at the bottom of it: Java's innermost cause, where there is one."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while java is not None and java.getCause() is not None:
        java = java.getCause()
    text = str(java.getMessage() or java.toString()) if java is not None else str(error)
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)


def _columns(schema: StructType) -> Iterable[Column]:
    """The columns of the schema, of `__metadata__` only the fields that it names."""
    from pyspark.sql import functions as F

    for field in schema.fields:
        yield _narrow(F.col(METADATA), field) if field.name == METADATA else F.col(field.name)


def _narrow(metadata: Column, wanted: StructField) -> Column:
    """`__metadata__` with the fields that are wanted of it."""
    from pyspark.sql import functions as F

    if wanted.dataType == metadata_type():
        return metadata
    parts = (metadata[name].alias(name) for name in wanted.dataType.names)  # type: ignore[attr-defined]
    return F.struct(*parts).alias(METADATA)


def within_offsets(offsets: Sequence[OffsetRange]) -> Column:
    """Whether a row lies in one of the offset ranges. Its partition is looked up in two arrays: there may be many."""
    from pyspark.sql import functions as F

    found: Column | None = None
    for region, topic in sorted({(one.region, one.topic) for one in offsets}):
        ranges = {one.partition: one for one in offsets if (one.region, one.topic) == (region, topic)}
        known = [ranges.get(number) for number in range(max(ranges) + 1)]
        starts = F.array(*(F.lit(one.start if one else 0).cast("bigint") for one in known))
        ends = F.array(*(F.lit(one.end if one else 0).cast("bigint") for one in known))
        here = (F.col(OFFSET) >= F.get(starts, F.col(PARTITION))) & (F.col(OFFSET) < F.get(ends, F.col(PARTITION)))
        if topic:
            here &= F.col(TOPIC) == F.lit(topic)
        if region:
            here &= F.col(REGION) == F.lit(region)
        found = here if found is None else found | here
    assert found is not None, "called with ranges only"
    return found
