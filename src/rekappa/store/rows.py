"""The store's values as rows of its tables, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, update

from rekappa.errors import RunError
from rekappa.masking import hidden
from rekappa.store.code import Code
from rekappa.store.dialects import upsert
from rekappa.store.record import Batch, Run, Standing, Start
from rekappa.store.tables import BATCHES, RUNS, STARTS

_FROM_LEASE = ("pid", "host")


def run_row(run: Run) -> dict[str, Any]:
    return _shown({name: getattr(run, name) for name in Run.__dataclass_fields__ if name not in _FROM_LEASE})


def run_of(row: Row[Any]) -> Run:
    """The run as it stands in the table: who is at work on it, its lease says."""
    values = dict(row._mapping)
    return Run(**{**values, "logs": tuple(values["logs"])})


def change_run(db: Connection, run_id: str, changes: Mapping[str, Any]) -> None:
    if db.execute(update(RUNS).where(RUNS.c.id == run_id).values(**_shown(changes))).rowcount != 1:
        raise RunError(f"Cannot find run {run_id!r}", hint="`rekappa runs` lists them.")


def _shown(values: Mapping[str, Any]) -> dict[str, Any]:
    """As they may be shown: an error may quote an address with a password."""
    return {**values, "error": hidden(values["error"])} if values.get("error") else dict(values)


def add_batches(db: Connection, batches: Iterable[Batch]) -> None:
    """Add batches; one that is there already is left as it is."""
    rows = [
        {
            "run": batch.run,
            "query": batch.query,
            "batch": batch.number,
            "positions": [_position_row(position) for position in batch.positions],
            "watermark": batch.watermark,
            "committed": batch.committed,
        }
        for batch in batches
    ]
    if rows:
        db.execute(upsert(db)(BATCHES).on_conflict_do_nothing(), rows)


def batch_of(row: Row[Any]) -> Batch:
    return Batch(row.run, row.query, row.batch, _positions(row.positions), row.watermark, row.committed)


def put_start(db: Connection, start: Start) -> None:
    """Add a start, or replace the one of the same batch."""
    changed = {"code": start.code.as_json(), "target": start.target, "at": start.at}
    row = upsert(db)(STARTS).values(run=start.run, query=start.query, batch=start.batch, **changed)
    db.execute(row.on_conflict_do_update(index_elements=list(STARTS.primary_key), set_=changed))


def start_of(row: Row[Any]) -> Start:
    return Start(row.run, row.query, row.batch, Code.from_json(row.code), row.target, row.at)


def _position_row(position: Standing) -> dict[str, Any]:
    ends = {str(partition): end for partition, end in sorted(position.ends.items())}
    row = {"source": position.source, "region": position.region, "topic": position.topic, "ends": ends}
    return row | {"reader": position.reader} if position.reader else row


def _positions(rows: Sequence[Mapping[str, Any]]) -> tuple[Standing, ...]:
    return tuple(
        Standing(
            row["source"],
            row["region"],
            row["topic"],
            {int(part): end for part, end in row["ends"].items()},
            row.get("reader", 0),
        )
        for row in rows
    )
