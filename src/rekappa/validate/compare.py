"""From two sets of rows to a `Comparison`: the diff, its causes, its counts, a few samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rekappa.validate.diff import diff
from rekappa.validate.explain import Evidence, explained
from rekappa.validate.result import Cause, Comparison, Rules, Sample

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row


def compare(
    production: DataFrame,
    staging: DataFrame,
    rules: Rules,
    evidence: Evidence | None = None,
    notes: tuple[str, ...] = (),
) -> Comparison:
    """Compare and explain. Counts are exact; samples are few of each kind and cause."""
    from pyspark.sql import functions as F

    with diff(production, staging, rules) as found:
        kinds: dict[str, int] = {"different": 0, "missing": 0, "extra": 0}
        causes: dict[Cause, int] = {}
        columns: dict[str, int] = {}
        samples: tuple[Sample, ...] = ()
        if found.matched < max(found.production, found.staging):
            rows = explained(found.rows, evidence or Evidence()).cache()
            try:
                for row in rows.groupBy("kind", "cause").count().collect():
                    kinds[row["kind"]] += row["count"]
                    causes[Cause(row["cause"])] = causes.get(Cause(row["cause"]), 0) + row["count"]
                counted = rows.select(F.explode("columns").alias("name")).groupBy("name").count().collect()
                columns = {row["name"]: row["count"] for row in sorted(counted, key=lambda r: (-r["count"], r["name"]))}
                samples = tuple(_samples(rows, rules.samples))
            finally:
                rows.unpersist()
        return Comparison(
            production=found.production,
            staging=found.staging,
            matched=found.matched,
            different=kinds["different"],
            missing=kinds["missing"],
            extra=kinds["extra"],
            key=rules.key,
            columns=columns,
            causes={cause: causes[cause] for cause in Cause if cause in causes},
            ignored=rules.ignore,
            samples=samples,
            threshold=rules.threshold,
            notes=notes,
        )


def _samples(rows: DataFrame, most: int) -> list[Sample]:
    """Some of each kind and cause, so that a rare one is not crowded out."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    rank = F.row_number().over(Window.partitionBy("kind", "cause").orderBy(F.lit(1)))
    each = max(1, most // 4)
    few = rows.withColumn("rank", rank).where(F.col("rank") <= each).limit(most * 2).collect()
    ranked = sorted(few, key=lambda row: (row["rank"], row["kind"], row["cause"]))[:most]
    return [
        Sample(
            row["kind"],
            Cause(row["cause"]),
            tuple(row["columns"] or ()),
            _plain(row["production"]),
            _plain(row["staging"]),
        )
        for row in ranked
    ]


def _plain(row: Row | None) -> dict[str, Any] | None:
    return None if row is None else {name: _value(value) for name, value in row.asDict(recursive=True).items()}


def _value(value: Any) -> Any:
    """As JSON can hold it: bytes as hex, times and decimals as text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if isinstance(value, dict):
        return {str(key): _value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_value(item) for item in value]
    return str(value)
