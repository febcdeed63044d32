"""The shape of a job that a test writes, read from Spark's own plan."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rekappa.app import App
from rekappa.plan.shape import Shape
from rekappa.record import METADATA, METADATA_TYPE
from rekappa.spark.analysis import analyse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

M = timedelta(minutes=1)


def record_ddl(payload: str) -> str:
    """The record's schema, from the payload's."""
    return f"{payload}, {METADATA} {METADATA_TYPE}"


DDL = record_ddl(
    "id BIGINT, show BIGINT, event_ts TIMESTAMP, v STRING, x DOUBLE, expires_at TIMESTAMP, day DATE, "
    "inner STRUCT<deep: STRUCT<ts: TIMESTAMP>>"
)


def shape_of(
    spark: SparkSession, body: Callable[..., Any], event_time: str | None = "event_ts", mode: str = "append"
) -> Shape:
    app = App("probe")
    app.job(body)
    job = app.jobs[body.__name__]
    schemas = dict.fromkeys(job.sources, DDL)
    return analyse(spark, job, schemas, {job.name: event_time}, {job.name: mode})[job.name]


def reaches(shape: Shape) -> tuple[timedelta, timedelta]:
    assert shape.span is not None
    return shape.span.before.length, shape.span.after.length
