"""Where a topic is, by the configurations of known apps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rekappa.config.load import Loaded, load
from rekappa.config.model import KafkaCandidate, KafkaSink
from rekappa.home import Home
from rekappa.recovery.consumers import known_apps
from rekappa.store.runs import RunStore


@dataclass(frozen=True, slots=True)
class TopicPlace:
    """A cluster, by its name in an app's configuration, on which the app reads or writes the topic."""

    loaded: Loaded
    cluster: str
    writes: bool


def places_of(home: Home, topic: str, app: str | None = None) -> list[TopicPlace]:
    """Every place at which the app, or any known one, has the topic; those of writers first."""
    return places_in([load(app)] if app is not None else known_apps(RunStore.existing(home)), topic)


def places_in(apps: Sequence[Loaded], topic: str) -> list[TopicPlace]:
    """Every place at which one of these apps has the topic; those of writers first."""
    return [*_written(apps, topic), *_read(apps, topic)]


def _written(apps: Sequence[Loaded], topic: str) -> Iterator[TopicPlace]:
    for loaded in apps:
        for sink in loaded.config.sinks.values():
            if isinstance(sink, KafkaSink) and sink.topic == topic:
                yield TopicPlace(loaded, sink.cluster, writes=True)


def _read(apps: Sequence[Loaded], topic: str) -> Iterator[TopicPlace]:
    for loaded in apps:
        for source in loaded.config.sources.values():
            for candidate in source.candidates.values():
                if isinstance(candidate, KafkaCandidate):
                    for name in candidate.cluster:
                        if loaded.config.cluster(name).topic(candidate.topic) == topic:
                            yield TopicPlace(loaded, name, writes=False)
