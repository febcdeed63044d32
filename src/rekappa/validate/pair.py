"""What is compared for one sink of a run: production and staging, by which rules, explained by which experiments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from rekappa.config.model import IcebergSink
from rekappa.errors import ValidationError
from rekappa.iceberg.commits import load_table
from rekappa.iceberg.history import current_id
from rekappa.iceberg.past import in_columns_of, rows_at
from rekappa.iceberg.selection import OfKeys
from rekappa.plan.shape import Tolerance
from rekappa.sinks.contract import Rerun, in_window
from rekappa.staging.staged import Staged, StagedSink, keyed_only, span_of
from rekappa.validate.experiments import Experiments
from rekappa.validate.final import tolerances
from rekappa.validate.result import Rules

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Tell = Callable[[str], None]


class Asked(Protocol):
    """How a person wants it compared."""

    @property
    def ignore(self) -> tuple[str, ...]: ...
    @property
    def tolerance(self) -> float: ...
    @property
    def control(self) -> bool: ...
    @property
    def live_run(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class AsOf:
    """What production was when it was compared: its snapshot, where it has such, and from when on rows were open."""

    snapshot: int | None
    open_from: datetime | None


@dataclass(frozen=True, slots=True)
class Pair:
    """Two sides of a window. Without experiments nothing is explained."""

    production: DataFrame
    staging: DataFrame
    rules: Rules
    experiments: Experiments | None
    event_time: str | None
    open_from: datetime | None
    notes: tuple[str, ...]


def production_snapshot(spark: SparkSession, staged: Staged, one: StagedSink) -> int | None:
    """Production as it is now, for a sink that remembers how it was; refuses a table that is not there."""
    spec = staged.loaded.config.sinks[one.name]
    if not isinstance(spec, IcebergSink):
        return None
    if not spark.catalog.tableExists(spec.table):
        raise ValidationError(
            f"Cannot compare sink {one.name!r}: production table {spec.table} does not exist",
            hint="Run the app live once, or create the table.",
        )
    spark.catalog.refreshTable(spec.table)
    return current_id(load_table(spark, spec.table))


def pair_of(spark: SparkSession, staged: Staged, one: StagedSink, asked: Asked, tell: Tell, then: AsOf) -> Pair | None:
    """Both sides, production as it was at that moment; None where Spark can't read the sink back."""
    rows = one.rows(spark)
    by_key = keyed_only(spark, one)
    one.sink.expect(rows.schema)
    production = _production(spark, staged, one, by_key, then)
    if production is None:
        return None
    key = staged.loaded.config.sinks[one.name].key
    if not by_key:
        production = span_of(spark, staged, one).of(production)
    stored = one.sink.as_stored(rows)
    loose = tolerances(staged, one.name)
    rules = Rules(
        key=key,
        unique=one.sink.rerun is Rerun.IDEMPOTENT,
        ignore=tuple(name for name in asked.ignore if name in stored.columns),
        relative=asked.tolerance if key else 0.0,
        rounded=_columns(loose, Tolerance.ROUNDING, stored, key),
        unordered=_columns(loose, Tolerance.ORDER, stored, key),
    )
    notes: tuple[str, ...] = ()
    if not asked.control:
        notes += ("no control was run: nothing is explained",)
    if by_key:
        notes += ("the sink has no event time: only staged keys were compared, missing rows can't be known",)
    return Pair(
        production,
        stored,
        rules,
        experiments=Experiments(spark, staged, one, asked.live_run, tell) if asked.control else None,
        event_time=None if by_key else span_of(spark, staged, one).column,
        open_from=then.open_from,
        notes=notes,
    )


def _production(spark: SparkSession, staged: Staged, one: StagedSink, by_key: bool, then: AsOf) -> DataFrame | None:
    spec = staged.loaded.config.sinks[one.name]
    if not isinstance(spec, IcebergSink) or then.snapshot == current_id(load_table(spark, spec.table)):
        return one.sink.rows_of(spark, one.keys(spark)) if by_key else one.sink.read(spark, staged.window)
    table = load_table(spark, spec.table)
    if then.snapshot is not None and table.snapshot(then.snapshot) is None:
        raise ValidationError(
            f"Cannot compare sink {one.name!r} as it was: snapshot {then.snapshot} of {spec.table} has expired",
            hint="Undo the run if it is published, and validate it again.",
        )
    # The columns of then, as they were compared: the table may have others now.
    rows = in_columns_of(rows_at(spark, spec.table, then.snapshot), one.sink.as_stored(one.rows(spark)))
    if by_key:
        return OfKeys(spec.key, one.keys(spark)).of(rows)
    return in_window(rows, one.sink.event_time, staged.window, one.name)


def _columns(
    loose: Mapping[str, Tolerance], tolerance: Tolerance, rows: DataFrame, key: tuple[str, ...]
) -> tuple[str, ...]:
    return tuple(name for name in rows.columns if loose.get(name) is tolerance and name not in key)
