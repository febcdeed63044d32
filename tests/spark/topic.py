"""A topic as a producer and an administrator see it: numbered events, and records really deleted."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from rekappa.produce.topics import create_topics


@dataclass(frozen=True)
class Topic:
    """Event `n` goes to partition `n % partitions` and happened `n` seconds after `start`, which is its ingestion."""

    broker: str
    name: str
    start: datetime
    partitions: int = 3

    def create(self, keeps: timedelta = timedelta(days=3650)) -> Topic:
        settings = {"retention.ms": str(keeps // timedelta(milliseconds=1))}
        create_topics(self.broker, [self.name], partitions=self.partitions, settings=settings)
        return self

    def send(self, numbers: Iterable[int]) -> None:
        producer = Producer({"bootstrap.servers": self.broker})
        for number in numbers:
            moment = self.start + timedelta(seconds=number)
            event = {"id": number, "user": f"u{number % 5}", "event_ts": moment.isoformat()}
            producer.produce(
                self.name,
                json.dumps(event).encode(),
                partition=number % self.partitions,
                timestamp=int(moment.timestamp() * 1000),
            )
        assert producer.flush(60) == 0

    def delete(self, below: Mapping[int, int]) -> None:
        """Delete the records of each partition below an offset, as retention does."""
        client = AdminClient({"bootstrap.servers": self.broker})
        wanted = [TopicPartition(self.name, number, offset) for number, offset in below.items()]
        for done in client.delete_records(wanted).values():
            done.result(60)

    def offset(self, number: int) -> tuple[int, int]:
        """The partition and offset of an event, as long as events are sent in order."""
        return number % self.partitions, number // self.partitions


def hours_ago(hours: float) -> datetime:
    return (datetime.now(UTC) - timedelta(hours=hours)).replace(microsecond=0)
