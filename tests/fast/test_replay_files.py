"""Finding data files and the columns in them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rekappa.iceberg.files import leaf, local_path
from rekappa.plan.model import Split
from rekappa.replay.by_file import told_apart


def test_local_paths_are_taken_literally() -> None:
    assert local_path("file:/a b/c%20d") == "/a b/c%20d"
    assert local_path("file:///a") == "/a"
    assert local_path("/a") == "/a"
    assert local_path("s3://bucket/a") is None


def test_files_are_told_apart_by_names_that_everybody_writes_alike() -> None:
    now = datetime(2026, 11, 1, tzinfo=UTC)

    def known(*paths: str) -> bool:
        return told_apart(Split("events", path, 1, 1, now, now) for path in paths)

    assert known("file:/a b/day=1/00000-1-x.parquet", "file:/a b/day=2/00001-1-x.parquet")
    assert known("s3://lake/one.parquet", "s3://lake/one.parquet"), "two pieces of one file"
    assert not known("file:/day=1/part-0.parquet", "file:/day=2/part-0.parquet")
    assert not known("file:/lake/one%20file.parquet")
    assert not known("file:/lake/one file.parquet")


def column(name: str, kind: Any, number: int) -> Any:
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})


def test_a_column_is_found_by_its_number_and_by_name_only_where_there_are_none(tmp_path: Path) -> None:
    inner = pa.struct([column("was", pa.int64(), 12), column("other", pa.int64(), 13)])
    numbered = pa.schema([column("id", pa.int64(), 1), column("m", inner, 10)])
    plain = pa.schema([pa.field("id", pa.int64()), pa.field("m", pa.struct([("now", pa.int64())]))])
    for name, schema in (("numbered", numbered), ("plain", plain)):
        pq.write_table(schema.empty_table(), tmp_path / name)
    found = pq.ParquetFile(tmp_path / "numbered").metadata
    assert leaf(found, "m.now", 12) == 1
    assert leaf(found, "m.was", 99) is None
    assert leaf(pq.ParquetFile(tmp_path / "plain").metadata, "m.now", 12) == 1
