"""What tests share: one project folder, one Spark and one broker per test run, each started when first asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from rekappa.home import Home
from rekappa.storage.location import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rekappa.config.model import AppConfig


# No example is too slow: machines differ, and are shared.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

# Tests write to stores of their own, never to that of the team of whoever runs them.
for name in ("REKAPPA_STORE", "REKAPPA_STORAGE"):
    os.environ.pop(name, None)

# Tests ask many short questions: every JVM is done sooner without the optimising compiler (a command takes 22 s of
# processor time instead of 38, a file of tests 40 instead of 70). Java then keeps 48 MB for compiled code, which a
# session of Spark fills in some minutes: to throw code out and compile it anew took a third of its time.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=512m")

# The servers that sinks write to, and run stores: fixtures of several test modules.
pytest_plugins = ["sink_servers", "stores"]


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """One project folder for the whole test run: the broker and the catalog live here."""
    root: Path = tmp_path_factory.mktemp("project") / ".rekappa"
    root.mkdir()
    return Home(root)


@pytest.fixture
def location(tmp_path: Path) -> Location:
    """An empty folder as storage names it."""
    return Location.local(tmp_path)


@pytest.fixture(scope="session")
def bare_config() -> AppConfig:
    """The least an app can say: enough to start Spark with the local catalog."""
    from rekappa.config.model import AppConfig

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
    """A session with the catalog `lake`."""
    from rekappa.spark.session import open_session

    # Two workers of pytest share the machine with servers: what lives after a collection is about 1 GB.
    settings = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "4g"}
    session = open_session(bare_config, "live", home, **settings)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker(home: Home) -> Iterator[str]:
    """The address of a real Kafka broker."""
    from rekappa.stack.broker import down, up

    yield up(home).bootstrap
    down(home)
