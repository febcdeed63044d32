"""A live job that goes back: forked at a point, its sinks with it, and run on with changed code."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from project import wait_until
from rewinding import EACH, JOBS, Story, stopped_when, totals

from rekappa.checkpoints.files import listed, named_in
from rekappa.checkpoints.points import restart_points
from rekappa.checkpoints.savepoints import take
from rekappa.errors import RunError
from rekappa.home import Home
from rekappa.iceberg.commits import load_table
from rekappa.produce.topics import create_topics
from rekappa.recovery.choose import ToBatch, ToSavepoint
from rekappa.recovery.resets.tables import UpsertReset
from rekappa.recovery.rewind import resume, rewind
from rekappa.spark.offsetlog import last_committed
from rekappa.storage.location import Location
from rekappa.store.record import State

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STATE = "org.apache.spark.sql.execution.streaming.state"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
ROCKSDB = {PROVIDER: f"{STATE}.RocksDBStateStoreProvider"}
OFTEN = {
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
    "spark.sql.streaming.stateStore.maintenanceInterval": "500ms",
}
STORES = {"in memory": OFTEN, "RocksDB": {**OFTEN, **ROCKSDB}, "changelog": {**OFTEN, **ROCKSDB, CHANGELOG: "true"}}
Tell = Callable[..., Story]


@pytest.fixture
def tell(tmp_path: Path, home: Home, broker: str, spark: SparkSession) -> Iterator[Tell]:
    """Begins a story; what it has set of Spark's is taken back."""
    used: list[str] = []

    def made(*sinks: str, settings: Mapping[str, str] | None = None) -> Story:
        used.extend(settings or {})
        return Story.of(spark, tmp_path, home, broker, sinks, settings)

    yield made
    for key in used:
        spark.conf.unset(key)


@pytest.mark.parametrize("store", STORES)
def test_each_store_goes_back_and_on_with_other_code(tell: Tell, store: str) -> None:
    """Aggregates in each store; custom state in RocksDB, where alone Spark has it."""
    story = tell("totals", "running", settings=STORES[store])
    story.produce(range(30))
    first = story.run(1, range(30))
    story.check(range(30))
    before, state = story.checkpoints, story.state
    assert len(state) > 10
    story.code(10)
    done = story.rewind(ToBatch(1))
    assert {one.reset.sink: (one.reset.removed, one.reset.restored) for one in done.queries} == {
        "totals": (3, 3), "running": (9, 0),
    }  # fmt: skip
    story.check(range(12))
    second = story.run(10, range(12, 30))
    assert second.id == done.operation
    story.check(range(30))
    assert story.every_batch(second.id) == {
        2 + at: totals(story.weights, range(12 + EACH * (at + 1))) for at in range(3)
    }
    assert story.checkpoints.items() >= before.items(), "the original is as it was, byte for byte"
    assert all(not file.exists() or file.read_bytes() == content for file, content in state.items())
    assert [batch.number for batch in story.store.batches(second.id, "totals")] == list(range(-1, 5))
    assert story.store.run(first.id).state is State.ABANDONED


