"""Comparing two sets of rows by key, in Spark.

Every row becomes two numbers, a hash of its key and a hash of the whole row. First pass: what is surely equal is left
out (`rekappa.validate.narrow`). Second pass: the other rows are grouped by key: a key with one row on each side and
equal second numbers matches. Only what is left is compared column by column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rekappa.errors import ValidationError
from rekappa.validate.narrow import narrowed
from rekappa.validate.result import ROUNDING, Rules
from rekappa.validate.sides import KEY, ROW, Sides, require_same_columns, sides

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["UNIT", "Diff", "diff", "require_same_columns"]

UNIT = "unit"
_SIDE, _LEFT, _RIGHT, _WANTED = "__rk_side__", "__rk_left__", "__rk_right__", "__rk_wanted__"
_ONE = 1 << 31
_BROADCAST = 500_000


@dataclass(frozen=True, slots=True)
class Diff:
    """`rows` holds one row per difference: kind (different, missing, extra), duplicated, columns (those that
    differ), unit, production, staging (the two rows as structs, null where there is none).

    `unit` is a number for what was compared: the key, or the whole row where there is none. The same key has the same
    unit in every comparison by the same rules.
    """

    production: int
    staging: int
    matched: int
    rows: DataFrame

    @property
    def any(self) -> bool:
        """Whether there is any difference at all."""
        return self.matched < max(self.production, self.staging)


@contextmanager
def diff(
    production: DataFrame, staging: DataFrame, rules: Rules, names: tuple[str, str] = ("production", "staging")
) -> Iterator[Diff]:
    """Compare; `rows` can be used inside the `with` only. `names` are what a refusal calls the sides."""
    from pyspark import StorageLevel
    from pyspark.sql import functions as F

    both = sides(production, staging, rules)
    narrow = narrowed(both.left, both.right)
    left, right = narrow.left, narrow.right
    counted = left.select(KEY, ROW, F.lit(1).cast("long").alias("n")).unionAll(
        right.select(KEY, ROW, F.lit(_ONE).alias("n"))
    )
    grouped = counted.groupBy(KEY).agg(F.bit_xor(ROW).alias("x"), F.sum("n").alias("n"))
    grouped = grouped.select(KEY, "x", (F.col("n") % _ONE).alias(_LEFT), F.shiftright("n", 31).alias(_RIGHT))
    once = (F.col(_LEFT) == 1) & (F.col(_RIGHT) == 1) & (F.col("x") == 0)
    same = F.col(_LEFT) == F.col(_RIGHT) if not rules.key else once
    suspects = grouped.where(~(same & F.col(KEY).isNotNull())).select(KEY, _LEFT, _RIGHT)
    suspects = suspects.persist(StorageLevel.MEMORY_AND_DISK)
    details = None
    try:
        found = suspects.agg(
            F.count("*").alias("n"),
            F.count_if((F.col(_LEFT) > 1) | (F.col(_RIGHT) > 1)).alias("twice"),
            F.count_if(F.col(KEY).isNull()).alias("nulls"),
        ).first()
        assert found is not None
        if rules.unique and (found["twice"] or found["nulls"]):
            _refuse_keys(both, list(zip(names, (left, right), strict=True)), suspects)
        few = int(found["n"]) <= _BROADCAST
        one, two = _only(left, suspects, few), _only(right, suspects, few)
        details = _details(both, one, two).persist(StorageLevel.MEMORY_AND_DISK)
        unmatched = details.where(F.col("kind") != "extra").count() if found["n"] else 0
        yield Diff(narrow.production, narrow.staging, narrow.production - unmatched, details)
    finally:
        suspects.unpersist()
        left.unpersist()
        right.unpersist()
        if details is not None:
            details.unpersist()


def _only(rows: DataFrame, suspects: DataFrame, few: bool) -> DataFrame:
    from pyspark.sql import functions as F

    wanted = suspects.select(F.col(KEY).alias(_WANTED), _LEFT, _RIGHT)
    return rows.join(F.broadcast(wanted) if few else wanted, F.col(KEY).eqNullSafe(F.col(_WANTED))).drop(_WANTED)


def _details(both: Sides, one: DataFrame, two: DataFrame) -> DataFrame:
    """The differences among the suspects: pairs by key, and where a key is not unique, wholes by number."""
    from pyspark.sql import functions as F

    rules = both.rules
    whole = F.struct(*(F.col(place) for place in both.places))
    unit = F.coalesce(F.col(KEY), F.col(ROW)).alias(UNIT)
    if not rules.key:
        return _named(both, _surplus(one, two, whole, unit, duplicated=False))
    single = (F.col(_LEFT) <= 1) & (F.col(_RIGHT) <= 1) & F.col(KEY).isNotNull()
    keys = [F.col(place).alias(f"k{at}") for at, place in enumerate(both.key)]
    p = one.where(single).select(*keys, whole.alias("production"), unit)
    s = two.where(single).select(*keys, whole.alias("staging"), F.col(KEY).alias("other"))
    pairs = p.join(s, [f"k{at}" for at in range(len(keys))], "full_outer")
    kind = (
        F.when(F.col("staging").isNull(), "missing").when(F.col("production").isNull(), "extra").otherwise("different")
    )
    values = [name for name in both.schema.names if name not in rules.key and name not in rules.ignore]
    marks = [F.when(_differs(both, name), F.lit(name)) for name in values]
    changed = F.filter(F.array(*marks), lambda name: name.isNotNull()) if marks else F.array().cast("array<string>")
    none = F.array().cast("array<string>")
    found = pairs.select(
        kind.alias("kind"),
        F.lit(False).alias("duplicated"),
        F.when(kind == "different", changed).otherwise(none).alias("columns"),
        F.coalesce(UNIT, "other").alias(UNIT),
        "production",
        "staging",
    ).where((F.col("kind") != "different") | (F.size("columns") > 0))
    twice = _surplus(one.where(~single), two.where(~single), whole, unit, duplicated=True)
    return _named(both, found.unionAll(twice))


def _surplus(one: DataFrame, two: DataFrame, whole: Column, unit: Column, *, duplicated: bool) -> DataFrame:
    """Rows of either side beyond those that pair off with an equal row of the other."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    pick = [F.col(ROW), unit, whole.alias("row")]
    both = one.select(*pick, F.lit(1).alias(_SIDE)).unionAll(two.select(*pick, F.lit(-1).alias(_SIDE)))
    of_value = Window.partitionBy(ROW)
    ranked = both.withColumns(
        {
            "balance": F.sum(_SIDE).over(of_value),
            "rank": F.row_number().over(Window.partitionBy(ROW, _SIDE).orderBy(F.lit(1))),
        }
    ).where((F.signum("balance") == F.col(_SIDE)) & (F.col("rank") <= F.abs("balance")))
    ours = F.col(_SIDE) == 1
    return ranked.select(
        F.when(ours, "missing").otherwise("extra").alias("kind"),
        F.lit(duplicated).alias("duplicated"),
        F.array().cast("array<string>").alias("columns"),
        UNIT,
        F.when(ours, F.col("row")).alias("production"),
        F.when(~ours, F.col("row")).alias("staging"),
    )


