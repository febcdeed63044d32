"""Reading pieces of Parquet files: cuts, offsets, deletes, and schemas that changed since."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rekappa.errors import SourceError
from rekappa.plan.model import OffsetRange
from rekappa.replay.files import local_path
from rekappa.replay.reader import Piece, Reading, read

IDS = {
    "id": 1, "name": 2, "added": 3, "__metadata__": 10, "__metadata__.partition": 11, "__metadata__.offset": 12,
    "__metadata__.kafka_ingestion_ts": 13, "__metadata__.region": 14, "__metadata__.topic": 15,
}  # fmt: skip
STAMP = pa.timestamp("us", tz="UTC")


def column(name: str, kind: Any, number: int) -> Any:
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})


@pytest.fixture
def file(tmp_path: Path) -> str:
    """Ten rows in five row groups; `title` is what `name` was called before; `id` was an int."""
    kept = pa.struct(
        [
            column("partition", pa.int32(), 11),
            column("offset", pa.int64(), 12),
            column("kafka_ingestion_ts", STAMP, 13),
            column("region", pa.string(), 14),
            column("topic", pa.string(), 15),
        ]
    )
    schema = pa.schema([column("id", pa.int32(), 1), column("title", pa.string(), 2), column("__metadata__", kept, 10)])
    rows = [
        {
            "id": n,
            "title": f"n{n}",
            "__metadata__": {
                "partition": n % 2, "offset": n // 2, "kafka_ingestion_ts": n * 100,
                "region": "eu" if n < 5 else "us", "topic": "t",
            },
        }
        for n in range(10)
    ]  # fmt: skip
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema), path, row_group_size=2)
    return str(path)


def reading(*fields: tuple[str, Any]) -> Reading:
    return Reading(pa.schema(list(fields)), IDS, {})


def ids_of(piece: Piece, *offsets: OffsetRange) -> list[int]:
    return [n for batch in read(reading(("id", pa.int64())), [piece], offsets, 0) for n in batch["id"].to_pylist()]


def test_columns_are_found_by_id(file: str) -> None:
    wanted = reading(
        ("name", pa.string()), ("id", pa.int64()), ("added", pa.list_(pa.float64())), ("title", pa.string())
    )
    table = pa.Table.from_batches(read(wanted, [Piece(file)], (), 0))
    assert table.schema == wanted.schema
    assert table["name"].to_pylist()[3] == "n3"
    assert table["id"].to_pylist() == list(range(10))
    assert set(table["added"].to_pylist()) == {None}
    assert set(table["title"].to_pylist()) == {None}


def test_nested_fields_are_pruned_and_filled(file: str) -> None:
    kind = pa.struct([("offset", pa.int64()), ("headers", pa.list_(pa.string())), ("region", pa.string())])
    table = pa.Table.from_batches(read(reading(("__metadata__", kind)), [Piece(file)], (), 0))
    assert table["__metadata__"].to_pylist()[9] == {"offset": 4, "headers": None, "region": "us"}


def test_cut_is_half_open(file: str) -> None:
    assert ids_of(Piece(file, cut=(200, 500))) == [2, 3, 4]
    assert ids_of(Piece(file, row_groups=(1,), cut=(0, 300))) == [2]


def test_regions(file: str) -> None:
    assert ids_of(Piece(file, regions=("us",))) == [5, 6, 7, 8, 9]


def test_deleted_rows_are_gone(file: str) -> None:
    gone = np.array([0, 3, 9], "<i8").tobytes()
    assert ids_of(Piece(file, deleted=gone)) == [1, 2, 4, 5, 6, 7, 8]
    assert ids_of(Piece(file, row_groups=(1, 4), deleted=gone)) == [2, 8]


def test_offsets_come_in_kafkas_order(file: str) -> None:
    wanted = [OffsetRange("", "t", 1, 1, 4), OffsetRange("us", "t", 0, 0, 9)]
    assert ids_of(Piece(file), *wanted) == [3, 6, 8, 5, 7]


def test_pieces_with_and_without_a_cut_are_put_in_order_together(file: str) -> None:
    pieces = [Piece(file, row_groups=(2, 3, 4), cut=(400, 800)), Piece(file, row_groups=(0, 1))]
    batches = read(reading(("id", pa.int64())), pieces, [OffsetRange("", "t", 0, 1, 9)], 0)
    assert [n for batch in batches for n in batch["id"].to_pylist()] == [2, 4, 6]


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"slice 7: file .*gone\.parquet"):
        list(read(reading(("id", pa.int64())), [Piece(str(tmp_path / "gone.parquet"))], (), 7))


def test_lists_of_structs_are_fitted_by_id(tmp_path: Path) -> None:
    """A field renamed and one added inside a list; null and empty lists stay what they are."""
    old = pa.struct([column("label", pa.string(), 22), column("n", pa.int32(), 23)])
    kind = pa.list_(pa.field("element", old, nullable=False, metadata={"PARQUET:field_id": "21"}))
    rows = [{"tags": [{"label": "a", "n": 1}]}, {"tags": None}, {"tags": []}, {"tags": [{"label": "b", "n": 2}] * 2}]
    path = tmp_path / "b.parquet"
    pq.write_table(pa.Table.from_pylist(rows, pa.schema([column("tags", kind, 20)])), path)
    ids = {"tags": 20, "tags.element": 21, "tags.element.key": 22, "tags.element.n": 23, "tags.element.more": 24}
    wanted = pa.list_(pa.struct([("more", pa.string()), ("n", pa.int64()), ("key", pa.string())]))
    batches = read(Reading(pa.schema([("tags", wanted)]), ids, {}), [Piece(str(path))], (), 0)
    made = pa.Table.from_batches(batches)["tags"].to_pylist()
    assert made[:3] == [[{"more": None, "n": 1, "key": "a"}], None, []]
    assert [one["key"] for one in made[3]] == ["b", "b"]


def test_local_paths_are_taken_literally() -> None:
    assert local_path("file:/a b/c%20d") == "/a b/c%20d"
    assert local_path("file:///a") == "/a"
    assert local_path("/a") == "/a"
    assert local_path("s3://bucket/a") is None