def test_as_a_person_does_it(tell: Tell) -> None:
    """Every way to restart, through the command line; before it, what is refused, with exit code 2."""
    story = tell("seen", "totals")
    story.produce(range(18))
    first = story.run(1, range(18))
    story.spark.sql(f"INSERT INTO {story.tables['totals']} VALUES ('z', 1, 1)")
    story.spark.sql(f"INSERT INTO {story.tables['seen']} VALUES (-1, 'z', -1)")
    story.strangers.update([(-1, "z", -1)])
    refusals(story)

    # A time: each query goes on after its last batch by then. What is shown is what happens, and what is recorded.
    second = [one for sink in story.sinks for one in story.store.batches(first.id, sink) if one.number == 1]
    moment = max(one.committed for one in second) + timedelta(milliseconds=1)
    story.code(2)
    before, state = story.everything(), story.state
    shown = story.told("rewind", "--to", moment.isoformat(), "--dry-run")
    assert story.everything() == before
    cuts = {one["query"]: EACH * (one["batch"] + 1) for one in shown["queries"]}
    assert min(cuts.values()) == 12
    assert [one["reset"]["removed"] for one in shown["queries"] if one["query"] == "seen"] == [18 - cuts["seen"]]
    done = story.told("rewind", "--to", moment.isoformat(), "--yes")
    assert without_names(done) == without_names(shown)
    assert without_names(story.store.run(done["operation"]).spec["rewind"]) == without_names(shown)
    for sink, cut in cuts.items():
        assert story.rows(sink) == story.truth(sink, range(cut)), sink
    assert story.checkpoints.items() >= before["files"].items()
    assert all(not file.exists() or file.read_bytes() == content for file, content in state.items())

    # Undone, everything is as it was, and the first run goes on. The same again, and at once on.
    story.told("rewind", "--undo")
    story.check(range(18))
    with stopped_when(lambda: story.reached(18) and story.store.runs(story.name)[0].state.going, "all is read again"):
        told = story.call("rewind", "--to", "1", "--yes", "--start")
    assert told.exit_code == 0, told.output
    story.read_by(2, range(12, 18))
    story.check(range(18))

    # A savepoint, of before or of now: only what comes later is by the other code.
    story.told("savepoint take", "kept")
    story.produce(range(18, 24))
    story.run(2, range(18, 24))
    story.code(3)
    assert [one["savepoint"] for one in story.told("rewind", "--savepoint", "kept", "--yes")["queries"]] == ["kept"] * 2
    story.check(range(18))
    story.run(3, range(18, 24))
    assert {one["name"] for one in story.told("savepoint list")} == {"kept"}
    story.code(4)
    now = story.told("rewind", "--new-savepoint", "--yes")
    assert [(one["batch"], one["reset"]["removed"]) for one in now["queries"]] == [(3, 0)] * 2
    assert len(story.told("savepoint list")) == 2
    story.produce(range(24, 30))
    story.run(4, range(24, 30))
    story.check(range(30))

    # To before all of these; then to nothing.
    story.code(5)
    story.told("rewind", "--to", "0", "--yes")
    story.check(range(6))
    refused(story, "holds no batch of it that counts", "--savepoint", "kept", "--yes")
    story.code(6)
    story.told("rewind", "--no-state", "--yes")
    assert story.rows("seen") == story.strangers
    story.run(6, range(30))
    story.check(range(30))

    # What Kafka has dropped and nobody archived can't be read again.
    client = AdminClient({"bootstrap.servers": story.broker})
    for each in client.delete_records([TopicPartition(story.name, 0, 15)]).values():
        each.result(60)
    refused(story, "neither Kafka nor the archive has all", "--to", "1", "--yes")
    refused(story, "Kafka has dropped events that it has read", "--no-state", "--yes")


def refusals(story: Story) -> None:
    """Code and sources that do not fit what the job has kept."""
    swapped = 'F.sum("id").alias("ids"), F.sum(F.col("value") * WEIGHT).alias("total")'
    of_another_type = 'F.sum(F.col("value") * WEIGHT).cast("bigint").alias("total"), F.max("name").alias("ids")'
    for sums, words in ((swapped, "was sum"), (of_another_type, "Cannot go on with")):
        story.code(10, sums)
        refused(story, words, "--to", "1", "--yes")
    twice = JOBS["totals"].replace("return events", "return events.union(events)")
    story.code(10, totals=twice)
    topic = story.name
    refused(story, f"by its log it reads {topic}, now {topic}, {topic}", "--to", "1", "--yes")
    story.code(10)
    create_topics(story.broker, [f"{topic}_other"], partitions=1)
    elsewhere = f"sources.events.candidates.live.topic={topic}_other"
    refused(story, f"by its log it reads {topic}, now {topic}_other", "--to", "1", "--yes", "--set", elsewhere)


def refused(story: Story, words: str, *options: str) -> None:
    before = story.everything()
    told = story.call("rewind", *options)
    assert (told.exit_code, words in told.output) == (2, True), told.output
    assert story.everything() == before


