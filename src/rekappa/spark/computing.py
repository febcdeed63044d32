"""Computing rows that nobody needs: what a stateful query must do in every batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def compute(rows: DataFrame) -> None:
    """Compute every row and let it go. State is built by that, and Spark fails a query that leaves a part of a batch
    out, also of one whose rows were written before a crash."""
    rows.write.format("noop").mode("overwrite").save()
