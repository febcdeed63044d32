"""How long Kafka still keeps what a run would read next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from rekappa.archive.completeness import brokers
from rekappa.config.load import Loaded
from rekappa.home import Home
from rekappa.plan.coverage import Kept, Want
from rekappa.plan.offsets import Position
from rekappa.planning.catch_up import kafka_of
from rekappa.produce.topics import keeping
from rekappa.sources.kafka import client_options


def kept_until(loaded: Loaded, home: Home, wants: Iterable[Want], kept: Mapping[Position, Kept]) -> datetime | None:
    """When Kafka may begin to drop what is wanted, by the age of the first event of it that it has in each partition;
    None where it has none, or drops nothing for its age."""
    first = {at.position: max(at.start, kept[at.position].first) for at in wants if at.position in kept}
    waiting = {at: start for at, start in first.items() if start < kept[at].end}
    ends: list[datetime] = []
    for name in {at.source for at in waiting}:
        kafka = kafka_of(loaded, name)
        for cluster, broker in zip(kafka.cluster, brokers(loaded.config, home, kafka), strict=True):
            feed = (name, broker.region, broker.topic)
            own = {(at.region, at.partition): start + 1 for at, start in waiting.items() if at[:3] == feed}
            age = keeping(client_options(loaded.config, cluster, home), broker.topic).retention if own else None
            if age is not None:
                ends += [moment + age for moment in broker.times(own).values()]
    return min(ends, default=None)
