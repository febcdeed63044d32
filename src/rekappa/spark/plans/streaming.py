"""Spark's own check of a streaming query, made before anything runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rekappa.errors import AppError
from rekappa.spark.plans.walk import CUSTOM, is_stream
from rekappa.spark.private import check_for_streaming

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rekappa.spark.plans.tree import Node

_HINTS = {
    "NON_TIME_WINDOW": "Rank or compare rows in custom state (transformWithState), or by a window of time and max().",
    "without watermark": "Set a watermark and group by a window; or let the sink take updates (output_mode: update).",
}

_MAKES_ROWS = ("Aggregate", "Join", *CUSTOM)
"""Behind these Spark may take another watermark."""


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
        if _sets_again(node) and _several(spark):
            # As above: found when the first micro-batch is planned.
            raise AppError(
                f"Cannot run job {job!r} as a stream: it sets a watermark where there is one already, which Spark does "
                "not allow",
                hint="Set one watermark for each source, before the first step with state.",
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


def _sets_again(node: Node) -> bool:
    """Whether it sets a watermark of a stream that has one, with nothing in between that makes rows of its own."""
    waiting = list(node.children) if node.name == "EventTimeWatermark" else []
    while waiting:
        one = waiting.pop()
        if one.name == "EventTimeWatermark" and any(is_stream(leaf) for leaf in one.walk()):
            return True
        if one.name not in _MAKES_ROWS:
            waiting += one.children
    return False


def _several(spark: SparkSession) -> bool:
    """Whether a query may have several stateful operators, for whose sake a watermark may be set but once."""
    told = spark.conf.get("spark.sql.streaming.statefulOperator.allowMultiple", "true") or "true"
    return told.lower() != "false"
