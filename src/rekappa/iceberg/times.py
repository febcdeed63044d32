"""Event times beside ingestion times in a table: bounds of files and row groups, and the rows themselves.

    times = ColumnTimes(table, "event_ts", "UTC")
    files = times.files(wanted, regions)

or, for one who reads the table's manifests anyway, the parts of that question: `asked`, `expression` and `between`.

A column may be a TIMESTAMP, or a TIMESTAMP_NTZ or DATE: those are moments only in a time zone, that of Spark's session.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from rekappa.errors import PlanError
from rekappa.iceberg.decode import AskedColumn, Between, FileEntry
from rekappa.iceberg.files import leaf, open_parquet
from rekappa.iceberg.listing import listed_files
from rekappa.plan.outside import Demand, Outside, Piece
from rekappa.record import INGESTION, REGION
from rekappa.timeline import Window, micros

if TYPE_CHECKING:
    from pyiceberg.table import Table

INSTANTS = ("timestamptz", "timestamptz_ns")
LOCAL = ("timestamp", "timestamp_ns", "date")
_DAY = 86_400_000_000
_FIXED = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2})(?::?(\d{2}))?")
_SHIFT = timedelta(hours=3)
"""More than any change of clocks: local times around one are looked for with this much to spare."""


def zone(name: str) -> tzinfo:
    """Spark's session time zone."""
    fixed = _FIXED.fullmatch(name)
    if fixed:
        offset = timedelta(hours=int(fixed[2]), minutes=int(fixed[3] or 0))
        return timezone(offset if fixed[1] == "+" else -offset)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        raise PlanError(f"Cannot use the session time zone {name!r}", hint="Set spark.sql.session.timeZone.") from None


def wall_clock(moment: datetime, here: tzinfo) -> datetime:
    """The first time on the clock of a zone that stands for this instant or a later one, written as if it were UTC.

    An hour that the clock shows twice stands for the first of the two.
    """
    shown = moment.astimezone(here).replace(fold=0)
    while shown < moment:
        shown = (shown.replace(tzinfo=None) + timedelta(minutes=1)).replace(tzinfo=here)
    return shown.replace(tzinfo=UTC)


