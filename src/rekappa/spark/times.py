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
