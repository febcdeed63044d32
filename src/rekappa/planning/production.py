"""Which live runs are production's."""

from __future__ import annotations

from rekappa.config.load import Loaded
from rekappa.config.targets import target_of
from rekappa.errors import RunError
from rekappa.store.record import Kind, Run, State
from rekappa.store.runs import RunStore


def production_runs(store: RunStore, loaded: Loaded, sink: str, named: str | None = None) -> list[Run]:
    """The live runs that wrote to where the sink is, newest first; only the one that is named, if one is.

    A run that was told to write elsewhere is nobody's production: it is refused by name, and left out otherwise. One
    that was rewound is left out too: what counts of it stands in the record of the run that goes on.
    """
    if named is not None:
        run = store.run(named)
        told = run.spec.get("elsewhere", {}).get(sink)
        if told is not None:
            raise RunError(
                f"Cannot take run {run.id} for production: it wrote sink {sink!r} to its candidate {told!r}",
                hint="`rekappa runs` lists the live runs.",
            )
        return [run]
    target = target_of(loaded.config.sinks[sink])
    runs = [run for run in store.runs(loaded.config.app, Kind.LIVE) if run.state is not State.ABANDONED]
    return [run for run in runs if any(start.target == target for start in store.starts(run.id, sink))]
