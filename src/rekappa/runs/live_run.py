"""A live run as its folder shows it: which queries it has, and what each of them has to read next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rekappa.app import App
from rekappa.checkpoints.restarts import FORK
from rekappa.config.bind import Query
from rekappa.config.load import Loaded
from rekappa.config.model import KafkaCandidate
from rekappa.errors import RunError
from rekappa.home import Home
from rekappa.plan.coverage import Want
from rekappa.plan.offsets import Position
from rekappa.replay.batches import Feed, feeds, positions
from rekappa.runs.history import History, reached
from rekappa.spark.offsetlog import last_committed, last_planned, starting_offsets
from rekappa.storage.location import Location
from rekappa.store.runs import RunStore


@dataclass(frozen=True, slots=True)
class LiveRun:
    """A live run, on this machine: its app, its folder, its queries."""

    loaded: Loaded
    app: App
    home: Home
    run: str
    bound: Sequence[Query]

    @property
    def folder(self) -> Location:
        return self.home.checkpoint(self.loaded.config.app, self.run)

    @property
    def sources(self) -> list[str]:
        """The sources that read Kafka live."""
        config, read = self.loaded.config, {name for query in self.bound for name in self.app.jobs[query.job].sources}
        return [
            name
            for name, source in config.sources.items()
            if name in read and isinstance(source.candidates[source.selected], KafkaCandidate)
        ]

    def checkpoint(self, query: Query) -> Location:
        return self.folder / query.name

    def feeds(self, query: Query) -> tuple[Feed, ...]:
        return feeds(self.loaded.config, self.app.jobs[query.job])

    def history(self) -> History | None:
        """What it was bootstrapped with: it, or the run that it is a fork of."""
        store, here, seen = RunStore.open(self.home), self.run, set[str]()
        while here and here not in seen:
            found = History.load(self.home.checkpoint(self.loaded.config.app, here))
            if found is not None:
                return found
            seen.add(here)
            forks = store.run(here).spec.get(FORK, {})
            here = next((fork["run"] for fork in forks.values()), "")
        return None

    def wants(self, query: Query) -> dict[Position, Want]:
        """What the query has to read next, by its log; nothing for one that has none yet."""
        checkpoint, order = self.checkpoint(query), self.feeds(query)
        committed, planned = last_committed(checkpoint), last_planned(checkpoint)
        if committed is not None:
            starts = reached(checkpoint, committed, order)
        elif planned is not None:
            history = self.history()
            starts = dict(history.starts) if history else _first_starts(checkpoint, order)
        else:
            return {}
        begun = reached(checkpoint, planned, order) if planned is not None and planned != committed else {}
        # A partition that only the batch which was begun knows is a new one: it begins at 0.
        known = [at for at in starts | begun if at[:3] in order]
        return {at: Want(at, starts.get(at, 0), begun.get(at, 0)) for at in known}

    def unread(self) -> dict[Position, Want]:
        """What some query has to read next: from the one that is furthest behind on."""
        found: dict[Position, Want] = {}
        for query in self.bound:
            for at, want in self.wants(query).items():
                other = found.get(at, want)
                found[at] = Want(at, min(want.start, other.start), max(want.begun, other.begun))
        return found


def _first_starts(checkpoint: Location, order: Sequence[Feed]) -> dict[Position, int]:
    return {
        Position(one.source, one.region, one.topic, partition): start
        for one in positions(starting_offsets(checkpoint), order)
        for partition, start in one.ends.items()
    }


def require_kafka(live: LiveRun) -> None:
    """Refuse an app with a source that does not read Kafka: its position is not one that the archive knows."""
    for query in live.bound:
        for name in live.app.jobs[query.job].sources:
            if name not in live.sources:
                raise RunError(
                    f"Cannot catch up {live.loaded.config.app!r}: source {name!r} does not read Kafka",
                    hint=f"Select its kafka candidate: --set sources.{name}.selected=…",
                )
