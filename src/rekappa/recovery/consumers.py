"""Which of the known apps read what an app writes to topics: known is every app that has run in this store."""

from __future__ import annotations

from collections.abc import Iterable

from rekappa.config.load import Loaded, load
from rekappa.config.model import AppConfig, IcebergCandidate, KafkaCandidate, KafkaSink
from rekappa.errors import RekappaError
from rekappa.home import Home
from rekappa.sources.kafka import bootstrap
from rekappa.store.runs import RunStore

TopicOf = tuple[str, str]
"""A cluster's address, and a topic on it."""


def known_apps(store: RunStore) -> list[Loaded]:
    """The configurations of the apps that have run, as they are now; one whose folder is gone is left out."""
    found: dict[str, Loaded] = {}
    for folder in dict.fromkeys(run.folder for run in store.runs()):
        try:
            loaded = load(folder)
        except RekappaError:
            continue
        found.setdefault(loaded.config.app, loaded)
    return list(found.values())


def consumers(loaded: Loaded, home: Home, sink: str, apps: Iterable[Loaded]) -> tuple[str, ...]:
    """The names of the other apps that read the sink's topic; none for a sink that is no topic."""
    written = loaded.config.sinks[sink]
    if not isinstance(written, KafkaSink):
        return ()
    topic = (address_of(loaded.config, written.cluster, home), written.topic)
    return tuple(
        other.config.app
        for other in apps
        if other.config.app != loaded.config.app
        and any(topic in set(reads(other.config, home, name)) for name in other.config.sources)
    )


def reads(config: AppConfig, home: Home, source: str) -> Iterable[TopicOf]:
    """The topics that a source reads live, be it through their archive."""
    known = config.sources[source]
    chosen = known.candidates[known.selected]
    follows = isinstance(chosen, IcebergCandidate) and chosen.follow
    for candidate in known.candidates.values() if follows else (chosen,):
        if isinstance(candidate, KafkaCandidate):
            for name in candidate.cluster:
                yield address_of(config, name, home), config.cluster(name).topic(candidate.topic)


def address_of(config: AppConfig, name: str, home: Home) -> str:
    """Where a cluster is. The local one that is down is still the same one."""
    try:
        return bootstrap(config, name, home)
    except RekappaError:
        return config.cluster(name).bootstrap
