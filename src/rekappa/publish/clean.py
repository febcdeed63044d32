"""Removing what ended backfills left: staging, the tags that undo goes back to, checkpoints, logs, batch records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from rekappa.config.model import AppConfig, IcebergSink
from rekappa.home import Home
from rekappa.iceberg.commits import load_table
from rekappa.iceberg.history import noted, tag_before
from rekappa.iceberg.replace import Edit, drop_branch
from rekappa.publish.cleaned import Cleaned
from rekappa.publish.forget import forget_code, forget_history, forget_runs, old_runs
from rekappa.staging.tables import StagingTable, drop_staging, list_staging
from rekappa.storage.location import Location
from rekappa.store.record import Kind, Run, State
from rekappa.store.runs import RunStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def clean(
    spark: SparkSession,
    config: AppConfig,
    home: Home,
    *,
    older_than: timedelta | None = None,
    history: timedelta | None = None,
    dry_run: bool = False,
) -> list[Cleaned]:
    """Drop the app's staging tables that are older than the retention and whose run has ended, and with the last
    staging of a run its checkpoints, logs, batch records and the code that no other run needs.

    A run that is going, paused or can be resumed keeps everything. What a control staged goes with that of the run
    that it is a control of. Undo is impossible afterwards: the tag that marks the state before goes too. Live runs
    keep what they have, it is production's own history, but for micro-batches older than `history`. Of runs that nobody
    has heard of for so long nothing is kept, and of those that could have been resumed neither.
    """
    retention = config.staging_retention if older_than is None else older_than
    history = config.history_retention if history is None else history
    store = RunStore.open(home)
    runs = store.runs()
    now = datetime.now(UTC)
    answer = []
    tables = [table for table in list_staging(spark, config) if table.app == config.app]
    own = [run for run in runs if run.app == config.app]
    old = {run.id: run for run in old_runs(own, history, now)}
    known = {run.id: run for run in runs if run.id not in old}
    for table in tables:
        kept = _kept(table, tables, known, retention, now)
        tagged = _tagged(spark, config, table.run, table.sink)
        if kept is None and not dry_run:
            drop_staging(spark, table)
            if tagged:
                _drop_refs(spark, config, table)
        answer.append(
            Cleaned(
                table.table,
                table.run,
                table.sink,
                table.rows,
                table.bytes,
                table.written,
                kept,
                kept is None and tagged,
            )
        )
    kept_runs = {one.run for one in answer if one.kept is not None}
    leaving = {one.run for one in answer} - kept_runs
    dropped = [
        run
        for run in own
        if (run.id in old or is_over(run, retention, now))
        and run.id not in kept_runs
        and (run.id in leaving or not any(_tagged(spark, config, run.id, sink) for sink in config.sinks))
    ]
    answer += clean_files(store, home, dropped, runs, dry_run=dry_run)
    answer += forget_code(store, home, {run.id for run in dropped}, retention, dry_run=dry_run)
    answer += forget_history(store, own, history, dry_run=dry_run)
    answer += forget_runs(store, [run for run in dropped if run.id in old], dry_run=dry_run)
    return answer


def is_over(run: Run, retention: timedelta, now: datetime) -> bool:
    """Whether a backfill, or a control of one, ended so long ago that what it left may go."""
    ended = run.kind in (Kind.BACKFILL, Kind.CONTROL) and run.state in (State.FINISHED, State.CANCELLED)
    return ended and now - (run.ended or run.created) >= retention


def _kept(
    table: StagingTable, tables: Sequence[StagingTable], runs: Mapping[str, Run], retention: timedelta, now: datetime
) -> str | None:
    """Why a table stays; None if it goes. That of a control stays as long as that of its run, unless it is going."""
    run = runs.get(table.run)
    if run is None or run.kind is not Kind.CONTROL or run.state.going:
        return _reason_to_keep(table, run.state if run else None, retention, now)
    parent = str(run.spec.get("control_of"))
    known = runs.get(parent)
    reasons = [
        _reason_to_keep(one, known.state if known else None, retention, now) for one in tables if one.run == parent
    ]
    return next((reason for reason in reasons if reason is not None), None)


def _reason_to_keep(table: StagingTable, state: State | None, retention: timedelta, now: datetime) -> str | None:
    if state is not None and state.going:
        return f"its run is {state}"
    if state is not None and state.resumable:
        return f"its run is {state} and can be resumed"
    if not table.expired(retention, now):
        return "younger than the retention"
    return None


def _tagged(spark: SparkSession, config: AppConfig, run: str, sink: str) -> bool:
    spec = config.sinks.get(sink)
    if not isinstance(spec, IcebergSink) or not spark.catalog.tableExists(spec.table):
        return False
    return bool(load_table(spark, spec.table).refs().containsKey(tag_before(run)))


def _drop_refs(spark: SparkSession, config: AppConfig, table: StagingTable) -> None:
    spec = config.sinks[table.sink]
    assert isinstance(spec, IcebergSink)
    production = load_table(spark, spec.table)
    production.manageSnapshots().removeTag(tag_before(table.run)).commit()
    production.updateProperties().remove(noted(table.run)).commit()
    drop_branch(production, Edit(table.run, {}).branch)
    spark.catalog.refreshTable(spec.table)


def clean_files(
    store: RunStore, home: Home, dropped: Sequence[Run], runs: Iterable[Run], *, dry_run: bool
) -> list[Cleaned]:
    """Remove the dropped runs' checkpoint folders, their batch records, and the logs that tell of no other run."""
    gone = {run.id for run in dropped}
    needed = {log for run in runs if run.id not in gone for log in run.logs}
    answer = []
    for run in dropped:
        folder = home.checkpoint(run.app, run.id)
        logs = [home.logs / name for name in run.logs if name not in needed]
        files = [location for location in (folder, *map(Location.local, logs)) if location.exists()]
        batches = store.batch_count(run.id)
        if not files and not batches:
            continue
        size, written = sum(location.size() for location in files), run.ended or run.created
        answer.append(Cleaned(str(folder), run.id, None, batches, size, written, None))
        if not dry_run:
            store.drop_batches(run.id)
            for location in files:
                location.remove()
    return answer
