"""Comparing two sets of rows by key, in Spark.

Every row becomes two numbers, a hash of its key and a hash of the whole row. First pass: the keys' hashes
choose one of many buckets, and each bucket is summed up on both sides; buckets with equal sums hold equal rows.
That needs next to no shuffle. Second pass: the rows of the other buckets are read again and grouped by key: a
key with one row on each side and equal second numbers matches. Only what is left is compared column by column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rekappa.errors import ValidationError
from rekappa.spark.hashing import row_hash
from rekappa.validate.result import Rules

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_K, _V, _SIDE = "__rk_key__", "__rk_row__", "__rk_side__"
_UNIT = 1 << 31
_BROADCAST = 500_000
_BUCKETS = 1 << 16
"""Enough that a few thousand differences touch a small share of the rows, few enough to be summed in memory."""


@dataclass(frozen=True, slots=True)
class Diff:
    """`rows` holds one row per difference: kind (different, missing, extra), duplicated, columns (those that
    differ), production, staging (the two rows as structs, null where there is none)."""

    production: int
    staging: int
    matched: int
    rows: DataFrame


def require_same_columns(production: DataFrame, staging: DataFrame) -> list[str]:
    """The columns to compare, in production's order; refuses schemas that differ, naming how."""
    have = {field.name: field.dataType.simpleString() for field in production.schema}
    other = {field.name: field.dataType.simpleString() for field in staging.schema}
    problems = [f"{name} ({kind}) is only in production" for name, kind in have.items() if name not in other]
    problems += [f"{name} ({kind}) is only in staging" for name, kind in other.items() if name not in have]
    problems += [
        f"{name} is {kind} in production and {other[name]} in staging"
        for name, kind in have.items()
        if name in other and other[name] != kind
    ]
    if problems:
        raise ValidationError(
            f"Cannot compare staging with production: {'; '.join(problems)}",
            hint="Change the production table (ALTER TABLE) or the job, and backfill again.",
        )
    return list(have)


@contextmanager
def diff(production: DataFrame, staging: DataFrame, rules: Rules) -> Iterator[Diff]:
    """Compare; `rows` can be used inside the `with` only."""
    from pyspark import StorageLevel
    from pyspark.sql import functions as F

    columns = require_same_columns(production, staging)
    _require_known(rules, columns)
    compared = [name for name in columns if name not in rules.ignore]
    key = list(rules.key) or compared
    left, right = _numbered(production, key, compared), _numbered(staging, key, compared)
    narrowed = _narrowed(left, right)
    left, right = narrowed.left, narrowed.right
    sides = left.select(_K, _V, F.lit(1).cast("long").alias("c")).unionAll(
        right.select(_K, _V, F.lit(_UNIT).alias("c"))
    )
    grouped = sides.groupBy(_K).agg(F.bit_xor(_V).alias("x"), F.sum("c").alias("c"))
    grouped = grouped.select(_K, "x", (F.col("c") % _UNIT).alias("a"), F.shiftright("c", 31).alias("b"))
    once = (F.col("a") == 1) & (F.col("b") == 1) & (F.col("x") == 0)
    same = F.col("a") == F.col("b") if not rules.key else once
    suspects = grouped.where(~(same & F.col(_K).isNotNull())).select(_K, "a", "b")
    suspects = suspects.persist(StorageLevel.MEMORY_AND_DISK)
    details = None
    try:
        found = suspects.agg(
            F.count("*").alias("n"), F.sum("a").alias("a"), F.sum("b").alias("b"),
            F.sum(F.when(F.col("a") > 1, 1).otherwise(0)).alias("dup_a"),
            F.sum(F.when(F.col("b") > 1, 1).otherwise(0)).alias("dup_b"),
            F.sum(F.when(F.col(_K).isNull(), F.col("a") + F.col("b")).otherwise(0)).alias("nulls"),
        ).first()  # fmt: skip
        assert found is not None
        if rules.unique and (found.dup_a or found.dup_b or found.nulls):
            _refuse_keys(left, right, suspects, rules.key)
        few = int(found.n) <= _BROADCAST
        one, two = _only(left, suspects, few), _only(right, suspects, few)
        details = _details(one, two, columns, compared, rules).persist(StorageLevel.MEMORY_AND_DISK)
        matched = _matched(details, narrowed.production, int(found.n))
        yield Diff(narrowed.production, narrowed.staging, matched, details)
    finally:
        suspects.unpersist()
        left.unpersist()
        right.unpersist()
        if details is not None:
            details.unpersist()


