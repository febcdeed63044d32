"""Arrow's columns as the Rows that a processor gets: what PySpark makes of them one by one, made a column at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC
from functools import partial
from operator import itemgetter
from typing import Any


def row_maker(names: Sequence[str]) -> Callable[[tuple[Any, ...]], Any]:
    """A function from values to a `Row` with these names, as `Row(*names)(*values)` makes it, without its checks.

    What all rows have in common is kept once, in a class of theirs; a column is then found by its name as fast as any
    attribute, instead of being looked for among all names each time.
    """
    from pyspark.sql import Row

    # Like a Row, which answers with its own attributes first and has none that begin like Python's own.
    found = {
        name: property(itemgetter(at))
        for at, name in reversed(list(enumerate(names)))
        if not hasattr(Row, name) and not name.startswith("__")
    }
    kind = type("Row", (Row,), {**found, "__fields__": Row(*names)})
    return partial(tuple.__new__, kind)


def python_values(column: Any) -> list[Any]:
    """What `column.to_pylist()` answers. Times, which take PyArrow most of its time, go through NumPy: a list of them
    takes a fifth."""
    import pyarrow as pa

    kind = column.type
    if column.null_count == len(column):  # as all are that the job does not use
        return [None] * len(column)
    if not pa.types.is_timestamp(kind) or kind.unit != "us" or kind.tz is None:
        values: list[Any] = column.to_pylist()
        return values
    zone = pa.lib.string_to_tzinfo(kind.tz)
    moments = column.cast(pa.timestamp("us")).to_numpy(zero_copy_only=False).tolist()
    try:
        if kind.tz == "UTC":
            return [None if moment is None else moment.replace(tzinfo=zone) for moment in moments]
        return [None if moment is None else moment.replace(tzinfo=UTC).astimezone(zone) for moment in moments]
    except AttributeError:  # a time that Python's calendar does not have stays a number
        plain: list[Any] = column.to_pylist()
        return plain
