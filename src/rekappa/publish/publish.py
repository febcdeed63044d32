"""Publishing a backfill, and undoing it: everything is checked before anything is touched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rekappa.config.model import IcebergSink
from rekappa.errors import PublishError
from rekappa.iceberg.commits import load_table
from rekappa.iceberg.history import publication
from rekappa.iceberg.span import Span
from rekappa.publish import keyed
from rekappa.publish import table as tables
from rekappa.staging.staged import Staged, StagedSink, keyed_only, span_of
from rekappa.store.runs import RunStore
from rekappa.validate.diff import require_same_columns
from rekappa.validate.result import Rules

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class SinkEffect:
    """What publishing would do, or did, to one sink. `done` means that production holds it already."""

    sink: str
    target: str
    added: int
    changed: int
    removed: int
    unchanged: int
    files_dropped: int | None = None
    files_rewritten: int | None = None
    partitions: tuple[str, ...] = ()
    done: bool = False


def require_validated(staged: Staged) -> None:
    """Refuse a run whose validation is absent, failed, or of an earlier state of its staging."""
    run, verdict = staged.run, staged.run.validation
    if verdict is None:
        raise PublishError(
            f"Cannot publish run {run.id}: it was not validated",
            hint=f"`rekappa validate {run.id}` compares it with production; --unvalidated publishes without.",
        )
    if not verdict.get("passed"):
        raise PublishError(
            f"Cannot publish run {run.id}: it did not pass validation",
            hint=f"See `rekappa validate {run.id}`. If the differences are the repair you want: --unvalidated.",
        )
    if run.ended and datetime.fromisoformat(str(verdict["at"])) < run.ended:
        raise PublishError(
            f"Cannot publish run {run.id}: it wrote to staging after it was validated",
            hint=f"`rekappa validate {run.id}` again.",
        )


def plan_publish(spark: SparkSession, staged: Staged, *, force: bool = False) -> list[SinkEffect]:
    """What `publish` would change, sink by sink. Makes every check that publishing makes; touches nothing."""
    return [_effect(spark, staged, one, force) for one in staged.sinks]


def _effect(spark: SparkSession, staged: Staged, one: StagedSink, force: bool) -> SinkEffect:
    spec = staged.loaded.config.sinks[one.name]
    rows = one.rows(spark)
    if not isinstance(spec, IcebergSink):
        publisher = publisher_of(one)
        if _store_state(staged, one.name) == "published":
            return SinkEffect(one.name, spec.type, 0, 0, 0, rows.count(), done=True)
        seen = publisher.effect(spark, rows, staged.window, staged.run.id, _regions(staged))
        return SinkEffect(
            one.name,
            spec.type,
            seen.added,
            seen.changed,
            seen.removed,
            seen.unchanged,
            seen.files,
            None,
            seen.partitions,
        )
    if not spark.catalog.tableExists(spec.table):
        raise PublishError(
            f"Cannot publish sink {one.name!r}: production table {spec.table} does not exist",
            hint="Run the app live once, or create the table.",
        )
    if tables.published(spark, spec.table, staged.run.id):
        return SinkEffect(one.name, spec.table, 0, 0, 0, rows.count(), 0, 0, done=True)
    require_same_columns(spark.table(spec.table), rows)
    if spec.mode == "upsert" and keyed_only(spark, one):
        seen = keyed.effect_of_keys(spark, spec.table, rows, spec.key)
        if not force:
            keyed.check_keys_unchanged(spark, spec.table, rows, spec.key, staged.run.created)
        return SinkEffect(one.name, spec.table, **{**asdict(seen), "files_dropped": None, "files_rewritten": None})
    span = span_of(spark, staged, one)
    _require_inside(rows, span, one.table)
    if not force:
        tables.check_unchanged(spark, spec.table, span, staged.run.id, staged.run.created)
    upsert = spec.mode == "upsert"
    found = tables.effect(spark, spec.table, span, rows, Rules(key=spec.key, unique=upsert))
    if upsert:
        tables.check_keys(spark, spec.table, span, rows, spec.key)
    return SinkEffect(one.name, spec.table, **asdict(found))


def publish(
    spark: SparkSession,
    staged: Staged,
    *,
    unvalidated: bool = False,
    force: bool = False,
    effects: list[SinkEffect] | None = None,
    tell: Tell = lambda text: None,
) -> list[SinkEffect]:
    """Replace the window in production, one atomic step per table. Repeated, it completes or changes nothing.

    `effects` is what `plan_publish` answered just before, if it was asked; without it the checks are made here.
    """
    if not unvalidated:
        require_validated(staged)
    effects = plan_publish(spark, staged, force=force) if effects is None else effects
    for one, effect in zip(staged.sinks, effects, strict=True):
        if not effect.done:
            tell(f"publishing {one.name} to {effect.target}")
            spec = staged.loaded.config.sinks[one.name]
            rows = one.rows(spark)
            if not isinstance(spec, IcebergSink):
                publisher_of(one).publish(spark, rows, staged.window, staged.run.id, _regions(staged))
            elif spec.mode == "upsert" and keyed_only(spark, one):
                keyed.publish_keys(spark, spec.table, rows, spec.key, staged.run.id)
            else:
                span, began = span_of(spark, staged, one), staged.run.created
                tables.publish_table(spark, spec.table, span, rows, staged.run.id, began, force=force)
        _record(staged, one.name, "published")
    return effects


def undo(
    spark: SparkSession, staged: Staged, *, force: bool = False, tell: Tell = lambda text: None
) -> list[tuple[str, bool]]:
    """Bring back each sink's window; answers sink by sink whether anything had to be done."""
    done = []
    states = undo_state(spark, staged)
    for one in staged.sinks:
        if states[one.name] == "never published":
            continue
        spec = staged.loaded.config.sinks[one.name]
        tell(f"undoing {one.name}")
        rows = one.rows(spark)
        if not isinstance(spec, IcebergSink):
            happened = states[one.name] == "published"
            if happened:
                publisher_of(one).undo(spark, rows, staged.window, staged.run.id, _regions(staged))
        elif spec.mode == "upsert" and keyed_only(spark, one):
            happened = keyed.undo_keys(spark, spec.table, rows, spec.key, staged.run.id, force=force)
        else:
            span = span_of(spark, staged, one)
            happened = tables.undo_table(spark, spec.table, span, staged.run.id, force=force) is not None
        _record(staged, one.name, "undone")
        done.append((one.name, happened))
    return done


