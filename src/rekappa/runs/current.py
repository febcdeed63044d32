"""Which live run of an app is the one that counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from rekappa.config.bind import Query
from rekappa.config.load import Loaded
from rekappa.config.targets import target_of
from rekappa.errors import RunError
from rekappa.home import Home
from rekappa.runs.doubling import target
from rekappa.sources.topics import topic_ids
from rekappa.store.record import Kind, Run, State
from rekappa.store.runs import RunStore

REWIND, OPEN, UNDOING = "rewind", "open", "undoing"
"""In a run's progress: a rewind that made it is not completed yet, or is being undone."""
PLACES = "places"
"""In a run's spec: where each of its queries writes, in a line."""
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
        PLACES: {query.name: target_of(config.sinks[query.sink]) for query in bound},
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


def require_none_left_out(store: RunStore, run: Run, bound: Sequence[Query], loaded: Loaded) -> None:
    """Refuse a query that a rewind left out, because its sink was not configured then: begun anew, it would append what
    is there already."""
    for query in bound:
        place = target(loaded.config.sinks[query.sink])
        wrote = _left_out(store, run, query.name) if place is not None else None
        if wrote is not None and wrote.spec.get("targets", {}).get(query.name, place) == place:
            raise RunError(
                f"Cannot go on with {run.app!r}: run {wrote.id} wrote sink {query.sink!r}, which was not configured "
                "when that was rewound: begun anew, it would append again what is there",
                hint=f"`rekappa rewind {run.app} --undo` goes back to before that rewind. Name another place for the "
                "sink to have it there from the beginning. --append-again appends all the same.",
            )


def _left_out(store: RunStore, run: Run, query: str) -> Run | None:
    """The run that has written the query, if a rewind to this one, or to one before it, left the query out."""
    here = run
    while not store.has_written(here.id, query):
        part = _rewound(here)
        if part is None or any(one["query"] == query for one in part["queries"]):
            return None
        here = store.run(part["run"])
    return here if here.id != run.id else None


def _rewound(run: Run) -> Mapping[str, Any] | None:
    """Of the rewind that made a run, the part of its own app."""
    plan = run.spec.get("rewind")
    parts = () if plan is None else (plan, *plan.get("downstream", ()))
    return next((one for one in parts if one["app"] == run.app), None)


def drop_abandoned(home: Home, store: RunStore, app: str, now: datetime) -> None:
    """Remove the checkpoints of runs that were rewound too long ago for that to be undone."""
    for run in store.runs(app, Kind.LIVE):
        if run.state is State.ABANDONED and run.ended is not None and now - run.ended > UNDOABLE:
            home.checkpoint(app, run.id).remove()