class ColumnTimes:
    """One time column of one table, in the state that `table` was loaded in.

    `measured` is False for a column whose type is not a time: nothing can be said of it. A column that the table does
    not have yet holds no time at all.
    """

    def __init__(self, table: Table, column: str, time_zone: str) -> None:
        self._table, self.column, self._zone, self._zone_name = table, column, zone(time_zone), time_zone
        self._io = {key: str(value) for key, value in table.io.properties.items()}
        schema = table.schema()
        self._ingestion = schema.find_field(INGESTION)
        try:
            self._field: Any = schema.find_field(column)
        except ValueError:
            self._field = None
        self.kind = str(self._field.field_type) if self._field is not None else "absent"
        self.measured = self.kind in (*INSTANTS, *LOCAL, "absent")

    def files(self, wanted: Window, regions: Sequence[str]) -> list[Piece]:
        """All files of the table that can hold event times of `wanted`, whenever they were ingested."""
        if not self.there:
            return []
        import pyiceberg.expressions

        ex: Any = pyiceberg.expressions
        expression = self.expression(wanted)
        if regions:
            expression = ex.And(expression, ex.In(REGION, set(regions)))
        columns = (AskedColumn(self._ingestion.field_id), self.asked)
        return [
            self.piece(entry, 1) for entry in listed_files(self._table, expression, columns, self.between(wanted, 1))
        ]

    @property
    def there(self) -> bool:
        """Whether the table has the column, and a commit."""
        return self._field is not None and self._table.current_snapshot() is not None

    @property
    def asked(self) -> AskedColumn:
        """The column, for a listing; only if it is `there`."""
        return AskedColumn(self._field.field_id)

    def expression(self, wanted: Window) -> Any:
        """PyIceberg's expression for rows that have a time of `wanted`."""
        import pyiceberg.expressions

        ex: Any = pyiceberg.expressions
        low, high = self._written(wanted.start, -_SHIFT), self._written(wanted.end, _SHIFT)
        return ex.And(ex.GreaterThanOrEqual(self.column, low), ex.LessThanOrEqual(self.column, high))

    def groups(self, file: Piece) -> list[Piece]:
        """The row groups of a file with their bounds; none if its footer can't be read."""
        try:
            metadata = open_parquet(file.path, self._io).metadata
            happened = leaf(metadata, self.column, self._field.field_id)
            ingested = leaf(metadata, INGESTION, self._ingestion.field_id)
        except (OSError, ValueError):
            return []
        found = []
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            bounds = [_bounds(group, at) if at is not None else None for at in (happened, ingested)]
            own = (self._instant(bounds[0][0], 0), self._instant(bounds[0][1], 1)) if bounds[0] else file.happened
            taken = (_number(bounds[1][0]), _number(bounds[1][1])) if bounds[1] else file.ingested
            found.append(Piece(file.path, group.num_rows, own, taken, number))
        return found

    def look(self, part: Piece, demand: Demand) -> Outside:
        """The truth about one row group, from its two columns; from its bounds if they can't be read."""
        import pyarrow as pa
        import pyarrow.compute as pc

        try:
            file = open_parquet(part.path, self._io)
            places = [
                leaf(file.metadata, name, field.field_id)
                for name, field in ((self.column, self._field), (INGESTION, self._ingestion))
            ]
            if places[0] is None or places[1] is None:
                # A column that was added after the file was written is null in it, and null is in no window.
                return Outside() if places[0] is None else demand.at_most(part)
            paths = [str(file.metadata.schema.column(at).path) for at in places if at is not None]
            rows = file.read_row_group(part.group, columns=paths)
            happened = pc.cast(self._moments(_column(rows, paths[0])), pa.int64())
            ingested = pc.cast(_in_micros(_column(rows, paths[1])), pa.int64())
        except (OSError, ValueError, pa.ArrowException):
            return demand.at_most(part)
        wanted = pc.and_(pc.greater_equal(happened, demand.wanted[0]), pc.less(happened, demand.wanted[1]))
        early = pc.fill_null(pc.and_(wanted, pc.less(ingested, demand.reads[0])), False)
        late = pc.fill_null(pc.and_(wanted, pc.greater_equal(ingested, demand.reads[1])), False)
        first, last = ingested.filter(early), ingested.filter(late)
        return Outside(
            early=len(first),
            earliest=pc.min(first).as_py(),
            ahead=max(pc.max(pc.subtract(happened.filter(early), first)).as_py() or 0, 0),
            late=len(last),
            latest=pc.max(last).as_py(),
            behind=max(pc.max(pc.subtract(last, happened.filter(late))).as_py() or 0, 0),
        )

    def piece(self, entry: FileEntry, place: int) -> Piece:
        """A listed file; the bounds of its ingestion times come first, this column's at `place`."""
        low, high, first, last = entry.lower[place], entry.upper[place], entry.lower[0], entry.upper[0]
        return Piece(
            entry.path,
            entry.rows,
            None if low is None or high is None else (self._instant(low, 0), self._instant(high, 1)),
            None if first is None or last is None else (first, last),
        )

    def between(self, wanted: Window, place: int) -> Between:
        """The wanted times in the numbers of the column's bounds, with room for any zone."""
        spare = timedelta() if self.kind in INSTANTS else timedelta(days=2)
        low, high = micros(wanted.start - spare), micros(wanted.end + spare)
        if self.kind == "date":
            return Between(place, low // _DAY, -(-high // _DAY))
        return Between(place, low * 1000, high * 1000) if self.kind.endswith("_ns") else Between(place, low, high)

    def _written(self, moment: datetime, spare: timedelta) -> str:
        """A bound on the column as Iceberg's expressions want it."""
        if self.kind in INSTANTS:
            return moment.isoformat()
        local = moment.astimezone(self._zone).replace(tzinfo=None) + spare
        return local.date().isoformat() if self.kind == "date" else local.isoformat()

    def _instant(self, value: Any, fold: int) -> int:
        """A bound as a moment: microseconds since 1970. Of a local time that clocks showed twice, `fold` chooses."""
        number = _number(value)
        if self.kind.endswith("_ns") and isinstance(value, int):
            number //= 1000
        if self.kind in INSTANTS:
            return number
        local = number * _DAY if self.kind == "date" else number
        try:
            moment = datetime(1970, 1, 1) + timedelta(microseconds=local)
            return micros(moment.replace(tzinfo=self._zone, fold=fold).astimezone(UTC))
        except OverflowError:
            return local

    def _moments(self, column: Any) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.kind in INSTANTS:
            return _in_micros(column)
        local = pc.cast(column, pa.timestamp("us"), safe=False)
        offset = self._zone.utcoffset(None) if isinstance(self._zone, timezone) else None
        if offset is not None:
            return pc.subtract(local, pa.scalar(offset, pa.duration("us")))
        # Java moves what clocks never showed by as much as they jumped; this may be less by that, and no event is lost.
        return pc.assume_timezone(local, self._zone_name, ambiguous="earliest", nonexistent="latest")


def _bounds(group: Any, at: int) -> tuple[Any, Any] | None:
    statistics = group.column(at).statistics
    return (statistics.min, statistics.max) if statistics is not None and statistics.has_min_max else None


def _number(value: Any) -> int:
    """A bound, a number in Iceberg's metadata, a time or a day in a footer: microseconds or days since 1970."""
    if isinstance(value, datetime):
        return micros(value.replace(tzinfo=UTC) if value.tzinfo is None else value)
    return (value - date(1970, 1, 1)).days if isinstance(value, date) else int(value)


def _in_micros(column: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.cast(column, pa.timestamp("us", column.type.tz), safe=False)


def _column(rows: Any, path: str) -> Any:
    import pyarrow.compute as pc

    outer, *inner = path.split(".")
    column = rows.column(outer).combine_chunks()
    return pc.struct_field(column, inner) if inner else column
