"""Finding data files and the columns in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rekappa.iceberg.files import leaf, local_path


def test_local_paths_are_taken_literally() -> None:
    assert local_path("file:/a b/c%20d") == "/a b/c%20d"
    assert local_path("file:///a") == "/a"
    assert local_path("/a") == "/a"
    assert local_path("s3://bucket/a") is None


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
