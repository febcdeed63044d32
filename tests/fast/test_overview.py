"""The archive over time and its dead letters, from a table's metadata and without Spark."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.transforms import IdentityTransform

from rekappa.archive.overview import COLUMNS, spread
from rekappa.cli.main import main
from rekappa.home import Home
from rekappa.plan.model import Split
from rekappa.timeline import Window

START = datetime(2026, 11, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
CONFIG = """\
app: shop
sources:
  clicks:
    schema: id BIGINT, event_ts TIMESTAMP
    event_time: event_ts
    candidates:
      live: {type: kafka, topic: clicks}
      backfill: {type: iceberg, table: lake.events.clicks}
sinks:
  totals: {type: iceberg, table: lake.shop.totals, event_time: event_ts}
"""
PLACE = pa.struct(
    [("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()),
     ("kafka_ingestion_ts", pa.timestamp("us", "UTC")), ("region", pa.string())]
)  # fmt: skip


def places(hour: float, count: int, region: str = "eu") -> list[dict[str, object]]:
    return [
        {"topic": "clicks", "partition": 0, "offset": n, "kafka_ingestion_ts": START + hour * HOUR + n * HOUR / count,
         "region": region}
        for n in range(count)
    ]  # fmt: skip


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = Home(tmp_path / ".rekappa").made()
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "rekappa.yaml").write_text(CONFIG)
    (tmp_path / "shop" / "app.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REKAPPA_HOME", str(home.root))
    catalog = SqlCatalog("lake", uri=f"sqlite:///{home.catalog}", warehouse=f"file://{home.warehouse}")
    for name in ("events", "shop"):
        catalog.create_namespace(name)
    rows = [pa.table({"id": range(60), "__metadata__": pa.array(places(hour, 60, region), PLACE)})
            for hour, region in ((0, "eu"), (2, "eu"), (3, "us"))]  # fmt: skip
    events = catalog.create_table("events.clicks", schema=rows[0].schema)
    with events.update_spec() as spec:
        spec.add_field("__metadata__.region", IdentityTransform(), "region")
    for one in rows:
        events.append(one)
    columns = {"source": ["clicks"] * 3, "reason": ["no JSON"] * 3, "archived": [False] * 3}
    letters = pa.table({**columns, "value": [b"<b>\xff", b"{", None], "__metadata__": pa.array(places(1, 3), PLACE)})
    catalog.create_table("shop.dead_letters", schema=letters.schema).append(letters)
    return tmp_path


def told(*words: str) -> list[dict[str, object]]:
    done = CliRunner().invoke(main, [*words, "--json"])
    assert done.exit_code == 0, done.output
    found: list[dict[str, object]] = json.loads(done.stdout)
    return found


def test_rows_and_dead_letters_over_time(shop: Path) -> None:
    (found,) = told("archive", "overview", "shop")
    assert (found["source"], found["files"]) == ("clicks", 3)
    assert (found["start"], found["end"]) == ("2026-11-01T00:00Z", "2026-11-01T04:00Z")
    rows, dead = found["rows"], found["dead"]
    assert isinstance(rows, dict)
    assert isinstance(dead, list)
    assert sum(dead) == 3
    assert [place * 4 // COLUMNS for place, count in enumerate(dead) if count] == [1, 1, 1]
    quarters = {region: [sum(cells[n * 60 : n * 60 + 60]) for n in range(4)] for region, cells in rows.items()}
    assert [round(count / 60) for count in quarters["eu"]] == [1, 0, 1, 0]
    assert [round(count / 60) for count in quarters["us"]] == [0, 0, 0, 1]
    text = CliRunner().invoke(main, ["archive", "overview", "shop"]).stdout
    assert "dead letters" in text


def test_a_dead_letter_is_read(shop: Path) -> None:
    found = told("archive", "dead", "shop", "--limit", "2")
    assert [(one["offset"], one["value"], one["text"], one["size"]) for one in found] == [
        (2, "", "", 0), (1, "7b", "{", 1),
    ]  # fmt: skip
    first = told("archive", "dead", "shop")[-1]
    assert (first["value"], first["text"], first["reason"]) == ("3c623eff", "<b>\ufffd", "no JSON")
    assert first["ingested"] == "2026-11-01T01:00Z"


def test_an_archive_that_is_not_there_is_empty(shop: Path) -> None:
    (found,) = told("archive", "overview", "shop", "--set", "sources.clicks.candidates.backfill.table=lake.events.none")
    assert (found["files"], found["rows"], found["start"]) == (0, {}, None)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 10_000), st.integers(-90, 300), st.integers(0, 200), st.sampled_from(["eu", "us", ""])
        ),
        max_size=8,
    )
)
def test_every_row_that_lies_in_the_stretch_is_counted_once(files: list[tuple[int, int, int, str]]) -> None:
    shown = Window(START, START + 3 * HOUR)
    splits = [
        Split("s", "p", rows, 1, START + timedelta(minutes=at), START + timedelta(minutes=at + long), region=region)
        for rows, at, long, region in files
    ]
    found = spread(splits, shown)
    inside = [one for one in splits if shown.start <= one.low and one.high < shown.end]
    total, every = sum(map(sum, found.values())), sum(one.rows for one in splits)
    regions = 3  # the sum of each is rounded
    assert sum(one.rows for one in inside) - regions <= total <= every + regions
