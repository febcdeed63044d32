"""The two sides of a comparison, made alike: columns by their place, and two numbers for every row.

Columns are called c0, c1, … while rows are compared, so that no name of a sink's column can be taken for one of the
comparison's own, nor for SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rekappa.errors import ValidationError
from rekappa.sinks.changes import SPARK_TAKES
from rekappa.spark.hashing import row_hash
from rekappa.validate.result import Rules

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

KEY, ROW = "__rk_key__", "__rk_row__"
_DIGITS = 9
"""Significant digits by which rounded numbers are compared where there is no key to pair rows by."""


@dataclass(frozen=True, slots=True)
class Sides:
    """Both sides with columns c0, c1, … and the hashes of key and row; `schema` has the real names."""

    left: DataFrame
    right: DataFrame
    schema: StructType
    rules: Rules

    @property
    def places(self) -> tuple[str, ...]:
        return tuple(f"c{at}" for at in range(len(self.schema)))

    def place(self, name: str) -> str:
        return self.places[self.schema.names.index(name)]

    @property
    def key(self) -> list[str]:
        return [self.place(name) for name in self.rules.key]


def require_same_columns(production: DataFrame, staging: DataFrame) -> list[str]:
    """The columns to compare, in production's order; refuses schemas that differ, naming how.

    A type of staging that production's holds without loss, as a table that was widened does, is no difference.
    """
    have = {field.name: field.dataType.simpleString() for field in production.schema}
    other = {field.name: field.dataType.simpleString() for field in staging.schema}
    problems = [f"{name} ({kind}) is only in production" for name, kind in have.items() if name not in other]
    problems += [f"{name} ({kind}) is only in staging" for name, kind in other.items() if name not in have]
    problems += [
        f"{name} is {kind} in production and {other[name]} in staging"
        for name, kind in have.items()
        if name in other and other[name] != kind and not SPARK_TAKES(other[name], kind)
    ]
    if problems:
        raise ValidationError(
            f"Cannot compare staging with production: {'; '.join(problems)}",
            hint="`rekappa migrate APP` gives production's table the columns that the job has gained. For the rest "
            "change the job, and backfill again.",
        )
    return list(have)


def sides(production: DataFrame, staging: DataFrame, rules: Rules) -> Sides:
    """Both sides, ready to be compared; refuses columns that are not there or do not fit together."""
    columns = require_same_columns(production, staging)
    _require_known(rules, columns)
    left = production.toDF(*(f"c{at}" for at in range(len(columns))))
    right, places = by_place(staging)
    kinds = [field.dataType for field in production.schema]
    right = right.select(*(right[places[name]].cast(kinds[at]).alias(f"c{at}") for at, name in enumerate(columns)))
    made = Sides(left, right, production.schema, rules)
    compared = [name for name in columns if name not in rules.ignore]
    return Sides(_numbered(made, left, compared), _numbered(made, right, compared), production.schema, rules)


def by_place(rows: DataFrame) -> tuple[DataFrame, dict[str, str]]:
    """The rows with columns named by their place, and that name for each: a real name may hold what SQL reads."""
    return rows.toDF(*(f"s{at}" for at in range(len(rows.columns)))), {
        name: f"s{at}" for at, name in enumerate(rows.columns)
    }


def _numbered(made: Sides, rows: DataFrame, compared: Sequence[str]) -> DataFrame:
    """Add the two hashes. A row with a null in its declared key has no key hash."""
    from pyspark.sql import functions as F

    values, key = [made.place(name) for name in compared], made.key
    views = {made.place(name): view for name, view in _views(made.rules, keyed=bool(key)).items()}
    whole = row_hash(rows, values, views)
    if not key:
        return rows.withColumns({KEY: whole, ROW: whole})
    blank = F.lit(False)
    for name in key:
        blank = blank | F.col(name).isNull()
    return rows.withColumns({KEY: F.when(~blank, row_hash(rows, key)), ROW: whole})


def _views(rules: Rules, *, keyed: bool) -> dict[str, Callable[[Column], Column]]:
    """How columns are looked at that are not compared as they are."""
    from pyspark.sql import functions as F

    found: dict[str, Callable[[Column], Column]] = dict.fromkeys(rules.unordered, F.sort_array)
    if not keyed:
        # With a key, rows are paired and the numbers compared; a whole row needs one writing for what counts as equal.
        found |= {name: lambda column: F.format_string(f"%.{_DIGITS - 1}e", column) for name in rules.rounded}
    return {name: view for name, view in found.items() if name not in rules.ignore}


def _require_known(rules: Rules, columns: Sequence[str]) -> None:
    for setting, names in (("--ignore", rules.ignore), ("key", rules.key)):
        unknown = [name for name in names if name not in columns]
        if unknown:
            raise ValidationError(
                f"Cannot compare: {setting} names {', '.join(unknown)}, the columns are {', '.join(columns)}"
            )
    if set(rules.ignore) & set(rules.key):
        raise ValidationError(f"Cannot ignore {', '.join(sorted(set(rules.ignore) & set(rules.key)))}: it is the key")
