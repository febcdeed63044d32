"""Topics: those that are missing made, and those that would not keep an event's time refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from rekappa.errors import ConfigError, InputError, SourceError, StackError
from rekappa.timeline import format_duration, format_instant

_QUIET = {"log_level": "2"}
_FOR_EVER = "-1"
_OLD = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Keeping:
    """What a topic does with the times of its messages; None where it has no such limit."""

    own_times: bool
    retention: timedelta | None
    before: timedelta | None
    after: timedelta | None


def create_topics(
    bootstrap: str | Mapping[str, str],
    names: Iterable[str],
    partitions: int = 2,
    settings: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """Create the topics that are missing, replicated as the cluster does it; answers which they were.

    `bootstrap` is an address, or the options of confluent-kafka's clients.
    """
    from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

    options = {"bootstrap.servers": bootstrap} if isinstance(bootstrap, str) else bootstrap
    admin = _admin(options)
    missing = sorted(set(names) - set(_listed(admin, options["bootstrap.servers"])))
    config = {"compression.type": "lz4", **(settings or {})}
    wanted = [NewTopic(name, num_partitions=partitions, replication_factor=-1, config=config) for name in missing]
    for name, created in admin.create_topics(wanted).items() if wanted else ():
        if error := created.exception():
            raise StackError(f"Cannot create topic {name!r}: {error}")
    return tuple(missing)


def topic_exists(options: Mapping[str, str], topic: str) -> bool:
    return topic in _listed(_admin(options), options["bootstrap.servers"])


def for_the_past(first: datetime) -> dict[str, str]:
    """Settings of a new topic that is to hold events since then: old ones must not be deleted for their age."""
    return {"retention.ms": _FOR_EVER} if datetime.now(UTC) - first > _OLD else {}


def require_kept(options: Mapping[str, str], topic: str, first: datetime, last: datetime) -> None:
    """Refuse events between these times, before one is sent, where the topic would change, refuse or delete them."""
    now, found = datetime.now(UTC), keeping(options, topic)
    problem = None
    if found.own_times:
        problem = "it stamps messages with the time at which they arrive (message.timestamp.type=LogAppendTime)"
    elif found.retention is not None and now - first >= found.retention:
        problem = f"it deletes what is older than {format_duration(found.retention)} (retention.ms)"
    elif found.before is not None and now - first > found.before:
        problem = f"it refuses times before {format_duration(found.before)} ago (message.timestamp.before.max.ms)"
    elif found.after is not None and last - now > found.after:
        problem = f"it refuses times later than in {format_duration(found.after)} (message.timestamp.after.max.ms)"
    if problem:
        raise InputError(
            f"Cannot send events of {format_instant(first)} .. {format_instant(last)} to topic {topic!r}: {problem}",
            hint="Change that setting of the topic, or name another topic with --set.",
        )


def keeping(options: Mapping[str, str], topic: str) -> Keeping:
    """What the topic's settings say."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

    admin = _admin(options)
    try:
        (asked,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        values = {name: entry.value for name, entry in asked.result(30).items()}
    except KafkaException as error:
        raise SourceError(f"Cannot read the settings of topic {topic!r}: {error.args[0]}") from None
    deletes = "delete" in (values.get("cleanup.policy") or "")
    return Keeping(
        own_times=values.get("message.timestamp.type") == "LogAppendTime",
        retention=_length(values.get("retention.ms")) if deletes else None,
        before=_length(values.get("message.timestamp.before.max.ms")),
        after=_length(values.get("message.timestamp.after.max.ms")),
    )


def _length(millis: str | None) -> timedelta | None:
    """A length of time in milliseconds; none where it is no limit, or longer than any calendar."""
    try:
        return timedelta(milliseconds=int(millis)) if millis is not None and int(millis) >= 0 else None
    except OverflowError:
        return None


def _admin(options: Mapping[str, str]) -> Any:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        return AdminClient({**_QUIET, **options})
    except KafkaException as error:
        files = [f"{name} ({options[name]})" for name in options if name.startswith("ssl.") and "location" in name]
        raise ConfigError(
            f"Cannot use the options of the cluster at {options['bootstrap.servers']}: {error.args[0].str()}"
            + (f"; its files: {', '.join(files)}" if files else ""),
            hint="Under clusters.….options: a login by user and password (sasl.jaas.config), certificates as PEM "
            "(ssl.truststore.location).",
        ) from None


def _listed(admin: Any, address: str) -> Iterable[str]:
    from confluent_kafka import KafkaException

    try:
        names: Iterable[str] = admin.list_topics(timeout=30).topics
    except KafkaException as error:
        raise SourceError(
            f"Cannot reach Kafka at {address}: {error.args[0].str()}",
            hint="Is the cluster up? For the local one: rekappa status",
        ) from None
    return names
