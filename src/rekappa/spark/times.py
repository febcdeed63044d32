"""A time in a window, in Spark's words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rekappa.timeline import Window, micros

if TYPE_CHECKING:
    from pyspark.sql import Column


def within(moment: Column, window: Window) -> Column:
    """True where the moment lies in [start, end); null where it is null."""
    from pyspark.sql import functions as F

    return (moment >= F.lit(window.start)) & (moment < F.lit(window.end))


def within_any(moment: str, window: Window) -> str:
    """The same as `within` of a column, in SQL, to be asked about many windows: Spark's generated code is the same for
    all of them. It writes numbers into that code, which it then compiles for every window anew; structs it passes
    beside it."""
    start, end = (f"named_struct('at', timestamp_micros({micros(one)}L))" for one in (window.start, window.end))
    held = f"named_struct('at', {moment})"
    return f"{held} >= {start} AND {held} < {end}"
