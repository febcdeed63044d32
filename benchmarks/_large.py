"""A real Iceberg table of many files, made from metadata alone: the data files that it names are not there.

Manifests are written as Iceberg writes them, a few thousand files each, by a plain Avro writer: PyIceberg writes the
first entry of each kind, so that schema and headers are its own.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rekappa.timeline import EPOCH, micros

if TYPE_CHECKING:
    from pyiceberg.table import Table

START = datetime(2026, 1, 1, tzinfo=UTC)
STEP = timedelta(seconds=20)
"""A new file begins this long after the one before it, and spans a minute."""
IN_A_MANIFEST = 10_000
ROWS, _BYTES = 40_000, 4_000_000


def create(folder: Path, count: int) -> Table:
    """A table `events.plays` of so many files, in a catalog of its own."""
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.schema import Schema
    from pyiceberg.transforms import HourTransform, IdentityTransform
    from pyiceberg.types import IntegerType, LongType, NestedField, StringType, StructType, TimestamptzType

    catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")
    catalog.create_namespace("events")
    kinds = {
        "topic": StringType(), "partition": IntegerType(), "offset": LongType(),
        "kafka_ingestion_ts": TimestamptzType(), "region": StringType(),
    }  # fmt: skip
    place = StructType(*(NestedField(10 + at, name, kind) for at, (name, kind) in enumerate(kinds.items())))
    columns = {"id": LongType(), "event_ts": TimestamptzType(), "__metadata__": place}
    fields = [NestedField(1 + at, name, kind) for at, (name, kind) in enumerate(columns.items())]
    made = catalog.create_table("events.plays", schema=Schema(*fields))
    with made.update_spec() as spec:
        spec.add_field("__metadata__.kafka_ingestion_ts", HourTransform(), "hour")
        spec.add_field("__metadata__.region", IdentityTransform(), "region")
    add_files(catalog.load_table("events.plays"), count)
    return catalog.load_table("events.plays")


def end_of(count: int) -> datetime:
    return START + count * STEP


def add_files(table: Table, count: int) -> None:
    """One commit that adds so many files to an archive table with a column `event_ts`."""
    import pyiceberg.table.snapshots
    import pyiceberg.table.update
    from pyiceberg.manifest import write_manifest_list

    # Models whose arguments no type checker knows by these names.
    state: Any = pyiceberg.table.snapshots
    change: Any = pyiceberg.table.update
    made = _Writer(table)
    manifests = [made.manifest(first, min(first + IN_A_MANIFEST, count)) for first in range(0, count, IN_A_MANIFEST)]
    path = f"{table.location()}/metadata/snap-{made.snapshot}.avro"
    with write_manifest_list(2, table.io.new_output(path), made.snapshot, None, 1, "null") as writer:
        writer.add_manifests(manifests)
    told = {"total-data-files": str(count), "total-files-size": str(count * _BYTES)}
    snapshot = state.Snapshot(
        snapshot_id=made.snapshot,
        sequence_number=1,
        timestamp_ms=int(datetime.now(UTC).timestamp() * 1000),
        manifest_list=path,
        summary=state.Summary(state.Operation.APPEND, **told),
        schema_id=table.metadata.current_schema_id,
    )
    there = change.SetSnapshotRefUpdate(ref_name="main", snapshot_id=made.snapshot, type="branch")
    table.catalog.commit_table(
        table,
        (change.AssertRefSnapshotId(ref="main", snapshot_id=None),),
        (change.AddSnapshotUpdate(snapshot=snapshot), there),
    )


class _Writer:
    def __init__(self, table: Table) -> None:
        self.table, self.snapshot = table, 4_611_686_018_427_387_904
        schema = table.schema()
        names = (
            "event_ts",
            *(f"__metadata__.{name}" for name in ("topic", "partition", "offset", "kafka_ingestion_ts", "region")),
        )
        self._ids = {name.rpartition(".")[2]: schema.find_field(name).field_id for name in names}
        self._template()

    def manifest(self, first: int, last: int) -> Any:
        import fastavro
        from pyiceberg.manifest import ManifestContent, ManifestFile, PartitionFieldSummary

        path = f"{self.table.location()}/metadata/m{first}.avro"
        local = Path(path.removeprefix("file://").removeprefix("file:"))
        with local.open("wb") as out:
            fastavro.writer(out, self._schema, self._entries(first, last), codec="deflate", metadata=self._headers)
        low, high = START + first * STEP, START + last * STEP + timedelta(minutes=1)
        return ManifestFile.from_args(
            manifest_path=path,
            manifest_length=local.stat().st_size,
            partition_spec_id=self.table.spec().spec_id,
            content=ManifestContent.DATA,
            sequence_number=1,
            min_sequence_number=1,
            added_snapshot_id=self.snapshot,
            added_files_count=last - first,
            existing_files_count=0,
            deleted_files_count=0,
            added_rows_count=(last - first) * ROWS,
            existing_rows_count=0,
            deleted_rows_count=0,
            partitions=[
                PartitionFieldSummary(False, False, struct.pack("<i", _hour(low)), struct.pack("<i", _hour(high))),
                PartitionFieldSummary(False, False, b"eu", b"eu"),
            ],
        )

    def _entries(self, first: int, last: int) -> Iterator[dict[str, Any]]:
        for number in range(first, last):
            low = START + number * STEP
            yield self._entry(number, low, min(low + timedelta(seconds=59), low.replace(minute=59, second=59)))

    def _entry(self, number: int, low: datetime, high: datetime) -> dict[str, Any]:
        bounds = [
            {
                "event_ts": _long(micros(at) - 2_000_000),
                "kafka_ingestion_ts": _long(micros(at)),
                "topic": b"events",
                "partition": struct.pack("<i", part),
                "offset": _long(number * ROWS + offset),
                "region": b"eu",
            }
            for at, part, offset in ((low, 0, 0), (high, 3, ROWS - 1))
        ]
        pairs = [[{"key": self._ids[name], "value": value} for name, value in side.items()] for side in bounds]
        counts = [{"key": key, "value": ROWS} for key in self._ids.values()]
        partition = {self._partition[0]: _hour(low), self._partition[1]: "eu"}
        file = {
            **self._blank,
            "content": 0,
            "file_path": f"{self.table.location()}/data/hour={low:%Y-%m-%d-%H}/region=eu/{number:08d}-0-c0ffee.parquet",
            "file_format": "PARQUET",
            "partition": partition,
            "record_count": ROWS,
            "file_size_in_bytes": _BYTES,
            "column_sizes": counts,
            "value_counts": counts,
            "null_value_counts": [{**one, "value": 0} for one in counts],
            "lower_bounds": pairs[0],
            "upper_bounds": pairs[1],
        }
        return {
            "status": 1,
            "snapshot_id": self.snapshot,
            "sequence_number": None,
            "file_sequence_number": None,
            "data_file": file,
        }

    def _template(self) -> None:
        """Schema and headers of a manifest as PyIceberg writes it."""
        import fastavro
        from pyiceberg.io.pyarrow import PyArrowFileIO
        from pyiceberg.manifest import (
            DataFile,
            DataFileContent,
            FileFormat,
            ManifestEntry,
            ManifestEntryStatus,
            write_manifest,
        )
        from pyiceberg.typedef import Record

        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/one.avro"
            output = PyArrowFileIO().new_output(path)
            file = DataFile.from_args(
                content=DataFileContent.DATA, file_path="x", file_format=FileFormat.PARQUET, partition=Record(0, "eu"),
                record_count=1, file_size_in_bytes=1, lower_bounds={}, upper_bounds={},
            )  # fmt: skip
            file.spec_id = self.table.spec().spec_id
            with write_manifest(2, self.table.spec(), self.table.schema(), output, self.snapshot, "null") as writer:
                writer.add(
                    ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=self.snapshot, data_file=file)
                )
            with open(path, "rb") as found:
                reader = fastavro.reader(found)
                self._schema: Any = reader.writer_schema
                self._headers = {k: v for k, v in reader.metadata.items() if not k.startswith("avro.")}
                one: Any = next(reader)
        self._blank = dict(one["data_file"])
        self._partition = list(one["data_file"]["partition"])


def _hour(at: datetime) -> int:
    return (at - EPOCH) // timedelta(hours=1)


def _long(value: int) -> bytes:
    return struct.pack("<q", value)
