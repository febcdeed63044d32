"""Differences into one file: Parquet with the rows as they are, JSON lines, or CSV with a column for each side."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rekappa.errors import InputError
from rekappa.spark.values import plain_value
from rekappa.validate.diff import UNIT
from rekappa.validate.differences import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CHUNK = 200_000
"""How many rows are in memory at once."""


def writer_of(path: Path) -> Callable[[DataFrame, Path], int]:
    """What writes a file of this name; refuses a name that says nothing, or a folder that is not there."""
    found = {".parquet": _parquet, ".csv": _csv, ".jsonl": _json_lines}.get(path.suffix.lower())
    if found is None:
        raise InputError(f"Cannot export to {path}", hint="Its name must end in .parquet, .csv or .jsonl.")
    if not path.parent.is_dir():
        raise InputError(f"Cannot export to {path}: there is no folder {path.parent}")
    return found


def export(rows: DataFrame, path: Path) -> int:
    """Write all differences; answers how many. The file is there as a whole or not at all."""
    write = writer_of(path)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        count = write(rows, draft)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return count


def plain_rows(rows: DataFrame) -> Iterator[dict[str, Any]]:
    """The differences as JSON can hold them, one by one."""
    found = rows.select(*COLUMNS)
    kinds = [field.dataType for field in found.schema.fields]
    for row in found.toLocalIterator():
        yield {name: plain_value(value, kind) for name, value, kind in zip(COLUMNS, row, kinds, strict=True)}


def _json_lines(rows: DataFrame, path: Path) -> int:
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for row in plain_rows(rows):
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            count += 1
    return count


def _csv(rows: DataFrame, path: Path) -> int:
    names = rows.select("production.*").columns
    count = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        sides = [f"{side}.{name}" for name in names for side in ("production", "staging")]
        out.writerow(["kind", "cause", "columns", *sides])
        for row in plain_rows(rows):
            both = [_cell(row[side], name) for name in names for side in ("production", "staging")]
            out.writerow([row["kind"], row["cause"], " ".join(row["columns"]), *both])
            count += 1
    return count


def _cell(side: Mapping[str, Any] | None, name: str) -> Any:
    value = None if side is None else side[name]
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value


def _parquet(rows: DataFrame, path: Path) -> int:
    """In pieces, by what each row is told apart by: the rows are held by Spark, one piece at a time comes here."""
    import pyarrow.parquet as pq
    from pyspark.sql import functions as F

    pieces = rows.count() // CHUNK + 1
    count, writer = 0, None
    try:
        for piece in range(pieces):
            part = rows.where(F.pmod(F.xxhash64(UNIT), F.lit(pieces)) == piece).select(*COLUMNS).toArrow()
            writer = writer or pq.ParquetWriter(path, part.schema)
            writer.write_table(part)
            count += part.num_rows
    finally:
        if writer is not None:
            writer.close()
    return count
