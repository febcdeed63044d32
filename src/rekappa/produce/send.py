"""Sending messages, each with its own time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from rekappa.errors import SourceError
from rekappa.produce.spool import SpooledMessage

SILENCE_SECONDS = 60.0
_SETTINGS = {
    "enable.idempotence": "true",
    "log_level": "2",
    "linger.ms": "20",
    "compression.type": "lz4",
    # Keys go to the partitions that Java's clients, Spark among them, send them to.
    "partitioner": "murmur2_random",
}
_EVERY = 1000


def send(
    options: Mapping[str, str],
    messages: Iterable[SpooledMessage],
    on_progress: Callable[[int], None] = lambda stored: None,
) -> int:
    """Send all; answers how many once Kafka has stored every one. `options` are those of confluent-kafka's clients.

    Raises `SourceError` that says how many were stored, if not all were: sending the same again repeats those.
    """
    from confluent_kafka import KafkaException, Producer

    stored, failed = [0], [""]

    def delivered(error: object, _: object) -> None:
        stored[0] += error is None
        failed[0] = failed[0] or (str(error) if error is not None else "")

    producer = Producer({**_SETTINGS, **options})
    given = 0
    for message in messages:
        while True:
            try:
                producer.produce(
                    message.topic,
                    key=message.key,
                    value=message.value,
                    timestamp=message.millis,
                    on_delivery=delivered,
                )
                break
            except BufferError:
                _wait(producer, stored, options, given)
            except KafkaException as error:
                # Refused by the client itself, as too large, say. What it has taken before is still on its way.
                producer.flush(SILENCE_SECONDS)
                failed[0] = failed[0] or error.args[0].str()
                break
        given += 1
        if given % _EVERY == 0:
            producer.poll(0)
            on_progress(stored[0])
        if failed[0]:
            break
    while producer.flush(1) and not failed[0]:
        on_progress(stored[0])
        _wait(producer, stored, options, given)
    if failed[0]:
        raise _stopped(options, failed[0], stored[0])
    on_progress(stored[0])
    return stored[0]


def _wait(producer: object, stored: list[int], options: Mapping[str, str], given: int) -> None:
    """Wait until Kafka has stored something more; not for ever."""
    from confluent_kafka import Producer

    assert isinstance(producer, Producer)
    before, deadline = stored[0], time.monotonic() + SILENCE_SECONDS
    while stored[0] == before and len(producer):
        producer.poll(0.2)
        if time.monotonic() > deadline:
            raise _stopped(options, f"no answer in {SILENCE_SECONDS:.0f} s", stored[0])


def _stopped(options: Mapping[str, str], why: str, stored: int) -> SourceError:
    return SourceError(
        f"Cannot send all events to {options.get('bootstrap.servers')}: {why}; {stored:,} were stored",
        hint="Sending them again repeats those that were stored." if stored else None,
    )
