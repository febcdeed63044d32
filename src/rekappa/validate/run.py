"""Validating a run: each of its sinks, staging against production over the window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from rekappa.config.bind import load_app, queries
from rekappa.config.model import IcebergSink
from rekappa.errors import RekappaError, ValidationError
from rekappa.sinks.contract import Rerun
from rekappa.staging.staged import Staged, StagedSink, keyed_only, of_keys, span_of
from rekappa.store.record import Kind
from rekappa.store.runs import RunStore
from rekappa.validate.compare import compare
from rekappa.validate.explain import LATE_AT, Evidence
from rekappa.validate.final import open_from
from rekappa.validate.late import late_inputs, readings
from rekappa.validate.result import Rules, SinkVerdict, Verdict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


NEAR = timedelta(days=1)
"""How far around the window causes are looked for."""


@dataclass(frozen=True, slots=True)
class Request:
    """What the person asked for. `ignore` applies to the sinks that have such a column."""

    ignore: tuple[str, ...] = ()
    tolerance: float = 0.0
    threshold: float = 100.0


def validate(
    spark: SparkSession, staged: Staged, request: Request, tell: Callable[[str], None] = lambda text: None
) -> Verdict:
    """Compare every sink, store the verdict with the run, answer it."""
    Rules(key=("any",), relative=request.tolerance, threshold=request.threshold)  # refuses wrong numbers first
    _require_known(spark, staged, request)
    verdicts = []
    for one in staged.sinks:
        tell(f"comparing {one.name}")
        verdicts.append(_verdict(spark, staged, one, request))
    window = staged.window
    verdict = Verdict(staged.run.id, staged.run.app, window.start, window.end, datetime.now(UTC), tuple(verdicts))
    RunStore.open(staged.home).update(staged.run.id, validation=verdict.as_json())
    return verdict


def _require_known(spark: SparkSession, staged: Staged, request: Request) -> None:
    known = {name for one in staged.sinks for name in one.rows(spark).columns}
    unknown = [name for name in request.ignore if name not in known]
    if unknown:
        raise ValidationError(
            f"Cannot ignore {', '.join(unknown)}: no sink of the run has such a column",
            hint=f"The columns are {', '.join(sorted(known))}.",
        )


def _verdict(spark: SparkSession, staged: Staged, one: StagedSink, request: Request) -> SinkVerdict:
    spec = staged.loaded.config.sinks[one.name]
    target = spec.table if isinstance(spec, IcebergSink) else spec.type
    if isinstance(spec, IcebergSink):
        if not spark.catalog.tableExists(spec.table):
            raise ValidationError(
                f"Cannot compare sink {one.name!r}: production table {spec.table} does not exist",
                hint="Run the app live once, or create the table.",
            )
        spark.catalog.refreshTable(spec.table)
    rows = one.rows(spark)
    by_key = keyed_only(spark, one)
    one.sink.expect(rows.schema)
    production = one.sink.read(spark, None if by_key else staged.window)
    if production is None:
        counted = rows.count()
        reason = f"Spark can't read a {spec.type} sink back: {counted} staged rows were counted, none was compared"
        return SinkVerdict(one.name, target, None, reason)
    if by_key:
        production = of_keys(production, rows, spec.key)
    else:
        production = production.where(span_of(spark, staged, one).inside())
    columns = rows.columns
    upsert = one.sink.rerun is Rerun.IDEMPOTENT
    rules = Rules(
        key=spec.key,
        unique=upsert,
        ignore=tuple(name for name in request.ignore if name in columns),
        relative=request.tolerance if spec.key else 0.0,
        threshold=request.threshold,
    )
    evidence, notes = _evidence(spark, staged, one, by_key)
    if evidence.event_time and spec.key:
        near = one.sink.read(spark, staged.window.widened(NEAR, NEAR))
        if near is not None:
            evidence = replace(evidence, elsewhere=_outside(near, evidence.event_time, staged))
    return SinkVerdict(one.name, target, compare(production, one.sink.as_stored(rows), rules, evidence, notes))


def _outside(rows: DataFrame, event_time: str, staged: Staged) -> DataFrame:
    from pyspark.sql import functions as F

    at = F.col(event_time)
    return rows.where((at < F.lit(staged.window.start)) | (at >= F.lit(staged.window.end)))


def _evidence(spark: SparkSession, staged: Staged, one: StagedSink, by_key: bool) -> tuple[Evidence, tuple[str, ...]]:
    """All that is known of why rows may differ; what could not be looked at is said in a note."""
    evidence = Evidence(
        event_time=None if by_key else span_of(spark, staged, one).column,
        key=staged.loaded.config.sinks[one.name].key,
        open_from=open_from(staged, one.name),
    )
    try:
        late = _late(spark, staged, one)
    except RekappaError as error:
        return evidence, (f"late inputs could not be looked up: {error.message}",)
    notes: tuple[str, ...] = ()
    if late is None:
        notes += ("production's micro-batches are not recorded: late inputs are not known",)
    if by_key:
        notes += ("the sink has no event time: only staged keys were compared, missing rows can't be known",)
    return replace(evidence, late=late), notes


def _late(spark: SparkSession, staged: Staged, one: StagedSink) -> DataFrame | None:
    """Every input of the sink's job that production read behind its watermark, of all its sources."""
    from rekappa.sources.open import open_batch

    loaded, home, store = staged.loaded, staged.home, RunStore.open(staged.home)
    config, app = loaded.config, load_app(loaded)
    reads = staged.window.widened(NEAR, NEAR)
    found: DataFrame | None = None
    for query in queries(config, app):
        if query.sink != one.name:
            continue
        for run in store.runs(config.app, Kind.LIVE):
            batches = store.batches(run.id, query.name)
            for source in app.jobs[query.job].sources:
                known = readings(batches, source)
                if not known:
                    continue
                events = open_batch(spark, loaded, home, source, reads)
                late = late_inputs(events, config.sources[source].event_time, known)
                if late is None:
                    continue
                late = late.drop("__metadata__").distinct() if _plain(late) else late.drop("__metadata__")
                found = late if found is None else found.unionByName(late, allowMissingColumns=True)
    return found


def _plain(rows: DataFrame) -> bool:
    return "map<" not in rows.schema.simpleString() and LATE_AT in rows.columns
