"""Removing staging that is no longer needed, and with it the tags that undo goes back to."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from rekappa.config.model import AppConfig, IcebergSink
from rekappa.home import Home
from rekappa.iceberg.commits import load_table
from rekappa.iceberg.history import tag_before
from rekappa.iceberg.replace import Edit, drop_branch
from rekappa.staging.tables import StagingTable, drop_staging, list_staging
from rekappa.store.record import Kind, State
from rekappa.store.runs import RunStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Cleaned:
    """One staging table and what becomes of it: `kept` says why it stays, None that it goes."""

    table: str
    run: str
    sink: str
    rows: int
    bytes: int
    written: datetime
    kept: str | None
    undo_lost: bool = False


def clean(
    spark: SparkSession, config: AppConfig, home: Home, *, older_than: timedelta | None = None, dry_run: bool = False
) -> list[Cleaned]:
    """Drop the app's staging tables that are older than the retention and whose run has ended.

    A run that is going, paused or can be resumed keeps its staging. What a control staged goes with that of the run
    it is a control of. Undo is impossible afterwards: the tag that marks the state before goes too.
    """
    retention = config.staging_retention if older_than is None else older_than
    runs = {run.id: run for run in RunStore.open(home).runs(config.app)}
    now = datetime.now(UTC)
    answer = []
    tables = [table for table in list_staging(spark, config) if table.app == config.app]
    newest = {table.run: table for table in tables}
    for table in tables:
        run = runs.get(table.run)
        if run is not None and not run.state.going and (parent := run.spec.get("control_of")) in newest:
            kept = _reason_to_keep(newest[parent], runs[parent].state if parent in runs else None, retention, now)
        elif run is not None and run.kind is Kind.CONTROL and not run.state.going:
            kept = None
        else:
            kept = _reason_to_keep(table, run.state if run else None, retention, now)
        tagged = _tagged(spark, config, table)
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
    return answer


def _reason_to_keep(table: StagingTable, state: State | None, retention: timedelta, now: datetime) -> str | None:
    if state is not None and state.going:
        return f"its run is {state}"
    if state is not None and state.resumable:
        return f"its run is {state} and can be resumed"
    if not table.expired(retention, now):
        return "younger than the retention"
    return None


def _tagged(spark: SparkSession, config: AppConfig, table: StagingTable) -> bool:
    spec = config.sinks.get(table.sink)
    if not isinstance(spec, IcebergSink) or not spark.catalog.tableExists(spec.table):
        return False
    return bool(load_table(spark, spec.table).refs().containsKey(tag_before(table.run)))


def _drop_refs(spark: SparkSession, config: AppConfig, table: StagingTable) -> None:
    spec = config.sinks[table.sink]
    assert isinstance(spec, IcebergSink)
    production = load_table(spark, spec.table)
    production.manageSnapshots().removeTag(tag_before(table.run)).commit()
    drop_branch(production, Edit(table.run, {}).branch)
    spark.catalog.refreshTable(spec.table)
