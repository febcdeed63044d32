"""Whether the topics that are to be read are there: asked before Spark starts, which takes minutes to say that not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from threading import Timer

from rekappa.config.model import AppConfig, Candidate, KafkaCandidate
from rekappa.errors import RunError
from rekappa.home import Home
from rekappa.sources.kafka import bootstrap, client_options

PATIENCE = 10.0
"""Seconds for a cluster to answer. One that does not is left to Spark, which may know it by other settings."""
SOON = 2.0
"""Seconds after which it is said what is waited for."""


def require_topics(
    config: AppConfig, home: Home, read: Mapping[str, Candidate], tell: Callable[[str], None] = lambda text: None
) -> None:
    """Refuse a source whose topic its cluster says it does not have. `read` are sources by name, as candidates.

    `tell` is told of a cluster that does not answer soon, and of one that does not answer at all."""
    for source, candidate in read.items():
        if not isinstance(candidate, KafkaCandidate):
            continue
        for name in candidate.cluster:
            topic, address = config.cluster(name).topic(candidate.topic), bootstrap(config, name, home)
            if _is_missing(topic, client_options(config, name, home), partial(_tell, tell, name, address)):
                raise RunError(
                    f"Cannot read source {source!r}: topic {topic!r} does not exist on cluster {name!r} ({address})",
                    hint=f"Create it by its first events, `rekappa produce {config.app} {source} FILE`, or empty: "
                    f"kafka-topics.sh --bootstrap-server {address} --create --topic {topic}",
                )


def topic_ids(config: AppConfig, home: Home, read: Mapping[str, Candidate]) -> dict[str, str]:
    """What Kafka itself knows each topic by, whatever its name: another one, if it was deleted and created anew.

    By "cluster/topic"; a topic that is not there, or whose cluster does not say, is left out.
    """
    named = {
        (name, config.cluster(name).topic(one.topic))
        for one in read.values()
        if isinstance(one, KafkaCandidate)
        for name in one.cluster
    }
    found = {f"{name}/{topic}": topic_id(client_options(config, name, home), topic) for name, topic in sorted(named)}
    return {name: known for name, known in found.items() if known}


def topic_id(options: Mapping[str, str], topic: str) -> str | None:
    """What Kafka itself knows one topic by; empty if it is not there, None if its cluster does not say."""
    from confluent_kafka import KafkaError, KafkaException, TopicCollection
    from confluent_kafka.admin import AdminClient

    try:
        admin = AdminClient({**options, "log_level": "2"})
        asked = admin.describe_topics(TopicCollection([topic]), request_timeout=PATIENCE)
        return str(asked[topic].result(PATIENCE).topic_id)
    except KafkaException as error:
        return "" if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART else None
    except TimeoutError:
        return None


def _tell(tell: Callable[[str], None], cluster: str, address: str, text: str) -> None:
    tell(f"cluster {cluster!r} ({address}) {text}")


def _is_missing(topic: str, options: Mapping[str, str], tell: Callable[[str], None]) -> bool:
    from confluent_kafka import Consumer, KafkaError, KafkaException

    try:
        consumer = Consumer({**options, "group.id": "rekappa", "log_level": 2})
    except KafkaException:
        return False
    waiting = Timer(SOON, tell, ("does not answer yet: waiting for it",))
    waiting.start()
    try:
        error = consumer.list_topics(topic, timeout=PATIENCE).topics[topic].error
    except KafkaException:
        tell(f"has not answered within {PATIENCE:g} s: trying on, until Kafka's own client gives up")
        return False
    finally:
        waiting.cancel()
        consumer.close()
    return error is not None and error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
