"""The reference apps' jobs, tested alone: plain functions on plain DataFrames."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from http.server import ThreadingHTTPServer
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from pyspark import cloudpickle

from rekappa import Answers, Lookup

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples"
NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)


def load_example(name: str, module: str = "app") -> ModuleType:
    """A file of an example as a module; what it defines is sent to Spark's workers, which can't import it."""
    spec = spec_from_file_location(f"example_{name}_{module}", EXAMPLES / name / f"{module}.py")
    assert spec is not None
    assert spec.loader is not None
    made = module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    cloudpickle.register_pickle_by_value(made)  # type: ignore[no-untyped-call]
    return made


def at(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def test_a_play_counts_for_its_impression_within_ten_minutes(spark: SparkSession) -> None:
    app = load_example("take_rate")
    shown = [(1, 7, 3, at(0)), (2, 7, 3, at(1)), (3, 8, 3, at(2)), (4, 8, 5, at(30))]
    played = [(10, 1, 7, 3, at(0)), (20, 2, 7, 3, at(11)), (30, 3, 8, 3, at(11.9))]
    impressions = spark.createDataFrame(
        shown, "impression_id BIGINT, account_id BIGINT, show_id BIGINT, event_ts TIMESTAMP"
    )
    playbacks = spark.createDataFrame(
        played, "playback_id BIGINT, impression_id BIGINT, account_id BIGINT, show_id BIGINT, event_ts TIMESTAMP"
    )
    pairs = {row.impression_id: row.playback_id for row in app.plays_per_impression(impressions, playbacks).collect()}
    assert pairs == {1: 10, 2: None, 3: 30, 4: None}
    rates = {(row.show_id, row.impressions): row.take_rate for row in app.take_rate(impressions, playbacks).collect()}
    assert rates == {(3, 3): 2 / 3, (5, 1): 0.0}


def test_sessions_are_merged_in_whatever_order_their_events_come() -> None:
    merge = load_example("sessions").merge
    minute = 60_000_000
    spans = [(at * minute, at * minute, 1) for at in (0, 4, 9, 15, 19)]
    assert merge(spans) == merge(spans[::-1]) == [(0, 9 * minute, 3), (15 * minute, 19 * minute, 2)]
    assert merge([*merge([spans[0], spans[2]]), spans[1]]) == [(0, 9 * minute, 3)]


def test_a_play_earns_what_held_when_it_was_played(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    service = load_example("royalties", "service")
    server = ThreadingHTTPServer(("127.0.0.1", 0), service.Risk)
    Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("RISK_URL", f"http://127.0.0.1:{server.server_address[1]}/")
    app = load_example("royalties")
    schema = "playback_id BIGINT, impression_id BIGINT, account_id BIGINT, show_id BIGINT, event_ts TIMESTAMP"
    plays = spark.createDataFrame([(n, n, n, 1, at(n)) for n in range(8)], schema).coalesce(1)
    for cents, since in ((5, at(0)), (9, at(4))):
        load_example("royalties", "rates").set_rate(spark, "lake.royalties_test.rates", cents, since.isoformat())
    rates = Lookup.of(spark.table("lake.royalties_test.rates"), "show_id", "since")
    found = app.royalties(plays, rates, Answers.of("account_id", "suspicious BOOLEAN")).collect()
    server.shutdown()
    server.server_close()
    assert {row.playback_id: row.cents for row in found} == {n: 5 if n < 4 else 9 for n in range(8)}
    assert sum(row.suspicious for row in found) == 2, "of the first eight answers the first and the last"
    assert all(row.earned == (0 if row.suspicious else row.cents) for row in found)
