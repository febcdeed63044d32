"""Comparing rows by key: what matches, what does not, and why."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rekappa.errors import ValidationError
from rekappa.timeline import Window
from rekappa.validate.compare import compare
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
    assert found.causes == {Cause.UNEXPLAINED: 4}
    assert {(s.kind, (s.production or s.staging or {})["id"]) for s in found.samples} == {
        ("different", 2), ("different", 3), ("missing", 4), ("extra", 5)
    }  # fmt: skip
    assert compare(production, production, KEYED).differences == 0
    narrow = production.withColumn("id", production.id.cast("int"))
    assert compare(production, narrow, KEYED).matched == 4, "a table that was widened since holds the same"
    assert {(s.production or s.staging or {})["at"] for s in found.samples} == {
        "2026-11-01T00:02Z", "2026-11-01T00:03Z", "2026-11-01T00:04Z", "2026-11-01T00:05Z"
    }, "times are in UTC, and say so"  # fmt: skip
    assert compare(production.limit(0), production.limit(0), KEYED).match == 100.0


def test_differences_are_counted_over_time_by_cause_and_column(spark: SparkSession) -> None:
    production = rows(spark, (1, 1.0, "a"), (2, 2.0, "b"), (3, 3.0, None), (4, 4.0, "d"))
    staging = rows(spark, (1, 1.0, "a"), (2, 2.5, "B"), (3, 3.0, "c"), (5, 5.0, "e"))
    window = Window(AT, AT + timedelta(minutes=6))
    open_from = AT + timedelta(minutes=4)
    found = compare(production, staging, KEYED, event_time="at", window=window, open_from=open_from).over_time
    assert found is not None
    assert (found.stretches.width, found.stretches.count) == (timedelta(seconds=15), 24)

    def minutes(counts: tuple[int, ...]) -> list[int]:
        return [sum(counts[at : at + 4]) for at in range(0, 24, 4)]

    assert {name: minutes(counts) for name, counts in found.causes.items()} == {
        Cause.UNEXPLAINED: [0, 0, 1, 1, 0, 0], Cause.NOT_FINAL: [0, 0, 0, 0, 1, 1]
    }  # fmt: skip
    assert {name: minutes(counts) for name, counts in found.columns.items()} == {
        "v": [0, 0, 1, 0, 0, 0], "s": [0, 0, 1, 1, 0, 0], "missing": [0, 0, 0, 0, 1, 0], "extra": [0, 0, 0, 0, 0, 1]
    }  # fmt: skip


def test_ignore_and_tolerance(spark: SparkSession) -> None:
    production = rows(spark, (1, 1.0, "a"), (2, 2.0, "b"), (3, float("nan"), "c"), (4, 0.0, "d"))
    staging = rows(spark, (1, 1.0 + 1e-12, "x"), (2, 2.1, "x"), (3, float("nan"), "x"), (4, -0.0, "x"))
    found = compare(production, staging, Rules(key=("id",), ignore=("s",), relative=1e-9))
    assert (found.matched, found.different) == (3, 1)
    assert found.special == {"s": "ignored"}
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


def test_duplicates_in_an_append_sink_are_said(spark: SparkSession) -> None:
    production = rows(spark, (1, 1.0, "a"), (1, 1.0, "a"), (1, 2.0, "a"), (2, 2.0, "b"))
    staging = rows(spark, (1, 1.0, "a"), (1, 2.0, "a"), (2, 2.0, "b"))
    found = compare(production, staging, Rules(key=("id",)))
    assert (found.matched, found.missing, found.extra) == (3, 1, 0)
    assert found.notes == (
        "1 of the differing rows have a key that stands several times: compared as whole rows",
        "1 keys stand several times in staging: their rows were compared as wholes",
    )
    same = compare(production, production, Rules(key=("id",)))
    assert (same.matched, same.differences) == (4, 0)
    assert same.notes == ("1 keys stand several times in staging: their rows were compared as wholes",)


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


def test_only_what_is_final_needs_a_cause(spark: SparkSession) -> None:
    production = rows(spark, (1, 1.0, "a"), (2, 1.0, "a"), (30, 1.0, "a"))
    staging = rows(spark, (1, 2.0, "a"), (2, 1.0, "a"), (30, 2.0, "a"), (31, 1.0, "a"))
    found = compare(production, staging, KEYED, event_time="at", open_from=AT + timedelta(minutes=30))
    assert found.causes == {Cause.NOT_FINAL: 2, Cause.UNEXPLAINED: 1}


def test_equal_up_to_rounding_and_order(spark: SparkSession) -> None:
    query = "SELECT {} AS id, CAST({} AS DOUBLE) AS total, array({}) AS seen"
    one, two = (spark.sql(query.format(*values)) for values in ((1, "0.1 + 0.2", "1, 2"), (1, "0.3", "2, 1")))
    one = one.selectExpr("id", "CAST(0.1 AS DOUBLE) + CAST(0.2 AS DOUBLE) AS total", "seen")
    for key in ((), ("id",)):
        assert compare(one, two, Rules(key=key)).matched == 0
        loose = Rules(key=key, rounded=("total",), unordered=("seen",))
        assert compare(one, two, loose).match == 100.0, key
        assert loose.special == {"total": "up to 1e-09 of the value", "seen": "in any order"}
    for left, right in (("'NaN'", "5"), ("'Infinity'", "5"), ("'Infinity'", "'-Infinity'"), ("7", "'NaN'")):
        far = [spark.sql(query.format(1, value, "1")) for value in (left, right)]
        assert compare(far[0], far[1], Rules(key=("id",), rounded=("total",), relative=0.5)).matched == 0, (left, right)
    more = spark.sql(query.format(1, "0.3", "2, 1, 1"))
    assert compare(two, more, Rules(key=("id",), unordered=("seen",))).columns == {"seen": 1}


OWN_NAMES = ["a", "b", "k", "k0", "c0", "s1", "n", "x", "kind", "production", "staging", "unit", "row", "columns",
             "duplicated", "cause", "rank", "low", "count", "times", "not_final", "code", "replay", "bulk"]  # fmt: skip
column_names = st.one_of(
    st.sampled_from(OWN_NAMES), st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1, max_size=6)
)


@settings(max_examples=4, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.lists(column_names, min_size=3, max_size=3, unique_by=str.lower), st.booleans())
@example(["a", "b", "k"], True)
@example(["kind", "produ`ction", "x.y"], False)
def test_any_name_is_a_column_s(spark: SparkSession, names: list[str], keyed: bool) -> None:
    """The first column is the key, the second differs, the third is the time."""
    one = spark.range(1, 4).selectExpr("id", "id * 2", "timestamp_seconds(id)").toDF(*names)
    two = spark.range(2, 5).selectExpr("timestamp_seconds(id)", "id", "id * if(id = 2, 3, 2)")
    two = two.toDF(names[2], names[0], names[1])
    found = compare(
        one,
        two,
        Rules(key=(names[0],) if keyed else ()),
        event_time=names[2],
        open_from=datetime(1970, 1, 1, 0, 0, 4, tzinfo=UTC),
    )
    if keyed:
        assert (found.matched, found.different, found.missing, found.extra) == (1, 1, 1, 1)
        assert found.columns == {names[1]: 1}
    else:
        assert (found.matched, found.different, found.missing, found.extra) == (1, 0, 2, 2)
    assert found.causes[Cause.NOT_FINAL] == 1
    assert set(found.samples[0].production or found.samples[0].staging or {}) == set(names)


def test_nested_and_map_columns(spark: SparkSession) -> None:
    query = "SELECT 1 AS id, map('b', 2, 'a', {}) AS m, named_struct('x', array(1, 2)) AS n"
    same = spark.sql("SELECT 1 AS id, map('a', 1, 'b', 2) AS m, named_struct('x', array(1, 2)) AS n")
    assert compare(spark.sql(query.format(1)), same, Rules(key=("id",))).match == 100.0
    assert compare(spark.sql(query.format(3)), same, Rules(key=("id",))).columns == {"m": 1}


def test_nested_values_differ_by_any_part(spark: SparkSession) -> None:
    """Spark's own hash skips nulls inside a value and does not see where one part ends."""
    kind = (
        "id INT, a ARRAY<INT>, b ARRAY<INT>, aa ARRAY<ARRAY<INT>>, s STRUCT<x: INT, y: INT>, m MAP<STRING, STRING>, "
        "t ARRAY<STRUCT<x: INT, y: INT>>"
    )
    plain: dict[str, Any] = {"a": [1], "b": [2], "aa": [[1]], "s": (1, 2), "m": {"a": "b"}, "t": [(1, 2)]}
    pairs: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"a": [1]}, {"a": [1, None]}), ({"a": [None]}, {"a": []}), ({"a": [None, 1]}, {"a": [1, None]}),
        ({"a": None}, {"a": []}), ({"aa": [[1], [2]]}, {"aa": [[1, 2]]}), ({"aa": [[1], None]}, {"aa": [[1], []]}),
        ({"s": (5, None)}, {"s": (None, 5)}), ({"s": None}, {"s": (None, None)}),
        ({"m": {"a": "b"}}, {"m": {"a": None, "b": None}}), ({"a": [1, 2], "b": [3]}, {"a": [1], "b": [2, 3]}),
        ({"t": [(1, None)]}, {"t": [(None, 1)]}), ({"t": [None, (1, 2)]}, {"t": [(1, 2)]}),
        ({"t": [(None, None)]}, {"t": [None]}),
    ]  # fmt: skip

    def side(at: int) -> DataFrame:
        made = [(number, *({**plain, **pair[at]}[name] for name in plain)) for number, pair in enumerate(pairs)]
        return spark.createDataFrame([*made, (99, *plain.values())], kind)

    for rules in (KEYED, Rules()):
        found = compare(side(0), side(1), rules)
        assert (found.matched, found.differences) == (1, len(pairs) * (1 if rules.key else 2))
        assert compare(side(0), side(0), rules).match == 100.0
