"""From rows of a file to messages: checked one by one, by the source's declared schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from rekappa.config.ddl import Simple
from rekappa.config.model import Source
from rekappa.config.overrides import nearest
from rekappa.config.schema import payload_columns
from rekappa.errors import InputError
from rekappa.produce.convert import convert, undeclared
from rekappa.produce.encode import Encode
from rekappa.produce.files import FileRows, Row
from rekappa.produce.moments import EPOCHS, TimeReading, read_moment
from rekappa.produce.spool import Spool
from rekappa.timeline import format_instant, micros

SHOWN = 10


@dataclass(frozen=True, slots=True)
class Reading:
    """How a file is to be read. `time` is the column that says when Kafka got the event: the source's event time, if
    None. `formats` are by column; the empty name is for the time column."""

    time: str | None = None
    formats: Mapping[str, str] = field(default_factory=dict)
    zone: str = "UTC"
    key: str | None = None

    def __post_init__(self) -> None:
        try:
            ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise InputError(
                f"Cannot use --zone {self.zone!r}: there is no such time zone", hint="For example Europe/Berlin."
            ) from None
        for text in self.formats.values():
            if text not in EPOCHS and "%" not in text:
                raise InputError(
                    f"Cannot use --time-format {text!r}",
                    hint=f"Write it like '%d.%m.%Y %H:%M:%S', or {', '.join(EPOCHS)}.",
                )

    def clock(self, column: str, time: str) -> TimeReading:
        default = self.formats.get("") if column == time else None
        return TimeReading(self.formats.get(column, default), self.zone)


@dataclass(frozen=True, slots=True)
class Checked:
    """What a file holds: `sound` rows became messages. `bad` are the first of the others, as a person reads them."""

    rows: int
    sound: int
    bad: tuple[str, ...]
    left_out: tuple[str, ...]
    absent: tuple[str, ...]
    first: datetime | None
    last: datetime | None

    @property
    def bad_rows(self) -> int:
        return self.rows - self.sound


class Shaper:
    """Makes a message of each row. Columns are told by their names, whatever their case; what the schema does not
    declare, fields of structs too, is left out, what the file does not have is null. A source's event time that the
    file does not have is the time column's. `encode` makes the message's value of the converted ones."""

    def __init__(self, source: Source, folder: Path, encode: Encode, file: FileRows, reading: Reading) -> None:
        columns = payload_columns(source, folder)
        self._types = {column.name: column.type for column in columns}
        self._by_name = {column.name.lower(): column.name for column in columns}
        self._event_time = source.event_time
        self._reading, self._encode = reading, encode
        self.time = reading.time or _as_in(file, source.event_time)
        self.left_out: set[str] = set()
        self.seen: set[str] = set()
        _require_columns(file, reading, self.time, self._by_name)

    def message(self, row: Row) -> tuple[int, bytes | None, bytes]:
        """Milliseconds since 1970, key and value; raises `ValueError` that says what is wrong with the row."""
        if row.problem:
            raise ValueError(row.problem)
        values: dict[str, Any] = {}
        for name, value in row.values.items():
            declared = self._by_name.get(name.lower())
            if declared is None:
                self.left_out.add(name)
                continue
            if declared in values:
                raise ValueError(f"{name} is column {declared!r} once more: names are told apart by letters, not case")
            self.seen.add(declared)
            values[declared] = self._converted(name, value, declared)
            self.left_out.update(undeclared(value, self._types[declared], name))
        moment = self._moment(row)
        if self._event_time in self._types and self._event_time not in values:
            values[self._event_time] = convert(
                moment, self._types[self._event_time], TimeReading(zone=self._reading.zone)
            )
        elif self._event_time in self._types and values[self._event_time] is None:
            raise ValueError(f"{self._event_time} is empty: an event needs its time")
        millis = micros(moment) // 1000
        if millis <= 0:
            raise ValueError(f"{self.time} {format_instant(moment)} is before 1970, which Kafka has no times for")
        return millis, self._key(row), self._encode(values)

    @property
    def absent(self) -> tuple[str, ...]:
        """Declared columns that no row had."""
        return tuple(name for name in self._types if name not in self.seen and name != self._event_time)

    def _converted(self, name: str, value: Any, declared: str) -> Any:
        try:
            return convert(value, self._types[declared], self._reading.clock(name, self.time))
        except ValueError as error:
            raise ValueError(f"{name} {error}") from None

    def _moment(self, row: Row) -> datetime:
        value = row.values.get(self.time)
        if value is None:
            raise ValueError(f"{self.time} is empty: Kafka needs a time")
        try:
            return read_moment(value, self._reading.clock(self.time, self.time))
        except ValueError as error:
            raise ValueError(f"{self.time} {error}") from None

    def _key(self, row: Row) -> bytes | None:
        value = row.values.get(self._reading.key) if self._reading.key else None
        if value is None or isinstance(value, bytes):
            return value
        declared = self._by_name.get(str(self._reading.key).lower())
        kind = self._types[declared] if declared else Simple("STRING")
        text = convert(convert(value, kind, TimeReading(zone=self._reading.zone)), Simple("STRING"), TimeReading())
        return str(text).encode()


def check(file: FileRows, shaper: Shaper, spool: Spool) -> Checked:
    """Read every row, and put those that are sound into the spool."""
    rows, bad = 0, list[str]()
    for row in file.rows:
        rows += 1
        try:
            spool.add(*shaper.message(row))
        except ValueError as error:
            if len(bad) < SHOWN:
                bad.append(f"{file.place} {row.number}: {error}")
    first, last = (datetime.fromtimestamp(millis / 1000, UTC) for millis in spool.span) if len(spool) else (None, None)
    return Checked(rows, len(spool), tuple(bad), tuple(sorted(shaper.left_out)), shaper.absent, first, last)


def require_sound(file: FileRows, found: Checked, skip_bad: bool) -> None:
    """Refuse a file with nothing to send, or with bad rows in it, unless these are to be left out."""
    if found.bad_rows and not skip_bad:
        more = f"\n  and {found.bad_rows - len(found.bad)} more" if found.bad_rows > len(found.bad) else ""
        listed = "".join(f"\n  {one}" for one in found.bad)
        raise InputError(
            f"Cannot send {file.path}: {found.bad_rows} of {found.rows} rows are no events of the source{listed}{more}",
            hint="Correct them, or leave them out: --skip-bad. Nothing was sent.",
        )
    if not found.sound:
        raise InputError(f"Cannot send {file.path}: it has no {'sound ' if found.rows else ''}rows")


def _as_in(file: FileRows, name: str) -> str:
    """The file's own writing of a column's name."""
    return next((one for one in file.columns or () if one.lower() == name.lower()), name)


def _require_columns(file: FileRows, reading: Reading, time: str, declared: Mapping[str, str]) -> None:
    if file.columns is None:
        return
    asked = {"--time": time, "--key": reading.key}
    asked |= {f"--time-format {name}=…": name for name in reading.formats if name}
    for option, name in asked.items():
        if name is not None and name not in file.columns:
            hint = nearest(name, file.columns)
            if option == "--time" and reading.time is None:
                hint = f"Name the column that says when each event happened: --time COLUMN. {hint}"
            raise InputError(f"Cannot find column {name!r} ({option}) in {file.path}", hint=hint)
    if not any(name.lower() in declared for name in file.columns):
        raise InputError(
            f"Cannot send {file.path}: it has none of the source's columns",
            hint=f"It has {', '.join(file.columns[:20])}; the schema declares {', '.join(declared.values())}.",
        )
