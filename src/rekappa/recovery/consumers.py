"""Which of the known apps read what an app writes to topics: known is every app that has run in this store."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from rekappa.config.load import Loaded, load
from rekappa.config.model import AppConfig, IcebergCandidate, KafkaCandidate, KafkaSink
from rekappa.errors import RekappaError
from rekappa.home import Home
from rekappa.sources.kafka import bootstrap, client_options
from rekappa.sources.topics import topic_id
from rekappa.store.runs import RunStore


@dataclass(frozen=True, eq=False)
class TopicOf:
    """A topic of a cluster, as an app's configuration names it."""

    topic: str
    cluster: str
    config: AppConfig = field(repr=False)
    home: Home = field(repr=False)

    def is_same(self, other: TopicOf) -> bool | None:
        """Whether both are one topic, be it by other addresses of its cluster: Kafka says what it knows it by. None if
        nobody can tell, as one of the clusters does not answer."""
        if self.topic != other.topic or self.address == other.address:
            return self.topic == other.topic
        ids = (self.id, other.id)
        if "" in ids:
            return False
        return None if None in ids else ids[0] == ids[1]

    @cached_property
    def address(self) -> str:
        """Where the cluster is. The local one that is down is still the same one."""
        try:
            return bootstrap(self.config, self.cluster, self.home)
        except RekappaError:
            return self.config.cluster(self.cluster).bootstrap

    @cached_property
    def id(self) -> str | None:
        """What Kafka knows the topic by; empty if it is not there, None if its cluster does not say."""
        try:
            return topic_id(client_options(self.config, self.cluster, self.home), self.topic)
        except RekappaError:
            return None


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
    """The names of the other apps that read the sink's topic, or may; none for a sink that is no topic."""
    written = loaded.config.sinks[sink]
    if not isinstance(written, KafkaSink):
        return ()
    topic = TopicOf(written.topic, written.cluster, loaded.config, home)
    return tuple(
        other.config.app
        for other in apps
        if other.config.app != loaded.config.app
        and any(
            topic.is_same(read) is not False
            for name in other.config.sources
            for read in reads(other.config, home, name)
        )
    )


def reads(config: AppConfig, home: Home, source: str) -> Iterable[TopicOf]:
    """The topics that a source reads live, be it through their archive."""
    known = config.sources[source]
    chosen = known.candidates[known.selected]
    follows = isinstance(chosen, IcebergCandidate) and chosen.follow
    for candidate in known.candidates.values() if follows else (chosen,):
        if isinstance(candidate, KafkaCandidate):
            for name in candidate.cluster:
                yield TopicOf(config.cluster(name).topic(candidate.topic), name, config, home)
