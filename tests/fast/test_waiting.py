"""What a live run says while its broker is away."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from rekappa.config.load import load
from rekappa.home import Home
from rekappa.runs.waiting import SLOW, Waits, asked_topics
from rekappa.sources import topics

ASKING = "Getting offsets from KafkaV2[Subscribe[clicks]]"


def test_it_is_told_once_that_it_waits_and_once_that_it_goes_on() -> None:
    now, said = [0.0], list[str]()
    waits = Waits(said.append, {"clicks": "kafka:9092"}, lambda: now[0])
    assert waits.look({"totals": ASKING}) is None
    now[0] = SLOW / 2
    assert waits.look({"totals": ASKING}) is None
    now[0] = SLOW
    told = "waiting for Kafka at kafka:9092: it does not say what is new in clicks"
    assert waits.look({"totals": ASKING}) == told
    assert waits.look({"totals": ASKING}) == told
    assert waits.look({"totals": "Waiting for next trigger"}) is None
    assert waits.look({"totals": ASKING}) is None, "counted anew"
    assert said == [f"query totals: {told}", "query totals: goes on"]


def test_only_questions_to_kafka_are_waits() -> None:
    assert asked_topics(ASKING) == "clicks"
    assert asked_topics("Getting offsets from KafkaV2[SubscribePattern[a.*]]") == "a.*"
    for message in ("Processing new data", "Waiting for data to arrive", "Getting offsets from MemoryStream[x]"):
        assert asked_topics(message) is None


def test_a_cluster_that_is_away_is_named_before_spark_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A port at which nobody listens, and one that takes connections but never answers."""
    monkeypatch.setattr(topics, "SOON", 0.1)
    monkeypatch.setattr(topics, "PATIENCE", 1.0)
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        (tmp_path / "rekappa.yaml").write_text(
            f"app: shop\nclusters:\n  main: {{bootstrap: '{address}'}}\nsources:\n  clicks:\n"
            "    schema: id BIGINT, at TIMESTAMP\n    event_time: at\n    candidates: {live: {type: kafka, topic: c}}\n"
            'sinks:\n  out: {type: "null"}\n'
        )
        config = load(tmp_path).config
        said: list[str] = []
        read = {"clicks": config.sources["clicks"].candidates["live"]}
        topics.require_topics(config, Home(tmp_path / ".rekappa"), read, said.append)
    assert said == [
        f"cluster 'main' ({address}) does not answer yet: waiting for it",
        f"cluster 'main' ({address}) has not answered within 1 s: trying on, until Kafka's own client gives up",
    ]
