"""The lineage topic: one on every cluster, compacted, with a fence for each topic that rekappa's sinks write to.

lineage = LineageTopic(client_options)
lineage.fence("plays").counts(run, query, batch)
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rekappa.errors import SourceError
from rekappa.fence.line import Fence, Message, Sender, WriterLine, begun_message, fences, line_message

LINEAGE = "rekappa-lineage"
PATIENCE = 20.0
"""Seconds for the cluster to answer."""
_QUIET = {"log_level": "2"}


@dataclass(frozen=True)
class LineageTopic:
    """The lineage topic of one cluster. `options` are those of confluent-kafka's clients."""

    options: Mapping[str, str]

    def fence(self, topic: str) -> Fence:
        """What counts of a topic, as it stands now. Where no sink ever wrote, nothing is known of any sender."""
        return self.every().get(topic, Fence())

    def every(self) -> dict[str, Fence]:
        """The fence of each topic that has one."""
        with self._asking("read"):
            return fences(self._messages()) if self._there() else {}

    def begin(self, topic: str, sender: Sender) -> None:
        """Announce a sender, before its first message. Makes the lineage topic where there is none."""
        if sender not in self.fence(topic).limits:
            self._write(begun_message(topic, sender))

    def draw(self, topic: str, line: WriterLine) -> None:
        """Let this line count from now on; it takes the place of the writer's line before."""
        self._write(line_message(topic, line))

    def require_compacted(self) -> None:
        """Refuse a lineage topic that would forget its lines, by its retention; one that is not there will be made."""
        from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

        with self._asking("read"):
            if not self._there():
                return
            admin = self._admin()
            (asked,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, LINEAGE)]).values()
            policy = asked.result(PATIENCE)["cleanup.policy"].value
        if policy != "compact":
            raise SourceError(
                f"Cannot rely on topic {LINEAGE!r} of {self._address}: its cleanup.policy is {policy}, not compact",
                hint=f"kafka-configs.sh --bootstrap-server {self._address} --alter --topic {LINEAGE} "
                "--add-config cleanup.policy=compact",
            )

    @property
    def _address(self) -> str:
        return self.options["bootstrap.servers"]

    def _admin(self) -> Any:
        """To be held until it has answered: what is asked of one that nobody holds any more is not answered."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({**_QUIET, **self.options})

    def _there(self) -> bool:
        return LINEAGE in self._admin().list_topics(timeout=PATIENCE).topics

    def _messages(self) -> Iterator[Message]:
        from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

        told = {"group.id": LINEAGE, "enable.auto.commit": "false", "enable.partition.eof": "true"}
        # The end is told at once, not when the broker has waited for more.
        told["fetch.wait.max.ms"] = "10"
        consumer = Consumer({**_QUIET, **self.options, **told})
        deadline = time.monotonic() + PATIENCE
        try:
            consumer.assign([TopicPartition(LINEAGE, 0, 0)])
            while True:
                found = consumer.poll(1.0)
                error = found.error() if found is not None else None
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    return
                if error is not None and not error.retriable():
                    raise KafkaException(error)
                if found is None or error is not None:
                    if time.monotonic() > deadline:
                        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
                    continue
                key, value = found.key(), found.value()
                if key is not None and value is not None:
                    yield key.decode(), value.decode()
        finally:
            consumer.close()

    def _write(self, message: Message) -> None:
        from confluent_kafka import KafkaException, Producer

        failed: list[Any] = []
        with self._asking("write to"):
            self._make()
            producer = Producer({**_QUIET, "enable.idempotence": "true", **self.options})
            producer.produce(
                LINEAGE, key=message[0], value=message[1], partition=0,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )  # fmt: skip
            left = producer.flush(PATIENCE)
            if failed:
                raise KafkaException(failed[0])
        if left:
            raise SourceError(f"Cannot write to topic {LINEAGE!r} of {self._address}: no answer in {PATIENCE:.0f} s")

    def _make(self) -> None:
        """One partition: what is written later is read later."""
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        if self._there():
            self.require_compacted()
            return
        settings = {"cleanup.policy": "compact"}
        wanted = NewTopic(LINEAGE, num_partitions=1, replication_factor=-1, config=settings)
        admin = self._admin()
        try:
            admin.create_topics([wanted])[LINEAGE].result(PATIENCE)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    @contextmanager
    def _asking(self, doing: str) -> Iterator[None]:
        from confluent_kafka import KafkaException

        try:
            yield
        except KafkaException as error:
            raise SourceError(
                f"Cannot {doing} topic {LINEAGE!r} of {self._address}: {error.args[0].str()}",
                hint="It says which messages count. Where clients may not make topics: kafka-topics.sh --create "
                f"--topic {LINEAGE} --partitions 1 --config cleanup.policy=compact",
            ) from None
