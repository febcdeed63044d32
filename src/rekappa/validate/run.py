"""Validating a run: each of its sinks, staging against production over the window."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rekappa.config.model import IcebergSink
from rekappa.config.targets import target_of
from rekappa.errors import ValidationError
from rekappa.iceberg.commits import load_table
from rekappa.iceberg.history import current_id
from rekappa.plan.shape import Tolerance
from rekappa.sinks.contract import Rerun
from rekappa.staging.staged import Staged, StagedSink, keyed_only, span_of
from rekappa.store.runs import RunStore
from rekappa.validate.compare import compare
from rekappa.validate.expect import Expectation, parse_expectation
from rekappa.validate.experiments import Experiments
from rekappa.validate.final import open_from, tolerances
from rekappa.validate.result import Comparison, Late, Outcome, Rules, SinkVerdict, Verdict, judge

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Request:
    """What the person asked for. `ignore` applies to the sinks that have such a column.

    `expect` is by sink; the empty name is for every sink that has none of its own. What is not told here is taken
    from rekappa.yaml. Without `control` nothing is run, and nothing is explained. `live_run` is production's run, where
    several wrote to the sink: the newest that read events of the window, if None.
    """

    ignore: tuple[str, ...] = ()
    tolerance: float = 0.0
    expect: Mapping[str, Expectation] = field(default_factory=dict)
    late: Late | None = None
    control: bool = True
    live_run: str | None = None


def expectations(texts: tuple[str, ...], sinks: tuple[str, ...]) -> dict[str, Expectation]:
    """What `--expect` says, by sink: `SINK: changed=…` is for one sink, `changed=…` for all others."""
    found: dict[str, Expectation] = {}
    for text in texts:
        name, colon, rest = text.partition(":")
        sink = name.strip() if colon and name.strip() in sinks else ""
        if sink in found:
            raise ValidationError(f"Cannot use two expectations for {sink or 'all sinks'}: {text!r} is the second")
        found[sink] = parse_expectation(rest if sink else text)
    return found


def validate(spark: SparkSession, staged: Staged, request: Request, tell: Tell = lambda text: None) -> Verdict:
    """Compare every sink, settle why it differs, store the verdict with the run, answer it."""
    Rules(key=("any",), relative=request.tolerance)  # refuses wrong numbers first
    _require_known(spark, staged, request)
    verdicts = []
    for one in staged.sinks:
        tell(f"comparing {one.name}")
        seen = current_id(load_table(spark, one.table))
        verdicts.append(replace(_verdict(spark, staged, one, request, tell), staging=seen))
    window = staged.window
    verdict = Verdict(staged.run.id, staged.run.app, window.start, window.end, datetime.now(UTC), tuple(verdicts))
    if not _published(staged):
        RunStore.open(staged.home).update(staged.run.id, validation=verdict.as_json())
    return verdict


def _published(staged: Staged) -> bool:
    """Whether production holds the run now, in part or in whole: comparing it with itself is no verdict to keep."""
    sinks = (RunStore.open(staged.home).run(staged.run.id).publication or {}).get("sinks", {})
    return any(one.get("state") != "undone" for one in sinks.values())


def _require_known(spark: SparkSession, staged: Staged, request: Request) -> None:
    known = {name for one in staged.sinks for name in one.rows(spark).columns}
    unknown = [name for name in request.ignore if name not in known]
    if unknown:
        raise ValidationError(
            f"Cannot ignore {', '.join(unknown)}: no sink of the run has such a column",
            hint=f"The columns are {', '.join(sorted(known))}.",
        )


def _verdict(spark: SparkSession, staged: Staged, one: StagedSink, request: Request, tell: Tell) -> SinkVerdict:
    spec = staged.loaded.config.sinks[one.name]
    target = target_of(spec)
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
    production = one.sink.rows_of(spark, one.keys(spark)) if by_key else one.sink.read(spark, staged.window)
    if production is None:
        why = f"Spark can't read a {spec.type} sink back: {rows.count()} staged rows were counted, none was compared"
        return SinkVerdict(one.name, target, None, Outcome.NEEDS_YES, (why,))
    if not by_key:
        production = production.where(span_of(spark, staged, one).inside())
    found = _compared(spark, staged, one, request, production, by_key, tell)
    expected = request.expect.get(one.name, request.expect.get("")) or _configured(spec.expect)
    late = request.late or Late(spec.late)
    outcome, why_not = judge(found, expected, late)
    return SinkVerdict(one.name, target, found, outcome, why_not, expected.text if expected else None, late)


def _columns(
    loose: Mapping[str, Tolerance], tolerance: Tolerance, rows: DataFrame, key: tuple[str, ...]
) -> tuple[str, ...]:
    return tuple(name for name in rows.columns if loose.get(name) is tolerance and name not in key)


def _configured(text: str | None) -> Expectation | None:
    return None if text is None else parse_expectation(text)


def _compared(
    spark: SparkSession,
    staged: Staged,
    one: StagedSink,
    request: Request,
    production: DataFrame,
    by_key: bool,
    tell: Tell,
) -> Comparison:
    key = staged.loaded.config.sinks[one.name].key
    stored = one.sink.as_stored(one.rows(spark))
    loose = tolerances(staged, one.name)
    rules = Rules(
        key=key,
        unique=one.sink.rerun is Rerun.IDEMPOTENT,
        ignore=tuple(name for name in request.ignore if name in stored.columns),
        relative=request.tolerance if key else 0.0,
        rounded=_columns(loose, Tolerance.ROUNDING, stored, key),
        unordered=_columns(loose, Tolerance.ORDER, stored, key),
    )
    notes: tuple[str, ...] = ()
    if not request.control:
        notes += ("no control was run: nothing is explained",)
    if by_key:
        notes += ("the sink has no event time: only staged keys were compared, missing rows can't be known",)
    return compare(
        production,
        stored,
        rules,
        experiments=Experiments(spark, staged, one, request.live_run, tell) if request.control else None,
        event_time=None if by_key else span_of(spark, staged, one).column,
        window=staged.window,
        open_from=open_from(staged, one.name),
        notes=notes,
    )
