"""Which snapshots go, and that nothing which is read from them is lost with them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rekappa.config.load import load
from rekappa.iceberg.retention import (
    AGE,
    AT_ONCE,
    COMMITTED,
    COMPLETE,
    PUBLICATION,
    WRITERS,
    Leave,
    kept_for,
    last_batch_of,
    leaving,
    line,
    newest_writer_of,
)
from rekappa.runs.live import _retention
from rekappa.spark.session import DEFAULTS
from rekappa.store.pins import NEEDED, pinned
from rekappa.store.record import Kind, Run, State

START = datetime(2026, 11, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def table(writers: list[str | None], **more: Any) -> dict[str, Any]:
    """A table with a commit a minute, each by one of the writers; None is somebody who leaves no stamp."""
    counts: dict[str, int] = {}
    snapshots = []
    for number, writer in enumerate(writers, start=1):
        summary = {"operation": "append"}
        if writer is not None:
            counts[writer] = counts.get(writer, -1) + 1
            summary |= {"rekappa.writer": writer, "rekappa.batch": str(counts[writer])}
            summary[f"{COMPLETE}eu"] = (START + number * MINUTE).isoformat()
        made = {"snapshot-id": number, "sequence-number": number, "timestamp-ms": at(number), "summary": summary}
        snapshots.append({**made, "parent-snapshot-id": number - 1} if number > 1 else made)
    return {"snapshots": snapshots, "current-snapshot-id": len(writers) or None, "properties": {}, "refs": {}, **more}


def at(number: int) -> int:
    return int((START + number * MINUTE).timestamp() * 1000)


def after(metadata: dict[str, Any], gone: Leave) -> dict[str, Any]:
    """The table once they are gone."""
    kept = [one for one in metadata["snapshots"] if one["snapshot-id"] not in gone.snapshots]
    properties = {key: value for key, value in metadata["properties"].items() if key not in gone.drop}
    return {**metadata, "snapshots": kept, "properties": {**properties, **gone.note}}


def complete(metadata: dict[str, Any]) -> str:
    told = [one["summary"].get(f"{COMPLETE}eu", "") for one in line(metadata)]
    return str(max([*told, metadata["properties"].get(f"{COMPLETE}eu", "")]))


@given(
    st.lists(st.sampled_from([None, "a", "b", "c"]), max_size=30),
    st.lists(st.tuples(st.integers(0, 40), st.sets(st.integers(1, 30), max_size=4)), max_size=5),
)
def test_whatever_goes_and_in_which_steps_the_same_is_known(
    writers: list[str | None], steps: list[tuple[int, set[int]]]
) -> None:
    whole = table(writers)
    now = whole
    for minutes, pins in steps:
        gone = leaving(now, START + minutes * MINUTE, pins)
        assert not set(gone.snapshots) & {whole["current-snapshot-id"], *pins}
        assert all(number < minutes for number in gone.snapshots)
        now = after(now, gone)
        assert not leaving(now, START + minutes * MINUTE, pins).snapshots
        assert newest_writer_of(now) == newest_writer_of(whole)
        assert complete(now) == complete(whole)
        for writer in ("a", "b", "c", "nobody"):
            assert last_batch_of(now, writer) == last_batch_of(whole, writer)


def test_what_branches_tags_and_publications_name_stays() -> None:
    refs = {"main": {"snapshot-id": 9}, "rekappa_before_x": {"snapshot-id": 2}, "audit": {"snapshot-id": 4}}
    told = {f"{PUBLICATION}x": json.dumps({"state": "rekappa.publish", "snapshot": 3, "parent": 2, "at": "…"})}
    found = leaving(table(["a"] * 9, refs=refs, properties=told), START + timedelta(hours=1), pinned={6})
    assert found.snapshots == (1, 5, 7, 8)


def test_a_rolled_back_batch_is_not_remembered_as_written() -> None:
    rolled = {**table(["a", "a", "a"]), "current-snapshot-id": 2}
    found = leaving(rolled, START + timedelta(hours=1))
    assert found.snapshots == (1, 3)
    assert last_batch_of(after(rolled, found), "a") == 1


def test_a_neglected_table_is_caught_up_with_in_steps() -> None:
    neglected = table(["a"] * (AT_ONCE + 10))
    first = leaving(neglected, START + timedelta(days=9))
    assert (len(first.snapshots), first.more) == (AT_ONCE, True)
    then = leaving(after(neglected, first), START + timedelta(days=9))
    assert (len(then.snapshots), then.more) == (9, False)


def test_only_so_many_writers_are_remembered_the_newest() -> None:
    many = table([f"w{number}" for number in range(WRITERS + 20)])
    now = after(many, leaving(many, START + timedelta(days=1)))
    notes = [key for key in now["properties"] if key.startswith(COMMITTED)]
    assert len(notes) == WRITERS
    assert last_batch_of(now, "w0") is None
    assert last_batch_of(now, f"w{WRITERS}") == 0
    again = {**now, "properties": {**now["properties"], f"{COMMITTED}older": '{"batch": 1, "sequence": 0}'}}
    more = {**table(["x"] * 3), "properties": again["properties"]}
    assert f"{COMMITTED}older" in leaving(more, START + timedelta(days=1)).drop


def test_a_table_that_does_not_say_keeps_everything() -> None:
    assert kept_for(table(["a"])) is None
    assert kept_for(table(["a"], properties={AGE: "60000"})) == MINUTE
    assert leaving({"properties": {}}, START) == Leave()


def test_a_backfill_pins_what_it_reads_and_is_compared_with_until_nobody_wants_it() -> None:
    spec = {"archive": {"lake.e.x": 1, "lake.e.y": None}, "baseline": {"snapshots": {"out": 2, "new": None}}}
    made = Run("backfill_1", "app", Kind.BACKFILL, "", State.FINISHED, created=START, ended=START, spec=spec)
    assert pinned([made], START + NEEDED - MINUTE) == {1, 2}
    assert pinned([made], START + NEEDED) == set()
    going = Run("backfill_2", "app", Kind.BACKFILL, "", State.RUNNING, created=START, spec=spec)
    assert pinned([going], START + 3 * NEEDED) == {1, 2}
    gone = Run("backfill_3", "app", Kind.BACKFILL, "", State.CANCELLED, created=START, spec=spec)
    assert pinned([gone], START) == set()
    assert pinned([Run("backfill_0", "app", Kind.BACKFILL, "", created=START)], START) == set()


def test_spark_keeps_an_hour_of_a_live_run_unless_told_otherwise_and_its_own_default_of_others(tmp_path: Path) -> None:
    config = (
        "app: a\nsources: {e: {schema: at TIMESTAMP, event_time: at, candidates: {live: {type: kafka, topic: t}}}}\n"
    )
    (tmp_path / "rekappa.yaml").write_text(config + 'sinks: {o: {type: "null"}}\n')
    key = "spark.sql.streaming.minBatchesToRetain"
    assert _retention(load(tmp_path)) == {key: "360"}
    assert _retention(load(tmp_path, overrides=("profiles.live.trigger=1 minute",))) == {key: "100"}
    assert key not in DEFAULTS, "routers and replays keep what Spark does, or say so themselves"
    assert _retention(load(tmp_path, overrides=(f"profiles.live.spark.{key}=1000",))) == {}
