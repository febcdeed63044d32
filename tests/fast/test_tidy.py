"""What a backfill removes of earlier ones: when it looks at all. What goes then is the business of `clean`."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from rekappa.config.load import Loaded, load
from rekappa.home import Home
from rekappa.publish import tidy as module
from rekappa.publish.cleaned import Cleaned
from rekappa.publish.tidy import tidy
from rekappa.store.record import Kind, Run, State
from rekappa.store.runs import RunStore

CONFIG = """
app: shop
sources:
  clicks:
    schema: id BIGINT, event_ts TIMESTAMP
    event_time: event_ts
    candidates:
      live: {type: kafka, topic: clicks}
sinks:
  seen: {type: "null"}
"""
GONE = Cleaned("old", "backfill_1", "seen", 1, 1, datetime(2026, 11, 1, tzinfo=UTC), None)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loaded:
    (tmp_path / "rekappa.yaml").write_text(CONFIG)
    kept = replace(GONE, name="young", kept="younger than the retention")
    monkeypatch.setattr(module, "clean", lambda *asked: [kept, GONE])
    return load(tmp_path)


def run(home: Home, number: int, days: int, state: State = State.FINISHED) -> None:
    at = datetime.now(UTC) - timedelta(days=days)
    RunStore.open(home).create(Run(f"backfill_{number}", "shop", Kind.BACKFILL, "", state, created=at, ended=at))


def test_once_a_day_if_a_run_is_old_enough(shop: Loaded) -> None:
    home, looked = Home(shop.folder / ".rekappa"), cast("Any", tidy)
    assert looked(None, shop, home) == [], "nothing has run"
    run(home, 1, days=1)
    run(home, 2, days=80, state=State.FAILED)
    assert looked(None, shop, home) == [], "none is old, or it can be resumed"
    run(home, 3, days=8)
    assert looked(None, shop, home) == [GONE]
    assert looked(None, shop, home) == []
    yesterday = (datetime.now(UTC) - timedelta(hours=25)).timestamp()
    os.utime((home.storage / "cleaned" / "shop").path, (yesterday, yesterday))
    assert looked(None, shop, home) == [GONE]


def test_runs_that_nobody_has_heard_of_count_however_they_ended(shop: Loaded) -> None:
    home, looked = Home(shop.folder / ".rekappa"), cast("Any", tidy)
    run(home, 1, days=91, state=State.FAILED)
    assert looked(None, shop, home) == [GONE]


def test_not_by_an_app_that_writes_elsewhere(shop: Loaded) -> None:
    home, looked = Home(shop.folder / ".rekappa"), cast("Any", tidy)
    run(home, 1, days=8)
    assert looked(None, replace(shop, elsewhere={"seen": "test"}), home) == []
    assert looked(None, shop, home) == [GONE]