def without_names(plan: Mapping[str, Any]) -> Any:
    """A plan but for the id of the run that it makes, which is drawn anew each time."""
    return json.loads(json.dumps(dict(plan)).replace(plan["operation"], "…"))


def test_back_after_a_compaction_and_a_crash(tell: Tell, monkeypatch: pytest.MonkeyPatch) -> None:
    story = tell("seen", "seen_files", "totals")
    spark = story.spark
    story.produce(range(24))
    first = story.run(1, range(24))
    spark.sql(f"INSERT INTO {story.tables['seen']} VALUES (7, 'b', 49), (-1, 'z', -1)")
    spark.sql(f"INSERT INTO {story.tables['totals']} VALUES ('z', 1, 1)")
    story.strangers.update([(7, "b", 49), (-1, "z", -1)])
    take(story.home, story.name, first.id, story.sinks, "all-read")
    # The rows of all batches, and those of another writer, are in one file now; one of those equals one of ours.
    merging = "options => map('min-input-files', '2')"
    spark.sql(f"CALL lake.system.rewrite_data_files(table => '{story.tables['seen']}', {merging})")

    # A crash while sinks are reset: nothing else goes on until it is completed.
    story.code(2)
    plan = story.plan(ToBatch(0))
    with monkeypatch.context() as broken:
        broken.setattr(UpsertReset, "carry_out", _fails)
        with pytest.raises(ZeroDivisionError):
            rewind(story.app, plan)
    for other in (lambda: story.plan(ToBatch(0)), story.live):
        with pytest.raises(RunError, match="is not completed"):
            other()
    begun_anew = story.call("bootstrap", "--from", "1h")
    assert (begun_anew.exit_code, "is not completed" in begun_anew.output) == (2, True), begun_anew.output
    resume(story.app)
    story.check(range(6))
    second = story.run(2, range(6, 24))
    assert second.id == plan.operation
    story.check(range(24))
    points = story.told("checkpoints", "--verify")
    assert {one["batch"] for one in points if one["run"] == second.id and one["restorable"]} == {1, 2, 3}
    assert {one["batch"] for one in points if one["run"] == first.id} == {0}

    # What others did to the same rows, and history that is gone.
    seen, keyed = story.tables["seen"], story.tables["totals"]
    for statement, words in (
        (f"UPDATE {keyed} SET total = 0 WHERE name = 'a'", "others changed some of them meanwhile: name=a"),
        (f"DELETE FROM {seen} WHERE id = 23", "1 of them were changed or deleted since"),
        (f"CALL lake.system.expire_snapshots('{seen}', TIMESTAMP '2099-01-01', 1)", "of that time have expired"),
    ):
        spark.sql(statement)
        refused(story, words, "--to", "1", "--yes")


def test_two_rewinds_are_undone_one_after_the_other(tell: Tell) -> None:
    story = tell("seen", "seen_files", "totals")
    story.produce(range(24))
    story.run(1, range(24))
    story.spark.sql(f"INSERT INTO {story.tables['totals']} VALUES ('z', 1, 1)")
    story.spark.sql(f"INSERT INTO {story.tables['seen']} VALUES (-1, 'z', -1)")
    story.strangers.update([(-1, "z", -1)])
    went_on = [dict(story.weights)]
    for weight, batch in ((2, 2), (3, 0), (4, 1)):
        story.code(weight)
        story.rewind(ToBatch(batch))
        story.run(weight, range(EACH * (batch + 1), 24))
        story.check(range(24))
        went_on.append(dict(story.weights))

    # Somebody else's hand on a key, which the undoing would go over: nothing of it is begun.
    keyed = story.tables["totals"]
    went_on.pop()
    before = story.spark.table(keyed).where("name = 'b'").collect()
    story.spark.sql(f"UPDATE {keyed} SET total = 0 WHERE name = 'b'")
    held = story.everything()
    told = story.call("rewind", "--undo")
    assert (told.exit_code, "others changed some of them meanwhile: name=b" in told.output) == (2, True), told.output
    assert story.everything() == held
    snapshot = load_table(story.spark, keyed).currentSnapshot().parentId()
    story.spark.sql(f"CALL lake.system.rollback_to_snapshot('{keyed.removeprefix('lake.')}', {snapshot})")
    assert story.spark.table(keyed).where("name = 'b'").collect() == before

    while went_on:
        story.told("rewind", "--undo")
        story.weights.update(went_on.pop())
        story.check(range(24))
    story.produce(range(24, 30))
    story.run(5, range(24, 30))
    story.check(range(30))


