"""Spark's own check of a streaming query, made before anything runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rekappa.errors import AppError
from rekappa.spark.private import check_for_streaming

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rekappa.spark.plans.tree import Node

_HINTS = {
    "NON_TIME_WINDOW": "Rank or compare rows in custom state (transformWithState), or by a window of time and max().",
    "without watermark": "Set a watermark and group by a window; or let the sink take updates (output_mode: update).",
}


def refuse_unrunnable(spark: SparkSession, job: str, analysed: Any, plan: Node, output_mode: str) -> None:
    """Refuse with `AppError` what a live run with this output mode could not run, in Spark's words."""
    from pyspark.errors import AnalysisException

    for node in plan.walk():
        for part in node.all_expressions() if node.name == "Aggregate" else ():
            if part.name == "PythonUDAF":
                # Spark finds this only when it plans the first micro-batch.
                raise AppError(
                    f"Cannot run job {job!r} as a stream: {part.fields.get('name')} is an aggregate in Python, which "
                    "Spark does not run over streams",
                    hint="Use Spark's own aggregates, or custom state (transformWithState).",
                )
    try:
        check_for_streaming(spark, analysed, output_mode)
    except AnalysisException as error:
        message = str(error).split(";\n")[0].splitlines()[0]
        hint = next((hint for word, hint in _HINTS.items() if word in str(error)), None)
        raise AppError(
            f"Cannot run job {job!r} as a stream with output mode {output_mode}: {message}",
            hint=hint or "A live run would be refused too: change the job.",
        ) from error
