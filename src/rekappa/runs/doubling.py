"""What a live run that begins anew would append a second time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rekappa.config import model
from rekappa.config.bind import Query
from rekappa.errors import RunError
from rekappa.store.record import Batch, Run, State
from rekappa.store.runs import RunStore


@dataclass(frozen=True, slots=True)
class Doubled:
    """A sink that an earlier run appended to, with the events which that run read for it."""

    sink: str
    run: str
    events: int


def target(sink: model.Sink) -> dict[str, Any] | None:
    """Where a sink appends to; None for one that keeps nothing or takes the same rows again without doubling them."""
    match sink:
        case model.IcebergSink(mode="append"):
            return {"table": sink.table}
        case model.HiveSink():
            return {"table": f"{sink.database}.{sink.table}"}
        case model.ParquetSink():
            return {"path": sink.path}
        case model.KafkaSink():
            return {"topic": sink.topic, "cluster": sink.cluster}
        case _:
            return None


def doubled(store: RunStore, config: model.AppConfig, bound: Sequence[Query], earlier: Sequence[Run]) -> list[Doubled]:
    """What the earlier live runs of the app appended to the places that its sinks name now."""
    found = []
    for query in bound:
        place = target(config.sinks[query.sink])
        there = [run for run in earlier if run.state is not State.ABANDONED]
        for run in there if place is not None else ():
            batches = store.batches(run.id, query.name)
            if run.spec.get("targets", {}).get(query.name, place) == place and any(b.number >= 0 for b in batches):
                found.append(Doubled(query.sink, run.id, _reached(batches[-1]) - _reached(batches[0])))
    return found


def require_nothing_doubled(
    store: RunStore, config: model.AppConfig, bound: Sequence[Query], earlier: Sequence[Run]
) -> None:
    """Refuse to begin anew where that appends again what is there."""
    found = doubled(store, config, bound, earlier)
    if not found:
        return
    lines = [f"  sink {one.sink!r}: live run {one.run} appended what {one.events:,} events gave" for one in found]
    raise RunError(
        "\n".join([f"Cannot run {config.app!r} afresh: it would append again what is in its sinks", *lines]),
        hint="Without --fresh it goes on where it was. A backfill makes a window anew. For a copy from the start, name"
        " another table or topic. --append-again appends all the same.",
    )


def _reached(batch: Batch) -> int:
    # A query that reads a topic twice has read each event once for this purpose.
    return sum(end for position in batch.positions if position.reader == 0 for end in position.ends.values())
