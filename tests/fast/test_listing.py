"""The fast way to a table's files answers what PyIceberg's own planning does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import And, GreaterThanOrEqual, LessThan
from pyiceberg.transforms import IdentityTransform

from benchmarks import _large as large
from rekappa.iceberg import listing
from rekappa.iceberg.decode import AskedColumn, Between, FileEntry
from rekappa.iceberg.listing import all_files, listed_files
from rekappa.iceberg.splits import table_splits
from rekappa.iceberg.times import ColumnTimes
from rekappa.plan.model import OffsetBounds
from rekappa.timeline import Window, micros

if TYPE_CHECKING:
    from pyiceberg.table import Table

START = datetime(2026, 11, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
PLACE = pa.struct(
    [("kafka_ingestion_ts", pa.timestamp("us", "UTC")), ("partition", pa.int32()), ("offset", pa.int64()),
     ("region", pa.string())]
)  # fmt: skip


def events(hour: int, region: str, event_times: bool = True) -> pa.Table:
    """Ten events of one hour."""
    at = [START + hour * HOUR + timedelta(minutes=5 * number) for number in range(10)]
    places = [
        {"kafka_ingestion_ts": one, "partition": hour % 3, "offset": 10 * hour + number, "region": region}
        for number, one in enumerate(at)
    ]
    happened = [one - timedelta(minutes=1) if event_times else None for one in at]
    columns = {"id": pa.array(range(10), pa.int64()), "event_ts": pa.array(happened, pa.timestamp("us", "UTC"))}
    return pa.table({**columns, "__metadata__": pa.array(places, PLACE)})


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    root = tmp_path_factory.mktemp("lake")
    catalog = SqlCatalog("lake", uri=f"sqlite:///{root}/catalog.db", warehouse=f"file://{root}/warehouse")
    catalog.create_namespace("events")
    made = catalog.create_table("events.plays", schema=events(0, "eu").schema)
    made.append(events(0, "eu"))  # before it was partitioned
    with made.update_spec() as spec:
        spec.add_field("__metadata__.region", IdentityTransform(), "region")
    for hour in range(1, 6):
        made.append(events(hour, "eu" if hour % 2 else "us", event_times=hour != 5))
    made.delete("id = 3 and __metadata__.region = 'us'")  # rewrites files, whose entries stay as deleted ones
    return catalog.load_table("events.plays")


def paths(entries: Any) -> list[str]:
    return sorted(entry.path if isinstance(entry, FileEntry) else entry.file.file_path for entry in entries)


@pytest.mark.parametrize(
    ("few", "hours"),
    [(1_000, [(0, 6), (1, 2), (3, 5), (7, 9)]), (0, [(1, 3)])],
    ids=["in this process", "in others"],
)
def test_the_same_files_as_pyiceberg(
    table: Table, few: int, hours: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "FEW", few)
    assert paths(all_files(table)) == paths(table.scan().plan_files())
    name = "event_ts"
    column = table.schema().find_field(name).field_id
    for first, last in hours:
        low, high = START + first * HOUR, START + last * HOUR
        wanted: Any = And(GreaterThanOrEqual(name, low.isoformat()), LessThan(name, high.isoformat()))  # type: ignore[call-arg, arg-type]
        found = list(listed_files(table, wanted, (AskedColumn(column),), Between(0, micros(low), micros(high) - 1)))
        assert paths(found) == paths(table.scan(row_filter=wanted).plan_files())
        assert sum(one.rows for one in found) == sum(t.file.record_count for t in table.scan(wanted).plan_files())


def test_splits_have_bounds_regions_and_offsets(tmp_path: Path) -> None:
    """Of a table as the router makes it, partitioned by hour and region, with bounds of everything."""
    made = large.create(tmp_path, 600)
    low, high = large.START + 2 * HOUR, large.START + 3 * HOUR
    found = table_splits(made, "plays", Window(low, high), max_misalignment=HOUR)
    expected = [number for number in range(600) if low <= large.START + number * large.STEP < high]
    assert [one.low for one in found.splits] == [large.START + number * large.STEP for number in expected]
    assert {(one.region, one.rows, one.deletes) for one in found.splits} == {("eu", large.ROWS, False)}
    assert (found.files, found.skipped_files, found.wide_files) == (180, 420, 0)
    first = found.splits[0].positions
    assert first == OffsetBounds(0, 3, 360 * large.ROWS, 361 * large.ROWS - 1)
    assert table_splits(made, "plays", Window(low, high), ["us"], max_misalignment=HOUR).files == 0
    assert paths(all_files(made)) == paths(made.scan().plan_files())


def test_event_times_of_files_and_none_where_there_are_none(table: Table) -> None:
    times = ColumnTimes(table, "event_ts", "UTC")
    found = times.files(Window(START + HOUR, START + 9 * HOUR), ())
    minute = timedelta(minutes=1)
    # The file of the last hour has no event time at all: no window needs it.
    assert sorted(one.happened for one in found if one.happened) == [
        (micros(START + hour * HOUR - minute), micros(START + hour * HOUR + 44 * minute)) for hour in range(1, 5)
    ]
    assert len(found) == 4


def test_event_times_are_found_in_the_look_that_finds_the_splits(table: Table) -> None:
    times, absent = ColumnTimes(table, "event_ts", "UTC"), ColumnTimes(table, "not_there", "UTC")
    for first, last in ((0, 6), (1, 2), (4, 9)):
        reads, happened = Window(START + HOUR, START + 3 * HOUR), Window(START + first * HOUR, START + last * HOUR)
        beside = ((absent, happened), (times, happened))
        found = table_splits(table, "plays", reads, ["eu", "us"], max_misalignment=HOUR, beside=beside)
        alone = table_splits(table, "plays", reads, ["eu", "us"], max_misalignment=HOUR)
        assert (found.splits, found.skipped_files) == (alone.splits, alone.skipped_files)
        assert found.happened == ((), tuple(times.files(happened, ["eu", "us"])))


def test_a_table_without_a_commit_has_no_files(tmp_path: Path) -> None:
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("events")
    empty = catalog.create_table("events.none", schema=events(0, "eu").schema)
    assert list(all_files(empty)) == []