def _named(both: Sides, rows: DataFrame) -> DataFrame:
    """Give the fields of both rows their names back."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructField, StructType

    real = StructType([StructField(field.name, field.dataType) for field in both.schema])
    return rows.withColumns({side: F.col(side).cast(real) for side in ("production", "staging")})


def _differs(both: Sides, name: str) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql.types import DecimalType, DoubleType, FloatType, IntegralType

    from rekappa.spark.hashing import hashable

    rules, kind, place = both.rules, both.schema[name].dataType, both.place(name)
    p, s = F.col("production").getField(place), F.col("staging").getField(place)
    if name in rules.unordered:
        return ~F.sort_array(p).eqNullSafe(F.sort_array(s))
    different = ~hashable(p, kind).eqNullSafe(hashable(s, kind))
    relative = max(rules.relative, ROUNDING if name in rules.rounded else 0.0)
    inexact = isinstance(kind, FloatType | DoubleType | DecimalType | IntegralType)
    if not inexact or not (rules.absolute or relative):
        return different
    x, y = p.cast("double"), s.cast("double")
    bound = F.greatest(F.lit(rules.absolute), F.greatest(F.abs(x), F.abs(y)) * relative)
    # To Spark NaN equals NaN and is greater than all numbers; between infinity and a number nothing is near.
    finite = (F.abs(x) < F.lit(float("inf"))) & (F.abs(y) < F.lit(float("inf")))
    return different & ~F.coalesce(finite & (F.abs(x - y) <= bound), F.lit(False))


def _refuse_keys(both: Sides, named: Sequence[tuple[str, DataFrame]], suspects: DataFrame) -> None:
    """Raise with counts and examples if a side really holds a null or duplicate key (hashes may collide)."""
    from pyspark.sql import functions as F

    key = both.rules.key
    odd = suspects.where((F.col(_LEFT) > 1) | (F.col(_RIGHT) > 1) | F.col(KEY).isNull())
    problems = []
    for name, rows in named:
        rows = _only(rows, odd, few=False)
        nulls = rows.where(F.col(KEY).isNull())
        times = rows.where(F.col(KEY).isNotNull()).groupBy(*both.key).agg(F.count("*").alias("times"))
        twice = times.where("times > 1")
        count, copies = nulls.count(), twice.count()
        if count:
            problems.append(f"{count} rows of {name} have a null in their key")
        if copies:
            shown = [_written(key, row) for row in twice.take(3)]
            problems.append(f"{copies} keys are not unique in {name}: {'; '.join(shown)}")
    if problems:
        raise ValidationError(
            f"Cannot compare by key ({', '.join(key)}): {'; '.join(problems)}",
            hint="An upsert sink holds one row per key: correct the key in rekappa.yaml, or the job.",
        )


def _written(key: tuple[str, ...], row: Any) -> str:
    """A key and how often it is there; the row holds the key's values in their order, then the number."""
    return ", ".join(f"{name}={row[at]}" for at, name in enumerate(key)) + f" ({row['times']} times)"
