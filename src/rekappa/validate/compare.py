"""From two sets of rows to a `Comparison`: the diff, its causes, its counts, a few samples."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rekappa.expect import CodeChange
from rekappa.spark.values import plain_value
from rekappa.timeline import Window
from rekappa.validate.counts import Counted, counted, moment_of
from rekappa.validate.diff import Diff, diff
from rekappa.validate.result import Cause, Comparison, Rules, Sample
from rekappa.validate.settle import CAUSE, Settled, settle

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row
    from pyspark.sql.types import DataType

    from rekappa.validate.experiments import Experiments


def compare(
    production: DataFrame,
    staging: DataFrame,
    rules: Rules,
    *,
    experiments: Experiments | None = None,
    event_time: str | None = None,
    window: Window | None = None,
    open_from: datetime | None = None,
    notes: tuple[str, ...] = (),
) -> Comparison:
    """Compare and settle the causes. Counts are exact; samples are few of each kind and cause.

    Rows whose `event_time` is `open_from` or later were not final. Without experiments nothing else is explained.
    With a `window` the differences are counted over its time as well.
    """
    counts = Counted()
    samples: tuple[Sample, ...] = ()
    with settled(production, staging, rules, experiments=experiments, event_time=event_time, open_from=open_from) as (
        found,
        made,
    ):
        rows = made.rows
        if found.any:
            counts = counted(rows, event_time, window)
            samples = tuple(_samples(rows, rules.samples))
            notes += _duplicates(rows)
        return Comparison(
            production=found.production,
            staging=found.staging,
            matched=found.matched,
            different=counts.kinds["different"],
            missing=counts.kinds["missing"],
            extra=counts.kinds["extra"],
            key=rules.key,
            columns=counts.columns,
            causes=counts.causes,
            over_time=counts.over_time,
            code=made.code,
            late_too=made.late_too,
            special=rules.special,
            samples=samples,
            notes=(*notes, *_matched_twice(found, staging, rules), *(experiments.notes if experiments else ())),
            controls=tuple(dict.fromkeys(one.run.id for one in experiments.controls)) if experiments else (),
        )


@contextmanager
def settled(
    production: DataFrame,
    staging: DataFrame,
    rules: Rules,
    *,
    experiments: Experiments | None = None,
    event_time: str | None = None,
    open_from: datetime | None = None,
) -> Iterator[tuple[Diff, Settled]]:
    """The differences and, of each, the cause; their rows can be used inside the `with` only, any number of times."""
    from pyspark.sql import functions as F

    with ExitStack() as stack:
        found = stack.enter_context(diff(production, staging, rules))
        if not found.any:
            yield found, Settled(found.rows.withColumn(CAUSE, F.lit(None).cast("string")), CodeChange())
            return
        not_final = _not_final(event_time, open_from)
        made = settle(stack, found.rows, experiments, production, rules, not_final)
        rows = made.rows.cache()
        stack.callback(rows.unpersist)
        yield found, replace(made, rows=rows)


def _not_final(event_time: str | None, open_from: datetime | None) -> Column:
    from pyspark.sql import functions as F

    if event_time is None or open_from is None:
        return F.lit(False)
    answer = F.lit(False)
    for side in ("production", "staging"):
        answer = answer | F.coalesce(moment_of(side, event_time) >= F.lit(open_from), F.lit(False))
    return answer


def _duplicates(rows: DataFrame) -> tuple[str, ...]:
    count = rows.where("duplicated").count()
    return (f"{count} of the differing rows have a key that stands several times: compared as whole rows",) * bool(
        count
    )


def _matched_twice(found: Diff, staging: DataFrame, rules: Rules) -> tuple[str, ...]:
    """An append sink may hold a key several times: what matched there matched by number, which is to be said."""
    if not rules.key or rules.unique or not found.staging:
        return ()
    from pyspark.sql import functions as F

    from rekappa.validate.sides import by_place

    placed, places = by_place(staging)
    times = placed.groupBy(*(places[name] for name in rules.key)).agg(F.count("*").alias("times"))
    count = times.where("times > 1").count()
    return (f"{count} keys stand several times in staging: their rows were compared as wholes",) * bool(count)


def _samples(rows: DataFrame, most: int) -> list[Sample]:
    """Some of each kind and cause, so that a rare one is not crowded out."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    rank = F.row_number().over(Window.partitionBy("kind", CAUSE).orderBy("unit"))
    each = max(1, most // 4)
    few = rows.withColumn("rank", rank).where(F.col("rank") <= each).limit(most * 2).collect()
    ranked = sorted(few, key=lambda row: (row["rank"], row["kind"], row[CAUSE]))[:most]
    kind = rows.schema["production"].dataType
    return [
        Sample(
            row["kind"],
            Cause(row[CAUSE]),
            tuple(row["columns"] or ()),
            _plain(row["production"], kind),
            _plain(row["staging"], kind),
        )
        for row in ranked
    ]


def _plain(row: Row | None, kind: DataType) -> dict[str, Any] | None:
    value = plain_value(row, kind)
    assert value is None or isinstance(value, dict)
    return value