def test_a_topic_of_the_same_name_is_another_topic(tell: Tell) -> None:
    """Deleted and created anew, with more events than it had: by offsets alone nothing would be wrong."""
    story = tell("seen")
    story.produce(range(12))
    story.run(1, range(12))
    client = AdminClient({"bootstrap.servers": story.broker})
    client.delete_topics([story.name])[story.name].result(60)
    wait_until(lambda: story.name not in client.list_topics(timeout=10).topics, "it is gone")
    story.produce(range(30))
    refused(story, "was deleted and created anew", "--to", "0", "--yes")
    before = story.everything()
    with pytest.raises(RunError, match="was deleted and created anew"):
        story.live()
    assert story.everything() == before
    story.code(2)
    story.told("rewind", "--no-state", "--yes")
    story.run(2, range(30))
    story.check(range(30))


def _fails(reset: UpsertReset) -> None:
    raise ZeroDivisionError


SAVEPOINTS = 50


def test_savepoints_of_a_running_job_outlive_what_it_purges(tell: Tell) -> None:
    few = {**STORES["changelog"], "spark.sql.streaming.minBatchesToRetain": "2"}
    story = tell("once", settings=few)
    ahead = 3 * EACH
    story.produce(range(ahead))
    taken: dict[str, int] = {}

    def keep() -> bool:
        """Take one of every batch, while the job is at work on those after it, until there are enough."""
        run = next((one.id for one in story.store.runs(story.name)), "")
        committed = last_committed(story.home.checkpoint(story.name, run) / "once") if run else None
        if committed is not None and committed not in taken.values():
            made = take(story.home, story.name, run, story.sinks, f"at-{len(taken)}")
            taken[made.name] = made.batches["once"]
            story.produce(range(ahead + EACH * len(taken) - EACH, ahead + EACH * len(taken)))
        return len(taken) >= SAVEPOINTS

    with stopped_when(keep, f"{SAVEPOINTS} savepoints are taken"):
        told = story.call("run")
    assert told.exit_code == 0, told.output
    (first,) = story.store.runs(story.name)
    assert len(taken) == SAVEPOINTS
    own = restart_points(listed(story.home.checkpoint(story.name, first.id) / "once"))
    assert min(point.batch for point in own if point.restorable) > SAVEPOINTS // 2, "it has purged what it had first"
    for name, batch in taken.items():
        here = story.home.savepoints(story.name) / name / "once"
        assert [point.batch for point in restart_points(listed(here), named_in(here)) if point.restorable] == [batch]

    # Some of them as Spark reads them; then one really restarted.
    for name in ("at-0", "at-7", f"at-{SAVEPOINTS - 1}"):
        assert known(story, story.home.savepoints(story.name) / name / "once") == set(range(EACH * (taken[name] + 1)))
    made = story.rewind(ToSavepoint(f"at-{SAVEPOINTS - 4}"))
    checkpoint = story.home.checkpoint(story.name, made.operation) / "once"
    assert known(story, checkpoint) == set(range(EACH * (taken[f"at-{SAVEPOINTS - 4}"] + 1)))
    story.live()
    assert known(story, checkpoint) == set(range(ahead + EACH * SAVEPOINTS))


def known(story: Story, checkpoint: Location) -> set[int]:
    """The events that are in the newest state of a checkpoint."""
    return {row[0] for row in story.spark.read.format("statestore").load(checkpoint.uri).select("key.id").collect()}
