"""One manifest of an Iceberg table, read fast: what planning needs of each data file, and no more.

PyIceberg makes objects of everything that a manifest holds, a third of a millisecond for a file; a table of a million
files would take five minutes. This takes a twentieth of it and runs in processes of its own, so it imports little.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any, NamedTuple

from rekappa.iceberg.files import local_path

DELETED = 2
"""The status of an entry whose file is in the table no more."""


class AskedColumn(NamedTuple):
    """A column whose bounds are asked for, by its field id: of text, or of whole numbers or times."""

    id: int
    text: bool = False

    def read(self, bound: bytes | None) -> Any:
        """A bound as Iceberg writes it: text, or a number in the column's own unit; None where none is recorded."""
        if bound is None:
            return None
        return bound.decode(errors="replace") if self.text else int.from_bytes(bound, "little", signed=True)


class FileEntry(NamedTuple):
    """A data file as the metadata tells of it. `lower` and `upper` have a bound for each column asked for, None where
    none is recorded; `partition` has the values of its spec's fields."""

    path: str
    format: str
    rows: int
    size: int
    spec: int
    partition: tuple[Any, ...]
    lower: tuple[Any, ...]
    upper: tuple[Any, ...]
    deletes: bool = False


@dataclass(frozen=True, slots=True)
class Between:
    """Asks for files whose bounds of a column, given by its place among those asked for, may hold a number in [low,
    high]. Numbers are Iceberg's own: micro- or nanoseconds, or days."""

    place: int
    low: int
    high: int

    def may_hold(self, entry: FileEntry) -> bool:
        low, high = entry.lower[self.place], entry.upper[self.place]
        return low is None or high is None or bool(low <= self.high and high >= self.low)


def read_manifest(
    path: str, spec: int, io: Mapping[str, str], columns: tuple[AskedColumn, ...], wanted: Between | None
) -> list[FileEntry]:
    """The data files that a manifest says are in the table, those that are `wanted`."""
    import fastavro

    records: Iterator[Any] = iter(fastavro.reader(BytesIO(_content(path, io))))
    found = []
    for record in records:
        if record["status"] == DELETED:
            continue
        file = record["data_file"]
        lower, upper = _bounds(file["lower_bounds"], columns), _bounds(file["upper_bounds"], columns)
        if wanted is not None and lower[wanted.place] is None and _all_null(file, columns[wanted.place].id):
            continue
        entry = FileEntry(
            file["file_path"],
            file["file_format"],
            file["record_count"],
            file["file_size_in_bytes"],
            spec,
            tuple(file["partition"].values()),
            lower,
            upper,
        )
        if wanted is None or wanted.may_hold(entry):
            found.append(entry)
    return found


def _bounds(pairs: Any, columns: tuple[AskedColumn, ...]) -> tuple[Any, ...]:
    # Maps with whole numbers as keys are written as lists of pairs.
    known = {pair["key"]: pair["value"] for pair in pairs or ()}
    return tuple([column.read(known.get(column.id)) for column in columns])


def _all_null(file: Any, column: int) -> bool:
    """Whether the file says that it holds no value of the column."""
    nulls = {pair["key"]: pair["value"] for pair in file.get("null_value_counts") or ()}
    values = {pair["key"]: pair["value"] for pair in file.get("value_counts") or ()}
    return column in nulls and nulls[column] == values.get(column)


def _content(path: str, io: Mapping[str, str]) -> bytes:
    local = local_path(path)
    if local is not None:
        with open(local, "rb") as file:
            return file.read()
    from pyiceberg.io import load_file_io

    with load_file_io(dict(io), path).new_input(path).open() as stream:
        return stream.read()
