"""What runs in Spark's Python workers: rows sorted by key, slice and arrival in, a processor's output out.

Rows stream through: of a key with a million events only the batch at hand is in memory, and its state.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby, islice, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

from rekappa.replay.custom.drive import drive
from rekappa.replay.custom.duplicates import first_rows
from rekappa.replay.custom.rows import python_values, row_maker

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

OUTPUT_ROWS = 10_000
INITIAL = -1
"""The slice of the rows that are a key's initial state."""
ALIVE = {"key": "STRING", "state": "STRING", "due": "BIGINT"}
"""The columns that tell which keys hold state, a digest of it, and when (in ms) it next acts by itself, if ever."""
_NAN = float("nan")
_BETWEEN_COLLECTIONS = 100_000
"""Objects that may come into being before the youngest are looked through."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Columns:
    """Where things are in the rows that a worker gets, by position: first the key's columns, then the row's own (and
    those of the initial state), then slice and arrival."""

    keys: int
    names: tuple[str, ...]
    initial: tuple[str, ...] = ()
    masked: tuple[int, ...] = ()
    """Positions of columns in which a zero may stand for null; for each a column after the arrival says where it does.
    pandas has no whole number that is null: a column that has one in any row would be of floating point in all."""
    empty: frozenset[str] = frozenset()
    """Columns that are null in every row, as all are that the job does not use: a worker is not sent them."""

    @property
    def rows(self) -> slice:
        return slice(self.keys, self.keys + len(self.names) - len(self.empty))

    @property
    def initials(self) -> slice:
        return slice(self.rows.stop, self.rows.stop + len(self.initial))

    @property
    def number(self) -> int:
        """Where the slice's number is."""
        return self.keys + len(self.names) - len(self.empty) + len(self.initial)

    @property
    def masks(self) -> dict[int, int]:
        """Where it is said that a masked column is null."""
        return {at: self.number + 2 + order for order, at in enumerate(self.masked)}


Workers = Callable[[Iterable[Any]], Iterator[Any]]
"""What Spark calls in each worker with a partition's batches."""
Make = Callable[[], Any]
"""Makes the operator; called once in each worker."""


BATCH = "__rekappa_batch__"
"""The column beside a processor's own that says in which batch a row came out."""


def rows_in_arrow(make: Make, columns: Columns, marks: Sequence[int], schema: StructType) -> Workers:
    """For `mapInArrow`: the processor gets and gives Rows."""

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        operator = make()
        with _seldom_collected():
            yield from _in_batches(_driven(operator, _rows(batches, columns), marks), schema)
        operator.close()

    return run


def frames_in_pandas(make: Make, columns: Columns, marks: Sequence[int]) -> Workers:
    """For `mapInPandas`: the processor gets and gives pandas frames. Spark converts both ways, as it would for it."""

    def run(frames: Iterable[Any]) -> Iterator[Any]:
        operator = make()
        for batch, frame in _driven(operator, _pieces(frames, columns), marks):
            if len(frame):
                yield frame.assign(**{BATCH: batch})
        operator.close()

    return run


def first_in_arrow(columns: Columns, event_time: int | None, marks: Sequence[int], lasts: int | None) -> Workers:
    """For `mapInArrow`: of each key the rows that pass. `event_time` is the position of the column among the row's own
    (in microseconds), which only a key that is forgotten needs."""

    def numbered(batch: Any) -> Iterator[tuple[Any, int, int]]:
        keys = zip(*(_keys(batch.column(at)) for at in range(columns.keys)), strict=True)
        slices = batch.column(columns.number).to_pylist()
        if event_time is None:
            moments: list[int] = [0] * len(slices)
        else:
            moments = batch.column(columns.keys + event_time).cast("int64").to_pylist()
        return zip(keys, slices, (moment or 0 for moment in moments), strict=True)

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        waiting: list[Any] = []

        def every() -> Iterator[tuple[Any, int, int]]:
            for batch in batches:
                waiting.append(batch)
                yield from numbered(batch)

        passed: list[bool] = []
        for passes in first_rows(every(), marks, lasts):
            passed.append(passes)
            if len(passed) == waiting[0].num_rows:
                batch = waiting.pop(0).filter(pa.array(passed))
                own = [*batch.columns[columns.rows], batch.column(columns.number)]
                yield pa.RecordBatch.from_arrays(own, names=[*columns.names, BATCH])
                passed.clear()

    return run


def alive_in_arrow(make: Make, columns: Columns, marks: Sequence[int]) -> Workers:
    """For `mapInArrow`: which keys hold state after the last batch (`ALIVE`), and a digest of it."""

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for found in _batched(_alive(make(), _rows(batches, columns), marks), OUTPUT_ROWS):
            keys, states, dues = zip(*found, strict=True)
            yield pa.RecordBatch.from_arrays([pa.array(keys), pa.array(states), pa.array(dues, "int64")], list(ALIVE))

    return run


def alive_in_pandas(make: Make, columns: Columns, marks: Sequence[int]) -> Workers:
    """The same for `mapInPandas`."""

    def run(frames: Iterable[Any]) -> Iterator[Any]:
        import pandas as pd

        for found in _batched(_alive(make(), _pieces(frames, columns), marks), OUTPUT_ROWS):
            made = pd.DataFrame(found, columns=list(ALIVE))
            yield made.astype({"due": "Int64"})

    return run


def _alive(
    operator: Any, rows: Iterable[tuple[Any, int, Any]], marks: Sequence[int]
) -> Iterator[tuple[str, str, int | None]]:
    for key, given in _by_key(operator, rows, marks):
        deque(given, maxlen=0)
        held = operator.held
        if held is not None:
            yield repr(key), sha256(held.encode()).hexdigest(), operator.due
    operator.close()


