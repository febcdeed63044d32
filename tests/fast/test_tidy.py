"""What a backfill removes of earlier ones: when it looks at all. What goes then is the business of `clean`."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rekappa.config.load import Loaded, load
from rekappa.home import Home
from rekappa.publish import tidy as module
from rekappa.publish.cleaned import Cleaned
from rekappa.publish.tidy import tidy

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


def test_once_a_day_and_says_what_went(shop: Loaded) -> None:
    home, spark = Home(shop.folder / ".rekappa"), None
    looked: Any = tidy
    assert looked(spark, shop, home) == [GONE]
    assert looked(spark, shop, home) == []
    yesterday = (datetime.now(UTC) - timedelta(hours=25)).timestamp()
    os.utime((home.storage / "cleaned" / "shop").path, (yesterday, yesterday))
    assert looked(spark, shop, home) == [GONE]


def test_not_by_an_app_that_writes_elsewhere(shop: Loaded) -> None:
    home = Home(shop.folder / ".rekappa")
    looked: Any = tidy
    assert looked(None, replace(shop, elsewhere={"seen": "test"}), home) == []
    assert looked(None, shop, home) == [GONE]
