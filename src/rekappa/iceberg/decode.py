"""One manifest of an Iceberg table, read fast: what planning needs of each data file, and no more.

PyIceberg's planning makes objects of everything that a manifest holds, a third of a millisecond for a file; a table of
a million files would take five minutes. Its Avro reader alone takes a fortieth of that. This runs in processes of its
own, so it imports little.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any, NamedTuple

from rekappa.iceberg.files import local_path

DELETED = 2
"""The status of an entry whose file is in the table no more."""
_STATUS, _DATA_FILE = 0, 2
_PATH, _FORMAT, _PARTITION, _ROWS, _SIZE = 100, 101, 102, 103, 104
_VALUES, _NULLS, _LOWER, _UPPER = 109, 110, 125, 128
"""Ids of a manifest's fields, by Iceberg's specification."""


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
    none is recorded; `partition` has the values of its spec's fields. Of the stretches that were asked for, bit n of
    `fits` says whether it may hold rows of the nth."""

    path: str
    format: str
    rows: int
    size: int
    spec: int
    partition: tuple[Any, ...]
    lower: tuple[Any, ...]
    upper: tuple[Any, ...]
    deletes: bool = False
    fits: int = 0


@dataclass(frozen=True, slots=True)
class Between:
    """Asks for files whose bounds of a column, given by its place among those asked for, may hold a number in [low,
    high]. Numbers are Iceberg's own: micro- or nanoseconds, or days."""

    place: int
    low: int
    high: int

    def may_hold(self, lower: tuple[Any, ...], upper: tuple[Any, ...]) -> bool:
        low, high = lower[self.place], upper[self.place]
        return low is None or high is None or bool(low <= self.high and high >= self.low)


def fitting(wanted: tuple[Between, ...], lower: tuple[Any, ...], upper: tuple[Any, ...]) -> int:
    """A bit for each of the stretches that these bounds do not rule out."""
    return sum(1 << place for place, one in enumerate(wanted) if one.may_hold(lower, upper))


def read_manifest(
    path: str, spec: int, io: Mapping[str, str], columns: tuple[AskedColumn, ...], wanted: tuple[Between, ...]
) -> list[FileEntry]:
    """The data files that a manifest says are in the table: those that fit one of `wanted`, or all if that is empty."""
    from pyiceberg.avro.file import AvroFile

    found = []
    with AvroFile[Any](_Content(path, io)) as records:  # type: ignore[arg-type]  # all it does is to open it
        entry = _places(records.schema.as_struct())
        file = _places(records.schema.find_type(_DATA_FILE))
        status, data_file = entry[_STATUS], entry[_DATA_FILE]
        named, kind, partition = file[_PATH], file[_FORMAT], file[_PARTITION]
        rows, size, lows, highs = file[_ROWS], file[_SIZE], file[_LOWER], file[_UPPER]
        values, nulls = file.get(_VALUES), file.get(_NULLS)
        for record in records:
            if record[status] == DELETED:
                continue
            one = record[data_file]
            lower, upper = _bounds(one[lows], columns), _bounds(one[highs], columns)
            fits = fitting(wanted, lower, upper)
            for place, between in enumerate(wanted):
                if lower[between.place] is None and values is not None and nulls is not None:
                    column = columns[between.place].id
                    known = (one[values] or {}).get(column)
                    # The file says that it holds no value of the column.
                    fits &= ~(1 << place) if known is not None and known == (one[nulls] or {}).get(column) else -1
            if wanted and not fits:
                continue
            cells = one[partition]
            whole = tuple([cells[at] for at in range(len(cells))])
            found.append(FileEntry(one[named], one[kind], one[rows], one[size], spec, whole, lower, upper, False, fits))
    return found


def _places(struct: Any) -> dict[int, int]:
    """Where a field stands in a record, by its id: writers may leave out what they do not know."""
    return {field.field_id: place for place, field in enumerate(struct.fields)}


def _bounds(known: Mapping[int, bytes] | None, columns: tuple[AskedColumn, ...]) -> tuple[Any, ...]:
    return tuple([column.read(known.get(column.id)) for column in columns]) if known else (None,) * len(columns)


class _Content:
    """A manifest's bytes, as the Avro reader asks for them."""

    def __init__(self, path: str, io: Mapping[str, str]) -> None:
        self._path, self._io = path, io

    def open(self, seekable: bool = True) -> BytesIO:
        return BytesIO(_content(self._path, self._io))


def _content(path: str, io: Mapping[str, str]) -> bytes:
    local = local_path(path)
    if local is not None:
        with open(local, "rb") as file:
            return file.read()
    from pyiceberg.io import load_file_io

    with load_file_io(dict(io), path).new_input(path).open() as stream:
        return stream.read()