def _batched(values: Iterable[_T], size: int) -> Iterator[list[_T]]:
    """Lists of at most `size` values."""
    found = iter(values)
    while part := list(islice(found, size)):
        yield part


def _driven(operator: Any, rows: Iterable[tuple[Any, int, Any]], marks: Sequence[int]) -> Iterator[tuple[int, Any]]:
    """What all keys give, and in which batch."""
    for _, given in _by_key(operator, rows, marks):
        yield from given


def _by_key(
    operator: Any, rows: Iterable[tuple[Any, int, Any]], marks: Sequence[int]
) -> Iterator[tuple[Any, Iterator[tuple[int, Any]]]]:
    """Each key and what it gives. `rows` are (key, slice, row or piece of rows), sorted."""
    for key, of_key in groupby(rows, key=itemgetter(0)):
        operator.begin(key)
        runs = ((batch, map(itemgetter(2), run)) for batch, run in groupby(of_key, key=itemgetter(1)))
        yield key, drive(operator, _after_initial(operator, runs, marks), marks)


def _after_initial(
    operator: Any, runs: Iterator[tuple[int, Iterator[Any]]], marks: Sequence[int]
) -> Iterator[tuple[int, Iterator[Any]]]:
    for batch, rows in runs:
        if batch == INITIAL:
            operator.start_from(rows, marks[0])
        else:
            yield batch, rows


def _rows(batches: Iterable[Any], columns: Columns) -> Iterator[tuple[Any, int, Any]]:
    make, make_initial = row_maker(columns.names), row_maker(columns.initial)
    for batch in batches:
        keys = zip(*(_keys(batch.column(at)) for at in range(columns.keys)), strict=True)
        slices = batch.column(columns.number).to_pylist()
        sent = map(python_values, batch.columns[columns.rows])
        values = [repeat(None, len(slices)) if name in columns.empty else next(sent) for name in columns.names]
        own = map(make, zip(*values, strict=True))
        if not columns.initial:
            yield from zip(keys, slices, own, strict=True)
            continue
        first = map(make_initial, zip(*map(python_values, batch.columns[columns.initials]), strict=True))
        for key, number, row, initial in zip(keys, slices, own, first, strict=True):
            yield key, number, initial if number == INITIAL else row


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """Of all that is made for a key hardly anything lives longer than the key, and next to nothing of it is a circle
    that only the collector can take away: it need not look after every few hundred rows."""
    before = gc.get_threshold()
    gc.set_threshold(_BETWEEN_COLLECTIONS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _pieces(frames: Iterable[Any], columns: Columns) -> Iterator[tuple[Any, int, Any]]:
    """Each frame in pieces of one key and slice."""
    import numpy as np
    import pandas as pd

    no_number = np.float64("nan")
    for frame in frames:
        if frame.empty:
            continue
        in_key = [mask for at, mask in columns.masks.items() if at < columns.keys]
        keyed = frame.iloc[:, [*range(columns.keys), columns.number, *in_key]]
        changes = (keyed.ne(keyed.shift()) & ~(keyed.isna() & keyed.shift().isna())).any(axis=1)
        starts = [int(at) for at in changes.to_numpy().nonzero()[0]]
        if not starts or starts[0] != 0:
            starts.insert(0, 0)
        names, ends = list(columns.names), [*starts[1:], len(frame)]
        for start, end in zip(starts, ends, strict=True):
            number = int(keyed.iloc[start, columns.keys])
            part = columns.initials if number == INITIAL else columns.rows
            piece = frame.iloc[start:end].reset_index(drop=True)
            for at, mask in columns.masks.items():
                nulls = piece.iloc[:, mask]
                if nulls.any():
                    piece.isetitem(at, _with_nulls(piece.iloc[:, at], nulls))
            key = tuple(_same(piece.iloc[:, at].iloc[0], no_number) for at in range(columns.keys))
            piece = piece.iloc[:, part]
            piece.columns = pd.Index(columns.initial if number == INITIAL else names)
            yield key, number, piece


def _with_nulls(values: Any, nulls: Any) -> Any:
    """As Arrow gives a column with nulls to pandas: truths as objects, whole numbers as floating point."""
    if values.dtype == bool:
        return values.astype(object).where(~nulls, None)
    return values.astype("float64").where(~nulls)


def _keys(column: Any) -> list[Any]:
    """A key column's values. Not-a-number equals itself here, as in Spark's grouping."""
    import pyarrow as pa

    values = python_values(column)
    if pa.types.is_floating(column.type):
        return [_same(value) for value in values]
    return values


def _same(value: Any, no_number: Any = _NAN) -> Any:
    return no_number if isinstance(value, float) and value != value else value


def _in_batches(rows: Iterator[tuple[int, Any]], schema: StructType) -> Iterator[Any]:
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    arrow = to_arrow_schema(schema)
    names = [name for name in schema.names if name != BATCH]
    flat = not any(pa.types.is_nested(kind) for kind in arrow.types)
    waiting: list[tuple[Any, ...]] = []

    def packed() -> Any:
        columns = zip(*waiting, strict=True)
        return pa.RecordBatch.from_arrays(
            [pa.array(column, kind) for column, kind in zip(columns, arrow.types, strict=True)], schema=arrow
        )

    for batch, row in rows:
        if flat and row.__fields__ == names:
            waiting.append((*row, batch))
        else:
            named = row.asDict(True)
            waiting.append((*(named.get(name) for name in names), batch))
        if len(waiting) >= OUTPUT_ROWS:
            yield packed()
            waiting = []
    if waiting:
        yield packed()