@dataclass(frozen=True, slots=True)
class _Narrowed:
    """The rows of either side that may differ, and how many rows each side has in all."""

    left: DataFrame
    right: DataFrame
    production: int
    staging: int


def _narrowed(left: DataFrame, right: DataFrame) -> _Narrowed:
    """Leave out the buckets that are the same on both sides: they hold the same rows, each as often.

    A key that stands twice on one side only is found. Rows that stand twice on both sides match: a production table
    that is written by key has none.
    """
    from pyspark import StorageLevel
    from pyspark.sql import functions as F

    def side(rows: DataFrame, sign: int) -> DataFrame:
        halves = [F.col(_V).bitwiseAND(0xFFFFFFFF), F.shiftright(_V, 32)]
        low, high = (half * sign for half in halves)
        return rows.select(_bucket().alias("b"), low.alias("low"), high.alias("high"), F.lit(sign).alias("sign"))

    summed = side(left, 1).unionAll(side(right, -1)).groupBy("b")
    buckets = summed.agg(
        F.sum("low").alias("low"), F.sum("high").alias("high"), F.sum("sign").alias("net"), F.count("*").alias("n")
    ).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        odd = (F.col("low") != 0) | (F.col("high") != 0) | (F.col("net") != 0)
        counted = buckets.agg(
            F.sum("n").alias("n"), F.sum("net").alias("net"), F.count_if(odd).alias("odd"), F.count("*").alias("all")
        ).first()
        assert counted is not None
        rows, net = int(counted["n"] or 0), int(counted["net"] or 0)
        unequal = (
            [row["b"] for row in buckets.where(odd).select("b").collect()]
            if counted["odd"] * 8 < counted["all"]
            else None
        )
    finally:
        buckets.unpersist()
    if unequal is not None:
        chosen = left.sparkSession.createDataFrame([(b,) for b in unequal], "b INT")
        left, right = (
            rows.join(F.broadcast(chosen), _bucket() == F.col("b")).drop("b").persist(StorageLevel.MEMORY_AND_DISK)
            for rows in (left, right)
        )
    return _Narrowed(left, right, (rows + net) // 2, (rows - net) // 2)


def _bucket() -> Column:
    """Rows without a key hash have a bucket of their own."""
    from pyspark.sql import functions as F

    return F.coalesce(F.pmod(_K, F.lit(_BUCKETS)).cast("int"), F.lit(-1))


def _matched(details: DataFrame, production: int, suspects: int) -> int:
    """Every production row that is neither missing nor different."""
    from pyspark.sql import functions as F

    return production - (details.where(F.col("kind") != "extra").count() if suspects else 0)


def _require_known(rules: Rules, columns: Sequence[str]) -> None:
    for setting, names in (("--ignore", rules.ignore), ("key", rules.key)):
        unknown = [name for name in names if name not in columns]
        if unknown:
            raise ValidationError(
                f"Cannot compare: {setting} names {', '.join(unknown)}, the columns are {', '.join(columns)}"
            )
    if set(rules.ignore) & set(rules.key):
        raise ValidationError(f"Cannot ignore {', '.join(sorted(set(rules.ignore) & set(rules.key)))}: it is the key")


def _numbered(rows: DataFrame, key: Sequence[str], compared: Sequence[str]) -> DataFrame:
    """Add the two hashes. A row with a null in its declared key has no key hash."""
    from pyspark.sql import functions as F

    hashed = row_hash(rows, key)
    if list(key) != list(compared):
        blank = F.lit(False)
        for name in key:
            blank = blank | F.col(f"`{name}`").isNull()
        hashed = F.when(~blank, hashed)
    return rows.withColumns({_K: hashed, _V: row_hash(rows, compared)})


def _only(rows: DataFrame, suspects: DataFrame, few: bool) -> DataFrame:
    from pyspark.sql import functions as F

    wanted = suspects.select(F.col(_K).alias("k"), "a", "b")
    return rows.join(F.broadcast(wanted) if few else wanted, F.col(_K).eqNullSafe(F.col("k"))).drop("k")


def _details(one: DataFrame, two: DataFrame, columns: Sequence[str], compared: Sequence[str], rules: Rules) -> Any:
    """The differences among the suspects: pairs by key, and where a key is not unique, wholes by number."""
    from pyspark.sql import functions as F

    whole = F.struct(*(F.col(f"`{name}`") for name in columns))
    if not rules.key:
        return _surplus(one, two, whole, duplicated=False)
    single = (F.col("a") <= 1) & (F.col("b") <= 1) & F.col(_K).isNotNull()
    keys = [F.col(f"`{name}`").alias(f"k{i}") for i, name in enumerate(rules.key)]
    p = one.where(single).select(*keys, whole.alias("production"))
    s = two.where(single).select(*keys, whole.alias("staging"))
    pairs = p.join(s, [f"k{i}" for i in range(len(keys))], "full_outer")
    kind = (
        F.when(F.col("staging").isNull(), "missing").when(F.col("production").isNull(), "extra").otherwise("different")
    )
    values = [name for name in compared if name not in rules.key]
    marks = [F.when(_differs(name, one.schema[name].dataType, rules), F.lit(name)) for name in values]
    changed = F.filter(F.array(*marks), lambda name: name.isNotNull()) if marks else F.array().cast("array<string>")
    both = pairs.select(
        kind.alias("kind"), F.lit(False).alias("duplicated"), "production", "staging", changed.alias("c")
    )
    both = both.withColumn(
        "columns", F.when(F.col("kind") == "different", F.col("c")).otherwise(F.array().cast("array<string>"))
    ).where((F.col("kind") != "different") | (F.size("columns") > 0))
    order = ["kind", "duplicated", "columns", "production", "staging"]
    return both.select(*order).unionAll(_surplus(one.where(~single), two.where(~single), whole, duplicated=True))


def _surplus(one: DataFrame, two: DataFrame, whole: Column, *, duplicated: bool) -> DataFrame:
    """Rows of either side beyond those that pair off with an equal row of the other."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    pick = [F.col(_V), whole.alias("row")]
    both = one.select(*pick, F.lit(1).alias(_SIDE)).unionAll(two.select(*pick, F.lit(-1).alias(_SIDE)))
    of_value = Window.partitionBy(_V)
    ranked = both.withColumns(
        {
            "balance": F.sum(_SIDE).over(of_value),
            "rank": F.row_number().over(Window.partitionBy(_V, _SIDE).orderBy(F.lit(1))),
        }
    ).where((F.signum("balance") == F.col(_SIDE)) & (F.col("rank") <= F.abs("balance")))
    ours = F.col(_SIDE) == 1
    return ranked.select(
        F.when(ours, "missing").otherwise("extra").alias("kind"),
        F.lit(duplicated).alias("duplicated"),
        F.array().cast("array<string>").alias("columns"),
        F.when(ours, F.col("row")).alias("production"),
        F.when(~ours, F.col("row")).alias("staging"),
    )


def _differs(name: str, kind: Any, rules: Rules) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql.types import DecimalType, DoubleType, FloatType, IntegralType

    from rekappa.spark.hashing import hashable

    p, s = F.col("production").getField(name), F.col("staging").getField(name)
    different = ~hashable(p, kind).eqNullSafe(hashable(s, kind))
    inexact = isinstance(kind, FloatType | DoubleType | DecimalType | IntegralType)
    if not inexact or not (rules.absolute or rules.relative):
        return different
    x, y = p.cast("double"), s.cast("double")
    bound = F.greatest(F.lit(rules.absolute), F.greatest(F.abs(x), F.abs(y)) * rules.relative)
    return different & ~F.coalesce(F.abs(x - y) <= bound, F.lit(False))


def _refuse_keys(left: DataFrame, right: DataFrame, suspects: DataFrame, key: Sequence[str]) -> None:
    """Raise with counts and examples if a side really holds a null or duplicate key (hashes may collide)."""
    from pyspark.sql import functions as F

    odd = suspects.where((F.col("a") > 1) | (F.col("b") > 1) | F.col(_K).isNull())
    problems = []
    for name, rows in (("production", left), ("staging", right)):
        rows = _only(rows, odd, few=False)
        nulls = rows.where(F.col(_K).isNull())
        twice = rows.where(F.col(_K).isNotNull()).groupBy(*(f"`{k}`" for k in key)).count().where("count > 1")
        count, copies = nulls.count(), twice.count()
        if count:
            problems.append(f"{count} rows of {name} have a null in their key")
        if copies:
            shown = [", ".join(f"{k}={row[k]}" for k in key) + f" ({row['count']} times)" for row in twice.take(3)]
            problems.append(f"{copies} keys are not unique in {name}: {'; '.join(shown)}")
    if problems:
        raise ValidationError(
            f"Cannot compare by key ({', '.join(key)}): {'; '.join(problems)}",
            hint="An upsert sink holds one row per key: correct the key in rekappa.yaml, or the job.",
        )
