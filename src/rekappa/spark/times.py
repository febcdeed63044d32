"""A time in a window, in Spark's words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column

    from rekappa.timeline import Window


def within(moment: Column, window: Window) -> Column:
    """True where the moment lies in [start, end); null where it is null."""
    from pyspark.sql import functions as F

    return (moment >= F.lit(window.start)) & (moment < F.lit(window.end))


def within_any(moment: Column, window: Window) -> Column:
    """The same as `within`, to be asked about many windows: Spark's generated code is the same for all of them.

    It writes a single time into that code, which it then compiles anew for every window; an array it passes beside it,
    unless it knows beforehand which element is meant. Which one is not known before the row is.
    """
    from pyspark.sql import functions as F

    bounds = F.array(F.lit(window.start), F.lit(window.end))
    first = moment.isNull().cast("int")
    return (moment >= F.get(bounds, first)) & (moment < F.get(bounds, first + 1))
