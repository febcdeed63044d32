"""Which live run of an app is the one that counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from rekappa.config.bind import Query
from rekappa.config.load import Loaded
from rekappa.errors import RunError
from rekappa.home import Home
from rekappa.runs.doubling import target
from rekappa.sources.topics import topic_ids
from rekappa.store.record import Kind, Run, State
from rekappa.store.runs import RunStore

REWIND, OPEN, UNDOING = "rewind", "open", "undoing"
"""In a run's progress: a rewind that made it is not completed yet, or is being undone."""
TOPICS = "topics"
"""In a run's spec: the topics that it reads, as Kafka knew them when it began."""
UNDOABLE = timedelta(days=7)
"""How long what it takes to undo a rewind is kept."""


def same_places(store: RunStore, loaded: Loaded) -> list[Run]:
    """The app's live runs that write where this configuration does, newest first.

    A run that writes elsewhere has checkpoints of its own: it goes on where it was, production where that was.
    """
    elsewhere = dict(loaded.elsewhere)
    found = store.runs(loaded.config.app, Kind.LIVE)
    return [run for run in found if run.spec.get("elsewhere", {}) == elsewhere]


def current_run(store: RunStore, loaded: Loaded) -> Run:
    """The live run that is going, or would be continued; refused where the app never ran."""
    found = [run for run in same_places(store, loaded) if run.state is not State.ABANDONED]
    if not found:
        app = loaded.config.app
        raise RunError(f"Cannot find a live run of {app!r}: it never ran here", hint=f"`rekappa run {app}` begins one.")
    return found[0]


def live_lease(loaded: Loaded, query: Query) -> str:
    """One process at a time writes a sink; one that writes elsewhere may run beside production."""
    name = f"live {loaded.config.app}/{query.name}"
    return f"{name} to {loaded.elsewhere[query.sink]}" if query.sink in loaded.elsewhere else name


def require_settled(run: Run) -> None:
    """Refuse a run whose rewind, or the undoing of it, was cut short: its sinks may be in between."""
    if run.progress.get(REWIND):
        raise RunError(
            f"Cannot go on with {run.app!r}: the rewind to run {run.id} is not completed",
            hint=f"`rekappa rewind --resume {run.id}` completes it.",
        )


def asked_of(loaded: Loaded, bound: Sequence[Query]) -> dict[str, Any]:
    """What a live run is asked to do, for its spec."""
    config = loaded.config
    return {
        "selected": {name: source.selected for name, source in config.sources.items()},
        "overrides": list(loaded.overrides),
        "targets": {query.name: target(config.sinks[query.sink]) for query in bound},
        "elsewhere": dict(loaded.elsewhere),
        "owner": config.owner,
    }


def require_same_sources(run: Run, loaded: Loaded) -> None:
    """Refuse to go on with checkpoints that were made of other candidates."""
    selected = {name: source.selected for name, source in loaded.config.sources.items()}
    if run.spec.get("selected") != selected:
        raise RunError(
            f"Cannot continue live run {run.id}: it read {run.spec.get('selected')}, now {selected} is selected",
            hint="Select the same candidates, or start over with `--fresh` (new checkpoints, no state).",
        )


def topics_of(loaded: Loaded, home: Home) -> dict[str, str]:
    """The topics that the app's selected candidates read, as Kafka knows them."""
    sources = loaded.config.sources
    return topic_ids(loaded.config, home, {name: one.candidates[one.selected] for name, one in sources.items()})


def require_same_topics(run: Run, topics: Mapping[str, str], doing: str) -> None:
    """Refuse offsets of a topic that is no more: one of the same name is there, and means other events by them."""
    for name, began in run.spec.get(TOPICS, {}).items():
        if topics.get(name, began) != began:
            cluster, _, topic = name.partition("/")
            raise RunError(
                f"Cannot {doing}: topic {topic!r} of cluster {cluster!r} was deleted and created anew since run "
                f"{run.id} read it, so its offsets mean other events",
                hint=f"`rekappa rewind {run.app} --no-state` reads the new topic from its beginning. Archive it into "
                "another table: the one of the old topic has events at the same offsets.",
            )


def drop_abandoned(home: Home, store: RunStore, app: str, now: datetime) -> None:
    """Remove the checkpoints of runs that were rewound too long ago for that to be undone."""
    for run in store.runs(app, Kind.LIVE):
        if run.state is State.ABANDONED and run.ended is not None and now - run.ended > UNDOABLE:
            home.checkpoint(app, run.id).remove()
