"""The rows of a file: CSV with a header, JSON lines or Parquet.

A row that can't be read at all (a broken line of JSON, a line of CSV with too many cells) is answered with its problem,
so that the reading can go on behind it.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from rekappa.errors import InputError
from rekappa.produce.written import read_json

KINDS = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
_LONGEST_CELL = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Row:
    """One row, by column, and where it stands: the number of its first line, or of the row in a Parquet file."""

    number: int
    values: Mapping[str, Any]
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class FileRows:
    """A file's rows. `columns` are None where every row names its own (JSON lines)."""

    path: Path
    place: str
    columns: tuple[str, ...] | None
    rows: Iterator[Row]


def open_rows(path: Path, delimiter: str | None = None) -> FileRows:
    """Read the header; the rows come one by one. Refuses a file of another kind, or one that can't be read."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = suffixes[-1:] == [".gz"]
    kind = (suffixes[:-1] if packed else suffixes)[-1:]
    if not kind or kind[0] not in KINDS or (packed and kind[0] == ".parquet"):
        raise InputError(
            f"Cannot read {path}: not a kind of file that is known by its name",
            hint=f"It must end in {', '.join(KINDS)}; all but Parquet may be packed (.csv.gz).",
        )
    try:
        if kind[0] == ".parquet":
            return _parquet(path)
        if kind[0] in (".csv", ".tsv"):
            return _csv(path, packed, delimiter or ("\t" if kind[0] == ".tsv" else ","))
        return FileRows(path, "line", None, _json_lines(path, packed))
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> InputError:
    if isinstance(error, UnicodeDecodeError):
        return InputError(
            f"Cannot read {path}: byte 0x{error.object[error.start]:02x}{_line_of_no_text(path)} is no UTF-8",
            hint="Save it as UTF-8, for example  iconv -f WINDOWS-1252 -t UTF-8 FILE.",
        )
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return InputError(f"Cannot read {path}: {reason}")


def _line_of_no_text(path: Path) -> str:
    with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return f" in line {number}"
    return ""


def _text(path: Path, packed: bool) -> IO[str]:
    raw: IO[bytes] = gzip.open(path) if packed else path.open("rb")  # type: ignore[assignment]  # noqa: SIM115
    return io.TextIOWrapper(raw, encoding="utf-8-sig", newline="")


def _csv(path: Path, packed: bool, delimiter: str) -> FileRows:
    if len(delimiter) != 1:
        raise InputError(f"Cannot use delimiter {delimiter!r}: it must be one character")
    with _text(path, packed) as file:
        header = _header(path, file, delimiter)
    if not header:
        raise InputError(f"Cannot read {path}: it is empty", hint="The first line must name the columns.")
    _require_once(path, header)
    return FileRows(path, "line", header, _csv_rows(path, packed, delimiter, header))


def _require_once(path: Path, columns: tuple[str, ...]) -> None:
    for name in columns:
        if columns.count(name) > 1:
            raise InputError(f"Cannot read {path}: column {name!r} stands twice", hint="Give each its own name.")


def _header(path: Path, file: IO[str], delimiter: str) -> tuple[str, ...]:
    try:
        return tuple(name.strip() for name in next(csv.reader(file, delimiter=delimiter, strict=True), []))
    except (csv.Error, UnicodeDecodeError, EOFError) as error:
        raise _unreadable(path, error) from None


def _csv_rows(path: Path, packed: bool, delimiter: str, header: tuple[str, ...]) -> Iterator[Row]:
    before, first = csv.field_size_limit(_LONGEST_CELL), 1
    try:
        with _text(path, packed) as file:
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            next(reader)
            first = reader.line_num + 1
            for cells in reader:
                number, first = first, reader.line_num + 1
                if not cells:
                    continue
                if len(cells) != len(header):
                    yield Row(number, {}, f"has {len(cells)} cells, the first line names {len(header)} columns")
                    continue
                # A text file has no null but nothing.
                yield Row(number, {name: cell or None for name, cell in zip(header, cells, strict=True)})
    except csv.Error as error:
        raise InputError(
            f"Cannot read {path}: the row that begins in line {first} is no CSV: {error}",
            hint="Is a quote never closed? A quote inside a quoted cell is written twice.",
        ) from None
    except (UnicodeDecodeError, OSError, EOFError) as error:
        raise _unreadable(path, error) from None
    finally:
        csv.field_size_limit(before)


def _json_lines(path: Path, packed: bool) -> Iterator[Row]:
    try:
        with _text(path, packed) as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                try:
                    found = read_json(line, _members)
                except _Unusable as error:
                    yield Row(number, {}, str(error))
                    continue
                except (ValueError, RecursionError):
                    yield Row(number, {}, f"{_short(line)} is no JSON")
                    continue
                if isinstance(found, dict):
                    yield Row(number, found)
                else:
                    yield Row(number, {}, f"{_short(line)} is no JSON object")
    except (UnicodeDecodeError, OSError, EOFError) as error:
        raise _unreadable(path, error) from None


class _Unusable(Exception):
    """JSON that says what can't be kept as it is said."""


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _Unusable(f"has {twice!r} twice")
    return made


def _short(line: str) -> str:
    text = line.strip()
    return repr(text if len(text) <= 60 else text[:60] + "…")


def _parquet(path: Path) -> FileRows:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Python's times have microseconds: what is finer is cut here, as it would be in Spark.
        file = pq.ParquetFile(path, coerce_int96_timestamp_unit="us")
    except pa.ArrowInvalid as error:
        raise _unreadable(path, error) from None
    columns = tuple(file.schema_arrow.names)
    _require_once(path, columns)
    return FileRows(path, "row", columns, _parquet_rows(path, file))


def _parquet_rows(path: Path, file: Any) -> Iterator[Row]:
    import pyarrow as pa

    number = 0
    try:
        for batch in file.iter_batches(batch_size=10_000):
            columns = [_in_micros(column).to_pylist() for column in batch.columns]
            for values in zip(*columns, strict=True):
                number += 1
                yield Row(number, dict(zip(batch.schema.names, values, strict=True)))
    except (pa.ArrowInvalid, OSError) as error:
        raise _unreadable(path, error) from None
    finally:
        file.close()


def _in_micros(column: Any) -> Any:
    import pyarrow as pa

    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return column.cast(pa.timestamp("us", kind.tz), safe=False)
    return column
