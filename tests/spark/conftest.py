"""Real servers, each started once per test run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from rekappa.config.model import AppConfig
from rekappa.home import Home
from rekappa.spark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def bare_config() -> AppConfig:
    """The least an app can say: enough to start Spark with the local catalog."""
    return AppConfig.model_validate(
        {
            "app": "bare",
            "sources": {
                "events": {
                    "schema": "id BIGINT, event_ts TIMESTAMP",
                    "event_time": "event_ts",
                    "candidates": {"live": {"type": "kafka", "topic": "events"}},
                }
            },
            "sinks": {"out": {"type": "null"}},
        }
    )


@pytest.fixture(scope="session")
def spark(bare_config: AppConfig, home: Home) -> Iterator[SparkSession]:
    session = open_session(bare_config, "live", home, **{"spark.sql.shuffle.partitions": "2"})
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker(home: Home) -> Iterator[str]:
    """The address of a real Kafka broker."""
    from rekappa.stack.broker import down, up

    yield up(home).bootstrap
    down(home)
