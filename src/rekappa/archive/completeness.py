"""Up to when the archive is complete, region by region.

The router writes `rekappa.complete-until.<region>` into its commits: every event of that region with a lower
ingestion time is in the table. When nothing comes it says so in the table's properties instead, which makes no
snapshot; there it also stands when the snapshots that said it are gone. What is later of the two holds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rekappa.errors import SourceError
from rekappa.home import Home
from rekappa.iceberg.retention import COMPLETE
from rekappa.sources.kafka import client_options
from rekappa.timeline import parse_instant

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition
    from pyiceberg.table import Table

    from rekappa.archive.tables import Route
    from rekappa.config.load import Loaded
    from rekappa.config.model import AppConfig, KafkaCandidate

Partition = tuple[str, int]
"""Region and number of a Kafka partition."""


def properties(complete: Mapping[str, datetime]) -> dict[str, str]:
    """What a commit says about completeness. Instants are written in full, so that they sort as text."""
    return {COMPLETE + region: moment.astimezone(UTC).isoformat() for region, moment in complete.items()}


def complete_until(table: Table) -> dict[str, datetime]:
    """The newest statement about each region, from the table's metadata (PyIceberg; no Spark)."""
    found = _told(table.properties)
    for summary in summaries(table):
        if told := _told(summary):
            # One commit of the router names every region that it knows something about.
            return {**told, **{region: max(at, told.get(region, at)) for region, at in found.items()}}
    return found


def _told(text: Mapping[str, str]) -> dict[str, datetime]:
    return {key.removeprefix(COMPLETE): parse_instant(at) for key, at in text.items() if key.startswith(COMPLETE)}


def summaries(table: Table) -> Iterator[Mapping[str, str]]:
    """The summaries of the table's own line of snapshots, newest first."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield dict(snapshot.summary.additional_properties) if snapshot.summary else {}
        snapshot = table.snapshot_by_id(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id else None


@dataclass(frozen=True, slots=True)
class Ends:
    """Where each partition ended at a moment: everything before it had been written by then."""

    at: datetime
    offsets: Mapping[Partition, int]


def reached(batch: Mapping[Partition, int], seen: list[Ends]) -> dict[Partition, datetime]:
    """For each partition, the latest of these moments whose end the batch has reached."""
    found: dict[Partition, datetime] = {}
    for ends in seen:
        for partition, end in ends.offsets.items():
            if batch.get(partition, 0) >= end:
                found[partition] = max(ends.at, found.get(partition, ends.at))
    return found


class Broker:
    """What the router asks one Kafka cluster: where a topic's partitions end."""

    def __init__(self, region: str, topic: str, options: Mapping[str, str]) -> None:
        self.region, self.topic = region, topic
        self._options = dict(options)

    def bounds(self) -> dict[Partition, tuple[int, int]]:
        """The first offset still kept and the next to be written, of each partition."""
        from confluent_kafka import KafkaException

        try:
            with self._consumer() as consumer:
                return {
                    (self.region, number): consumer.get_watermark_offsets(self._at(number), timeout=30)
                    for number in self._partitions(consumer)
                }
        except KafkaException as error:
            raise SourceError(
                f"Cannot read topic {self.topic!r} of region {self.region!r}: {error.args[0]}",
                hint="Is the cluster up? For the local one: rekappa status",
            ) from None

    def ends(self) -> dict[Partition, int]:
        return {partition: high for partition, (_, high) in self.bounds().items()}

    def times(self, offsets: Mapping[Partition, int]) -> dict[Partition, datetime]:
        """The ingestion time of the last message before each offset; left out where there is none any more."""
        found = {}
        with self._consumer() as consumer:
            for (region, number), end in offsets.items():
                if region != self.region or end <= 0:
                    continue
                consumer.assign([self._at(number, end - 1)])
                message = consumer.poll(10)
                if message is not None and message.error() is None and message.offset() == end - 1:
                    found[region, number] = datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC)
        return found

    def sizes(self, limit: int) -> list[int]:
        """Sizes of some recent messages as their producers wrote them: key, value and headers, uncompressed."""
        found: list[int] = []
        with self._consumer() as consumer:
            bounds = self.bounds()
            each = max(1, limit // max(1, len(bounds)))
            for (_, number), (low, high) in bounds.items():
                start = max(low, high - each)
                consumer.assign([self._at(number, start)])
                for message in consumer.consume(high - start, timeout=10):
                    headers = sum(len(k) + len(v or b"") for k, v in message.headers() or [])
                    found.append(len(message.key() or b"") + len(message.value() or b"") + headers)
        return found

    def _at(self, number: int, offset: int | None = None) -> TopicPartition:
        from confluent_kafka import TopicPartition

        return TopicPartition(self.topic, number) if offset is None else TopicPartition(self.topic, number, offset)

    def _partitions(self, consumer: Any) -> list[int]:
        found = sorted(consumer.list_topics(self.topic, timeout=30).topics[self.topic].partitions)
        if not found:
            raise SourceError(
                f"Cannot read topic {self.topic!r} of region {self.region!r}: it does not exist",
                hint="Create it, or correct the candidate's topic in rekappa.yaml.",
            )
        return found

    @contextlib.contextmanager
    def _consumer(self) -> Iterator[Any]:
        from confluent_kafka import Consumer

        settings = {**self._options, "group.id": "rekappa-archive", "enable.auto.commit": False, "log_level": 2}
        consumer = Consumer(settings)
        try:
            yield consumer
        finally:
            consumer.close()


def clusters(loaded: Loaded, home: Home, route: Route) -> list[Broker]:
    """The Kafka clusters behind a route, in the order of its candidate."""
    return brokers(loaded.config, home, route.kafka)


def brokers(config: AppConfig, home: Home, kafka: KafkaCandidate) -> list[Broker]:
    """The clusters of a candidate, in its order."""
    return [
        Broker(config.cluster(name).region, config.cluster(name).topic(kafka.topic), client_options(config, name, home))
        for name in kafka.cluster
    ]