def undo_state(spark: SparkSession, staged: Staged) -> dict[str, str]:
    """Sink by sink: published, undone or never published, as production itself says where it can."""
    states = {}
    for one in staged.sinks:
        spec = staged.loaded.config.sinks[one.name]
        if isinstance(spec, IcebergSink):
            found = publication(load_table(spark, spec.table), staged.run.id)
            states[one.name] = "never published" if found is None else "undone" if found.undone else "published"
        else:
            states[one.name] = _store_state(staged, one.name) or "never published"
    if set(states.values()) == {"never published"}:
        raise PublishError(f"Cannot undo run {staged.run.id}: it was not published")
    return states


def publisher_of(one: StagedSink) -> Any:
    """The sink's own way to publish; refuses one that has none."""
    if not all(hasattr(one.sink, method) for method in ("effect", "publish", "undo")):
        raise PublishError(
            f"Cannot publish sink {one.name!r}: a {type(one.sink).__name__} takes no window back",
            hint=f"Its rows are in {one.table}: take them from there.",
        )
    return one.sink


def _require_inside(rows: Any, span: Span, table: str) -> None:
    outside = rows.where(~span.inside()).count()
    if outside:
        raise PublishError(f"Cannot publish {table}: {outside} of its rows are outside the window {span.window}")


def _regions(staged: Staged) -> tuple[str, ...]:
    return tuple(staged.run.spec.get("regions") or ())


def _store_state(staged: Staged, sink: str) -> str | None:
    known = (RunStore.open(staged.home).run(staged.run.id).publication or {}).get("sinks", {})
    return (known.get(sink) or {}).get("state")


def _record(staged: Staged, sink: str, state: str) -> None:
    """Say in the store what production now holds; an unchanged state keeps its time."""
    store = RunStore.open(staged.home)
    known = dict(store.run(staged.run.id).publication or {})
    sinks = dict(known.get("sinks") or {})
    if (sinks.get(sink) or {}).get("state") != state:
        sinks[sink] = {"state": state, "at": datetime.now(UTC).isoformat()}
    states = {entry["state"] for entry in sinks.values()}
    whole = state if len(sinks) == len(staged.sinks) and states == {state} else "partly " + state
    store.update(staged.run.id, publication={"state": whole, "at": datetime.now(UTC).isoformat(), "sinks": sinks})
