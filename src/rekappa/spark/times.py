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

    It writes numbers into that code, which it then compiles for every window anew; structs it passes beside it.
    """
    from pyspark.sql import functions as F

    def held(value: Column) -> Column:
        return F.struct(value.alias("at"))

    return (held(moment) >= held(F.lit(window.start))) & (held(moment) < held(F.lit(window.end)))
