"""What files alone tell of a rewind: refused here, it is refused before Spark is started for it."""

from __future__ import annotations

from rekappa.app import App
from rekappa.checkpoints.fork import files_of
from rekappa.checkpoints.savepoints import savepoint
from rekappa.config.bind import queries
from rekappa.config.load import Loaded
from rekappa.home import Home
from rekappa.recovery.choose import NoState, ToSavepoint, Wanted, choose
from rekappa.recovery.listing import query_restarts
from rekappa.runs.current import require_same_sources, require_settled
from rekappa.store.record import Run
from rekappa.store.runs import RunStore


def require_points(home: Home, store: RunStore, run: Run, loaded: Loaded, app: App, wanted: Wanted) -> None:
    """Refuse a run whose queries can't go on from where they are wanted to: every file that this needs must be there.
    Needs neither Spark nor Kafka."""
    require_settled(run)
    if isinstance(wanted, NoState):
        return
    if isinstance(wanted, ToSavepoint):
        savepoint(home, run.app, wanted.name)
    require_same_sources(run, loaded)
    known = query_restarts(home, store, run)
    for query in queries(loaded.config, app):
        # One of which no point is left is no new one, and must not begin without state unless that was asked for.
        if known.get(query.name) or store.has_written(run.id, query.name):
            one = choose(query.name, known.get(query.name, ()), wanted)
            files_of(one.folder, one.point.batch)
