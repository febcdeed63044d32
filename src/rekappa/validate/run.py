"""Validating a run: each of its sinks, staging against production over the window."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rekappa.config.load import Loaded
from rekappa.config.targets import target_of
from rekappa.errors import RekappaError, RunError, ValidationError
from rekappa.expect import Expectation, parse_expectation
from rekappa.home import Home
from rekappa.iceberg.catalog import load_table as staged_table
from rekappa.iceberg.commits import load_table
from rekappa.iceberg.history import Change, current_id, stranger
from rekappa.planning.production import production_runs
from rekappa.staging.staged import Staged, StagedSink, sinks_of
from rekappa.staging.tables import staging_table
from rekappa.staging.versions import BATCH
from rekappa.store.record import Kind, Run
from rekappa.store.runs import RunStore
from rekappa.validate.compare import compare
from rekappa.validate.final import open_from
from rekappa.validate.pair import AsOf, pair_of, production_snapshot
from rekappa.validate.result import Late, Outcome, Rules, SinkVerdict, Verdict, judge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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

    def as_json(self) -> dict[str, Any]:
        """How it was compared: what the expectation was stands in the verdict."""
        told = {"ignore": list(self.ignore), "tolerance": self.tolerance}
        return {**told, "control": self.control, "live_run": self.live_run}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Request:
        told = {name: value[name] for name in ("tolerance", "control", "live_run") if name in value}
        return cls(ignore=tuple(value.get("ignore") or ()), **told)


def expectations(texts: tuple[str, ...], sinks: tuple[str, ...]) -> dict[str, Expectation]:
    """What `--expect` says, by sink: `SINK: changed=…` is for one sink, `changed=…` for all others."""
    found: dict[str, Expectation] = {}
    for text in texts:
        name, colon, rest = text.partition(":")
        sink = name.strip() if colon and name.strip() in sinks else ""
        if colon and not sink and name.strip().isidentifier():
            raise ValidationError(
                f"Cannot use expectation {text!r}: there is no sink {name.strip()!r}",
                hint=f"Sinks: {', '.join(sinks)}. For several of them give --expect several times.",
            )
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
        table = load_table(spark, one.table)
        _require_untouched(staged, one, stranger(table))
        seen = current_id(table)
        verdicts.append(replace(_verdict(spark, staged, one, request, tell), staging=seen))
    window = staged.window
    verdict = Verdict(staged.run.id, staged.run.app, window.start, window.end, datetime.now(UTC), tuple(verdicts))
    if not published(staged):
        asked = {**verdict.as_json(), "asked": request.as_json()}
        RunStore.open(staged.home).update(staged.run.id, validation=asked)
    return verdict


def published(staged: Staged) -> bool:
    """Whether production holds the run now, in part or in whole: comparing it with itself is no verdict to keep."""
    sinks = (RunStore.open(staged.home).run(staged.run.id).publication or {}).get("sinks", {})
    return any(one.get("state") != "undone" for one in sinks.values())


def _require_untouched(staged: Staged, one: StagedSink, change: Change | None) -> None:
    """What was changed by hand is no longer what the code makes: no experiment could settle it."""
    if change is not None:
        raise ValidationError(
            f"Cannot validate run {staged.run.id}: its staging {one.table} was changed by {change}",
            hint="Staging is what the run made. Run the backfill again, and put corrections into the job.",
        )


def _require_known(spark: SparkSession, staged: Staged, request: Request) -> None:
    _require_columns({name for one in staged.sinks for name in one.rows(spark).columns}, request)


def require_known(home: Home, run: Run, loaded: Loaded, request: Request) -> None:
    """Refuse a column or a live run that nobody knows: from the store and the tables' metadata, before Spark starts.

    Where the metadata can't be read without Spark, its columns are looked at later."""
    store = RunStore.existing(home)
    if request.live_run is not None:
        named = store.run(request.live_run)
        if (named.app, named.kind) != (loaded.config.app, Kind.LIVE):
            raise RunError(
                f"Cannot take run {named.id} for production: it is a {named.kind} run of {named.app}",
                hint=f"Name a live run of {loaded.config.app}: `rekappa runs` lists them.",
            )
        for sink in sinks_of(run, loaded):
            production_runs(store, loaded, sink, named.id)
    if request.ignore:
        try:
            tables = [staged_table(loaded.config, staging_table(loaded.config, run.id, sink), home)
                      for sink in sinks_of(run, loaded)]  # fmt: skip
        except (RekappaError, OSError):
            return
        _require_columns({field.name for table in tables for field in table.schema().fields} - {BATCH}, request)


def _require_columns(known: set[str], request: Request) -> None:
    unknown = [name for name in request.ignore if name not in known]
    if unknown:
        raise ValidationError(
            f"Cannot ignore {', '.join(unknown)}: no sink of the run has such a column",
            hint=f"The columns are {', '.join(sorted(known))}.",
        )


def _verdict(spark: SparkSession, staged: Staged, one: StagedSink, request: Request, tell: Tell) -> SinkVerdict:
    spec = staged.loaded.config.sinks[one.name]
    target = target_of(spec)
    seen = production_snapshot(spark, staged, one)
    pair = pair_of(spark, staged, one, request, tell, AsOf(seen, open_from(staged, one.name)))
    if pair is None:
        rows = one.rows(spark).count()
        why = f"Spark can't read a {spec.type} sink back: {rows} staged rows were counted, none was compared"
        return SinkVerdict(one.name, target, None, Outcome.NEEDS_YES, (why,))
    found = compare(
        pair.production,
        pair.staging,
        pair.rules,
        experiments=pair.experiments,
        event_time=pair.event_time,
        window=staged.window,
        open_from=pair.open_from,
        notes=pair.notes,
    )
    expected = request.expect.get(one.name, request.expect.get("")) or _configured(spec.expect)
    late = request.late or Late(spec.late)
    outcome, why_not = judge(found, expected, late)
    text = expected.text if expected else None
    return SinkVerdict(one.name, target, found, outcome, why_not, text, late, snapshot=seen, open_from=pair.open_from)


def _configured(text: str | None) -> Expectation | None:
    return None if text is None else parse_expectation(text)
