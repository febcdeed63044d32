"""Comparing rows by key: what matches, what does not, and why."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from rekappa.errors import ValidationError
from rekappa.validate.compare import compare
from rekappa.validate.explain import Evidence
from rekappa.validate.result import Cause, Rules

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AT = datetime(2026, 11, 1, tzinfo=UTC)
KEYED = Rules(key=("id",), unique=True)


def rows(spark: SparkSession, *values: tuple[Any, ...]) -> DataFrame:
    columns = zip(*((*value, AT + timedelta(minutes=value[0] or 0)) for value in values), strict=True)
    kinds = (pa.int64(), pa.float64(), pa.string(), pa.timestamp("us", "UTC"))
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    return spark.createDataFrame(pa.table(arrays, names=["id", "v", "s", "at"]))


def test_counts_samples_and_columns(spark: SparkSession) -> None:
    production = rows(spark, (1, 1.0, "a"), (2, 2.0, "b"), (3, 3.0, None), (4, 4.0, "d"))
    staging = rows(spark, (1, 1.0, "a"), (2, 2.5, "B"), (3, 3.0, "c"), (5, 5.0, "e"))
    found = compare(production, staging, KEYED)
    assert (found.matched, found.different, found.missing, found.extra) == (1, 2, 1, 1)
    assert found.columns == {"s": 2, "v": 1}
    assert found.match == 20.0
    assert not found.passed
    assert found.causes == {Cause.UNEXPLAINED: 4}
    assert {(s.kind, (s.production or s.staging or {})["id"]) for s in found.samples} == {
        ("different", 2), ("different", 3), ("missing", 4), ("extra", 5)
    }  # fmt: skip
    assert compare(production, production, KEYED).passed
    assert compare(production.limit(0), production.limit(0), KEYED).match == 100.0


def test_ignore_tolerance_and_threshold(spark: SparkSession) -> None:
    production = rows(spark, (1, 1.0, "a"), (2, 2.0, "b"), (3, float("nan"), "c"), (4, 0.0, "d"))
    staging = rows(spark, (1, 1.0 + 1e-12, "x"), (2, 2.1, "x"), (3, float("nan"), "x"), (4, -0.0, "x"))
    found = compare(production, staging, Rules(key=("id",), ignore=("s",), relative=1e-9, threshold=75))
    assert (found.matched, found.different) == (3, 1)
    assert found.passed
    assert compare(production, staging, Rules(key=("id",), ignore=("s",), absolute=0.2)).match == 100.0
    assert compare(production, staging, Rules(key=("id",), ignore=("s",))).different == 2


def test_bad_keys_and_schemas_are_refused(spark: SparkSession) -> None:
    good = rows(spark, (1, 1.0, "a"))
    with pytest.raises(ValidationError, match=r"1 keys are not unique in staging: id=1 \(2 times\)"):
        compare(good, rows(spark, (1, 1.0, "a"), (1, 1.0, "a")), KEYED)
    with pytest.raises(ValidationError, match="1 rows of production have a null"):
        compare(rows(spark, (1, 1.0, "a"), (None, 1.0, "a")), good, KEYED)
    with pytest.raises(ValidationError, match="v is double in production and string in staging"):
        compare(good, good.withColumn("v", good.v.cast("string")), KEYED)
    with pytest.raises(ValidationError, match=r"s \(string\) is only in production"):
        compare(good, good.drop("s"), KEYED)
    with pytest.raises(ValidationError, match="--ignore names nope"):
        compare(good, good, Rules(key=("id",), ignore=("nope",)))


def test_duplicates_in_an_append_sink_are_explained(spark: SparkSession) -> None:
    production = rows(spark, (1, 1.0, "a"), (1, 1.0, "a"), (1, 2.0, "a"), (2, 2.0, "b"))
    staging = rows(spark, (1, 1.0, "a"), (1, 2.0, "a"), (2, 2.0, "b"))
    found = compare(production, staging, Rules(key=("id",)))
    assert (found.matched, found.missing, found.extra) == (3, 1, 0)
    assert found.causes == {Cause.DUPLICATED: 1}


def test_without_a_key_rows_are_a_multiset(spark: SparkSession) -> None:
    """Against a count in plain Python, nulls and repeated rows included."""
    rng = random.Random(7)

    def draw() -> tuple[object, ...]:
        return rng.choice([1, 2, None]), rng.choice([0.5, None]), rng.choice(["a", None])

    one, two = [draw() for _ in range(40)], [draw() for _ in range(50)]
    found = compare(rows(spark, *one), rows(spark, *two), Rules())
    same = sum((Counter(one) & Counter(two)).values())
    assert (found.matched, found.missing, found.extra) == (same, len(one) - same, len(two) - same)
    assert (found.production, found.staging) == (40, 50)


def test_causes(spark: SparkSession) -> None:
    production = rows(spark, (1, 1.0, "a"), (2, 1.0, "a"), (30, 1.0, "a"), (4, 1.0, "a"))
    staging = rows(spark, (1, 2.0, "a"), (2, 2.0, "a"), (30, 2.0, "a"), (4, 1.0, "a"), (5, 1.0, "a"))
    late = spark.createDataFrame([(1, AT), (1, AT + timedelta(minutes=2)), (77, AT)], "id BIGINT, late_at TIMESTAMP")
    evidence = Evidence(
        event_time="at",
        key=("id",),
        open_from=AT + timedelta(minutes=30),
        late=late,
        elsewhere=rows(spark, (5, 9.0, "z")),
    )
    found = compare(production, staging, KEYED, evidence)
    assert found.causes == {Cause.OUTSIDE: 1, Cause.OPEN: 1, Cause.LATE: 1, Cause.UNEXPLAINED: 1}
    assert found.different == 3
    assert not found.passed
    everything = Evidence(event_time="at", key=("id",), late=late.withColumn("id", late.id + 1).unionAll(late))
    assert compare(production.where("id < 3"), staging.where("id < 3"), KEYED, everything).passed


def test_nested_and_map_columns(spark: SparkSession) -> None:
    query = "SELECT 1 AS id, map('b', 2, 'a', {}) AS m, named_struct('x', array(1, 2)) AS n"
    same = spark.sql("SELECT 1 AS id, map('a', 1, 'b', 2) AS m, named_struct('x', array(1, 2)) AS n")
    assert compare(spark.sql(query.format(1)), same, Rules(key=("id",))).match == 100.0
    assert compare(spark.sql(query.format(3)), same, Rules(key=("id",))).columns == {"m": 1}
