"""Restart points from listings of files: Spark's rules, over listings that something was purged from or lost."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from rekappa.checkpoints.points import CheckpointFile, last_restorable, nearest, needed_files, restart_points

START = datetime(2026, 11, 1, tzinfo=UTC)
BATCHES = 8
STORES = ("state/0/0", "state/0/1", "state/1/0/left", "state/1/1/left", "state/1/0/right", "state/1/1/right")
DESCRIBED = ("state/0/_metadata/metadata", "state/0/0/_metadata/schema", "state/1/0/left/_metadata/schema")
Files = dict[str, CheckpointFile]


def listing(names: set[str]) -> Files:
    def changed(name: str) -> datetime:
        last = name.rpartition("/")[2]
        return START + timedelta(minutes=int(last) if last.isdigit() else 0)

    return {name: CheckpointFile(name, 10, changed(name)) for name in names}


@st.composite
def checkpoints(draw: st.DrawFn) -> tuple[set[str], Mapping[str, tuple[str, ...]]]:
    """A checkpoint as Spark leaves it, and what its RocksDB snapshots name."""
    kind = draw(st.sampled_from(["memory", "rocksdb", "changelog"]))
    every = 1 if kind == "rocksdb" else draw(st.integers(2, 5))
    names = {f"{log}/{batch}" for log in ("offsets", "commits") for batch in range(BATCHES)}
    names |= {"metadata", "sources/0/0", f"offsets/{BATCHES}", *DESCRIBED}
    named: dict[str, tuple[str, ...]] = {}
    for store in STORES:
        for version in range(1, BATCHES + 2):
            if kind != "rocksdb":
                names.add(f"{store}/{version}.{'delta' if kind == 'memory' else 'changelog'}")
            if version % every == 0:
                snapshot = f"{store}/{version}.{'snapshot' if kind == 'memory' else 'zip'}"
                names.add(snapshot)
                if kind != "memory":
                    named[snapshot] = tuple(f"{at}.sst" for at in range(version // every))
                    names |= {f"{store}/SSTs/{one}" for one in named[snapshot]}
    names |= {f"{folder}/.{last}.crc" for folder, _, last in (name.rpartition("/") for name in names) if folder}
    return names, named


def is_restorable(names: set[str], named: Mapping[str, tuple[str, ...]], batch: int) -> bool:
    """The rule again, said another way."""

    def whole(store: str, version: int) -> bool:
        if version == 0 or f"{store}/{version}.snapshot" in names:
            return True
        if f"{store}/{version}.zip" in names:
            return all(f"{store}/SSTs/{one}" in names for one in named[f"{store}/{version}.zip"])
        changed = {f"{store}/{version}.delta", f"{store}/{version}.changelog"} & names
        return bool(changed) and whole(store, version - 1)

    logs = {f"commits/{batch}", f"offsets/{batch}"} | ({f"offsets/{batch - 1}"} if batch else set())
    return logs <= names and all(whole(store, batch + 1) for store in STORES)


@given(made=checkpoints(), data=st.data())
def test_a_point_is_restorable_exactly_when_nothing_that_it_needs_is_gone(
    made: tuple[set[str], Mapping[str, tuple[str, ...]]], data: st.DataObject
) -> None:
    names, named = made
    removable = sorted(name for name in names if not name.endswith(".crc"))
    left = names - data.draw(st.sets(st.sampled_from(removable), max_size=6))
    points = restart_points(listing(left), lambda snapshot: named[snapshot])
    assert [point.batch for point in points] == [b for b in range(BATCHES) if f"commits/{b}" in left]
    for point in points:
        assert point.restorable == is_restorable(left, named, point.batch), point
        assert point.lacking == () or set(point.lacking).isdisjoint(left)


@given(made=checkpoints(), batch=st.integers(0, BATCHES - 1), data=st.data())
def test_the_needed_files_are_enough_and_each_of_them_is_needed(
    made: tuple[set[str], Mapping[str, tuple[str, ...]]], batch: int, data: st.DataObject
) -> None:
    names, named = made
    chosen = set(needed_files(listing(names), batch, lambda snapshot: named[snapshot]))
    assert chosen <= names
    assert is_restorable(chosen, named, batch)
    assert {"sources/0/0", *DESCRIBED} <= chosen
    assert "metadata" not in chosen, "it holds the query's id"
    later = {f"{log}/{n}" for log in ("offsets", "commits") for n in range(batch + 1, BATCHES + 1)}
    later |= {f"{store}/{v}.{kind}" for store in STORES for v in range(batch + 2, BATCHES + 2)
              for kind in ("delta", "snapshot", "zip", "changelog")}  # fmt: skip
    assert chosen.isdisjoint(later), "what is later than the point corrupts a restart"
    pieces = [
        one for one in sorted(chosen) if not one.endswith(".crc") and "_metadata" not in one and "sources" not in one
    ]
    gone = data.draw(st.sampled_from(pieces))
    (point,) = restart_points(listing(chosen - {gone} | {f"commits/{batch}"}), lambda snapshot: named[snapshot])
    assert point.restorable == (gone == f"commits/{batch}")


def test_a_store_that_is_not_there_at_all_and_one_of_another_format_are_told() -> None:
    names = {"commits/0", "offsets/0", "state/0/0/1.delta", "state/0/1/1.delta", "state/1/0/1.delta"}
    (point,) = restart_points(listing(names))
    assert point.lacking == ("state/1/1",)
    (newer,) = restart_points(listing({"commits/0", "offsets/0", "state/0/0/1_ab-cd.zip"}))
    assert newer.lacking == ("state/0/0/1_ab-cd.zip (of a newer format)",)
    for left in ("state/1/_metadata/metadata", "state/1/0/SSTs/one.sst"):
        (emptied,) = restart_points(listing({"commits/0", "offsets/0", "state/0/0/1.delta", left}))
        assert emptied.lacking == ("state/1",)
    (stateless,) = restart_points(listing({"commits/0", "offsets/0"}))
    assert stateless.restorable


def test_the_nearest_points_are_those_around() -> None:
    names = {f"{log}/{n}" for log in ("offsets", "commits") for n in range(10)} - {"offsets/4"}
    points = restart_points(listing(names))
    assert [one.batch for one in points if not one.restorable] == [4, 5]
    assert points[4].lacking == points[5].lacking == ("offsets/4",)
    assert [one.batch for one in nearest(points, 4)] == [3, 6]
    assert [one.batch for one in nearest(points, 0)] == [1]
    found = last_restorable(points, START + timedelta(minutes=5))
    assert found is not None
    assert found.batch == 3
    assert last_restorable(points, START - timedelta(minutes=1)) is None
