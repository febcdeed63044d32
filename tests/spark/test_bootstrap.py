"""History from the archive, then Kafka, on one checkpoint: records really deleted, every offset once."""

from __future__ import annotations

import json
import os
import random
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from click.testing import CliRunner
from project import Project, wait_until
from topic import Topic, hours_ago

from rekappa.archive.router import run_routers
from rekappa.cli.main import main
from rekappa.config.bind import load_app
from rekappa.errors import RunError
from rekappa.home import Home
from rekappa.recovery.advice import Recovery, advise
from rekappa.recovery.bootstrap import BootstrapRequest, bootstrap
from rekappa.recovery.facts import gather
from rekappa.recovery.outage import Memory, OutageFacts, Trouble
from rekappa.spark.offsetlog import committed_batches
from rekappa.store.record import Kind, Run
from rekappa.store.runs import RunStore
from rekappa.timeline import Window

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KILLS, SEED = (int(os.environ.get(f"REKAPPA_TEST_{name}", "2")) for name in ("KILLS", "SEED"))
"""How often a run is killed, and where. Each time costs a start of Spark: REKAPPA_TEST_KILLS=20 for more."""
KEEPS = timedelta(days=30)
"""What the topics keep, as they say; the tests delete much earlier."""
HISTORY = 60 * (4 + KILLS)
"""Events of each region that are archived before the run that is killed begins: a slice for each minute of them."""
CODE = """
from pyspark.sql import functions as F
from rekappa import App

app = App("APP")

@app.job
def seen(events):
    return events.select("id", "event_ts", "__metadata__.region", "__metadata__.topic", "__metadata__.partition",
                         "__metadata__.offset")

@app.job
def counts(events):
    timed = events.withWatermark("event_ts", "10 seconds")
    return timed.groupBy(F.window("event_ts", "1 minute"), "user").count().select("window.start", "user", "count")

@app.job
def pairs(events):
    timed = events.withWatermark("event_ts", "10 seconds")
    soon = "b.id = a.id + 1 AND b.event_ts BETWEEN a.event_ts AND a.event_ts + INTERVAL 5 SECONDS"
    both = timed.alias("a").join(timed.alias("b"), F.expr(soon))
    return both.select("a.id", F.col("b.id").alias("next"), F.col("a.__metadata__.region").alias("region"),
                       F.col("b.__metadata__.region").alias("next_region"),
                       F.col("b.__metadata__.partition").alias("next_partition"))
"""
CONFIG = """
app: {app}
clusters:
  eu: {{bootstrap: stack, region: eu}}
  us: {{bootstrap: stack, region: us, topic_prefix: us.}}
sources:
  events:
    schema: id BIGINT, user STRING, event_ts TIMESTAMP
    event_time: event_ts
    candidates:
      live: {{type: kafka, topic: {topic}, cluster: [eu, us], max_records_per_batch: 400}}
      past: {{type: iceberg, table: lake.boot.{topic}, max_misalignment: {bound}}}
sinks:
  seen: {{type: iceberg, table: lake.boot.seen_{topic}}}
  counts: {{type: iceberg, table: lake.boot.counts_{topic}, event_time: start}}
  pairs: {{type: iceberg, table: lake.boot.pairs_{topic}}}
archive: {{trigger: 1s, dead_letters: lake.boot.dead_{topic}}}
profiles:
  live: {{trigger: 100 ms, spark.sql.shuffle.partitions: 2}}
"""


class Booted:
    """An app that reads one topic of two regions, and what it has written."""

    def __init__(
        self, spark: SparkSession, folder: Path, home: Home, broker: str, hours: float, bound: str = "8m"
    ) -> None:
        name = f"b{uuid4().hex[:8]}"
        self.spark, self.start = spark, hours_ago(hours)
        self.topics = [Topic(broker, topic, self.start).create(KEEPS) for topic in (name, f"us.{name}")]
        self.project = Project.make(
            folder / name, home, broker, CODE.replace("APP", name), CONFIG.format(app=name, topic=name, bound=bound)
        )
        self.name, self.store = name, RunStore.open(home)

    def send(self, numbers: range) -> None:
        for topic in self.topics:
            topic.send(numbers)

    def archive(self) -> None:
        run_routers(self.spark, self.project.loaded, self.project.home, available_now=True)

    def delete_below(self, number: int) -> None:
        """Kafka forgets all events below this one, but for some in one partition."""
        for topic in self.topics:
            edges = {part: -(-(number - part) // topic.partitions) for part in range(topic.partitions)}
            topic.delete({**edges, 1: max(0, edges[1] - 20)})

    def bootstrap(self, since: datetime, **told: Any) -> Run:
        loaded = self.project.loaded
        request = BootstrapRequest(since, **told)
        return bootstrap(loaded, load_app(loaded), self.project.home, request, available_now=True)

    def call(self, *words: str) -> str:
        """A command as a person gives it, in this process, on the tests' own Spark."""
        told = CliRunner().invoke(main, list(words), env={"REKAPPA_HOME": str(self.project.home.root)})
        assert told.exit_code == 0, told.output
        return told.stdout

    def facts(self, window: Window) -> OutageFacts:
        loaded = self.project.loaded
        return gather(self.spark, loaded, load_app(loaded), self.project.home, window)

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        full = f"lake.boot.{table}_{self.name}"
        if not self.spark.catalog.tableExists(full):
            return []
        self.spark.catalog.refreshTable(full)
        return [tuple(row) for row in self.spark.table(full).collect()]

    def seen(self) -> Counter[tuple[str, int]]:
        """How often each event of each region was written; its place in Kafka is that of its number."""
        found: Counter[tuple[str, int]] = Counter()
        for number, _, region, topic, partition, offset in self.rows("seen"):
            assert (partition, offset) == self.topics[0].offset(number)
            assert topic == (f"us.{self.name}" if region == "us" else self.name)
            found[region, number] += 1
        return found

    def once(self, numbers: range) -> Counter[tuple[str, int]]:
        return Counter((region, number) for region in ("eu", "us") for number in numbers)

    def counted(self, until: int) -> dict[tuple[datetime, str], int]:
        """The truth of `counts`, of the windows that end before event `until`."""
        found: Counter[tuple[datetime, str]] = Counter()
        for number in range(until):
            moment = self.start + timedelta(seconds=number)
            found[moment.replace(second=0), f"u{number % 5}"] += 2
        last = self.start + timedelta(seconds=until)
        return {key: count for key, count in found.items() if key[0] + timedelta(minutes=1) <= last}

    def windows(self) -> dict[tuple[datetime, str], int]:
        """What `counts` has written; each window once."""
        rows = [((start.replace(tzinfo=UTC), user), count) for start, user, count in self.rows("counts")]
        assert len(dict(rows)) == len(rows)
        return dict(rows)

    def paired(self) -> Counter[int]:
        """How often each event was joined with the next: once for each two regions."""
        found: Counter[int] = Counter()
        for number, following, _, _, partition in self.rows("pairs"):
            assert (following, partition) == (number + 1, (number + 1) % self.topics[0].partitions)
            found[number] += 1
        return found

    def logged(self, run: str, query: str) -> list[tuple[str | None, ...]]:
        checkpoint = self.project.home.checkpoint(self.name, run) / query
        return [batch.sources for batch, _ in committed_batches(checkpoint, None)]


def test_history_then_live_then_past_retention(spark: SparkSession, tmp_path: Path, home: Home, broker: str) -> None:
    app = Booted(spark, tmp_path, home, broker, hours=2)
    app.send(range(1200))
    app.archive()
    app.delete_below(900)
    with pytest.raises(RunError, match="future"):
        app.bootstrap(app.start + timedelta(days=1))
    assert app.store.runs(app.name, Kind.LIVE) == [], "refused before anything was touched"

    folder = str(app.project.folder)
    shown = json.loads(app.call("bootstrap", folder, "--from", app.start.isoformat(), "--dry-run", "--json"))
    assert (shown["output"], shown["after"], shown["rows"]) == ("held back", {}, 2400)
    ends = [(one["from"], one["written_from"], one["archive_ends"], one["kafka_ends"]) for one in shown["partitions"]]
    assert ends == [(0, 400, 400, 400)] * 6
    assert app.store.runs(app.name, Kind.LIVE) == [], "a dry run changes nothing"

    run = app.bootstrap(app.start)
    assert app.seen() == Counter(), "what history gives is held back"
    lines = app.logged(run.id, "seen")
    assert len(lines) > 2, "several slices"
    assert json.loads(lines[-1][1] or "") == {f"us.{app.name}": {"0": 400, "1": 400, "2": 400}}

    moment = datetime.now(UTC)
    app.send(range(1200, 1500))
    assert app.project.live().id == run.id
    assert app.seen() == app.once(range(1200, 1500))
    assert app.paired() == Counter(dict.fromkeys(range(1199, 1499), 4)), "the first of them lay in history's state"
    truth = app.counted(1489)
    counted = app.windows()
    assert counted, "windows that history began are closed by live events"
    assert {key: truth[key] for key in counted} == counted
    assert max(key[0] for key in counted) == max(key[0] for key in truth)

    # Stopped for longer than Kafka keeps: it goes on from the archive, then from Kafka, by itself. While it reads the
    # archive, Kafka drops the hand-over as well: another round follows.
    app.send(range(1500, 2300))
    facts = app.facts(Window(app.start - timedelta(hours=2), app.start - timedelta(hours=1)))
    assert (facts.trouble, facts.behind) == (Trouble.STOPPED, 1600)
    assert facts.kept_until == app.start + timedelta(seconds=1500) + KEEPS
    app.archive()
    app.delete_below(2000)
    told: list[str] = []

    def overtaken(text: str) -> None:
        told.append(text)
        if len(told) == 1:
            app.send(range(2300, 2450))
            app.archive()
            app.delete_below(2400)
            app.send(range(2450, 2500))

    assert app.project.live(tell=overtaken).id == run.id
    assert ["Kafka has dropped" in text for text in told] == [True, True]
    assert app.seen() == app.once(range(1200, 2500))
    assert app.paired() == Counter(dict.fromkeys(range(1199, 2499), 4))
    counted = app.windows()
    truth = app.counted(2490)
    assert {key: truth[key] for key in counted} == counted

    # It did run since the moment after history: by now Kafka has dropped what a rewind to there needs, the archive not.
    facts = app.facts(Window(moment, datetime.now(UTC)))
    assert (facts.trouble, facts.dropped, facts.holes, facts.whole) == (Trouble.WRONG, (), (), True)
    memory = {query.sink: (query.memory, query.point is not None and query.point.holes) for query in facts.queries}
    assert memory == {"seen": (Memory.NONE, ()), "counts": (Memory.BOUNDED, ()), "pairs": (Memory.BOUNDED, ())}
    assert [one.recovery for one in advise(facts)] == [Recovery.REWIND]
    told_in_words = app.call("advise", folder, "--start", moment.isoformat(), "--end", datetime.now(UTC).isoformat())
    assert told_in_words.startswith("Rewind the job (seen, counts, pairs)\n")

    # So it is done: what Kafka has dropped since that moment is tried on the archive, and then read from it.
    shown = json.loads(app.call("rewind", folder, "--to", moment.isoformat(), "--yes", "--json"))
    assert [one["notes"] for one in shown["queries"]] == [[]] * 3
    assert [app.rows(sink) for sink in ("seen", "counts", "pairs")] == [[]] * 3
    told.clear()
    run = app.project.live(tell=told.append)
    assert (run.id, len(told)) == (shown["operation"], 1)
    assert app.seen() == app.once(range(1200, 2500))
    assert app.paired() == Counter(dict.fromkeys(range(1199, 2499), 4))
    assert app.windows() == counted

    # Its state is lost: built anew from history, a new run carries on the output of the one before.
    with pytest.raises(RunError, match="the archive does not reach the end of what was begun"):
        app.bootstrap(app.start)
    with pytest.raises(RunError, match="would append again"):
        app.bootstrap(app.start, write_history=True)
    app.send(range(2500, 2600))
    app.archive()
    app.send(range(2600, 2700))
    with pytest.raises(RunError, match="and history would begin at"):
        app.bootstrap(app.start + timedelta(seconds=2520))
    second = app.bootstrap(app.start)
    assert second.id != run.id
    assert app.seen() == app.once(range(1200, 2700))
    assert app.paired() == Counter(dict.fromkeys(range(1199, 2699), 4))
    truth = app.counted(2689)
    windows = app.windows()
    assert windows == {key: count for key, count in truth.items() if key in windows}
    assert windows.keys() == {key for key in truth if key[0] >= min(counted)[0]}
    run = second

    # An event that the archive has twice, and one that it has lost.
    app.archive()
    past = f"lake.boot.{app.name}"
    spark.sql(f"INSERT INTO {past} SELECT * FROM {past} WHERE id = 50 AND __metadata__.region = 'eu'")
    with pytest.raises(RunError, match="partition 2, twice, from 16 on"):
        app.bootstrap(app.start)
    spark.sql(f"DELETE FROM {past} WHERE id = 60")
    with pytest.raises(RunError, match="and the archive has a gap there"):
        app.bootstrap(app.start)
    assert app.store.runs(app.name, Kind.LIVE)[0].id == run.id

    # A hole: the router was behind when Kafka forgot.
    app.send(range(2700, 3000))
    app.delete_below(2800)
    before = _told(app, run.id)
    with pytest.raises(RunError, match="neither Kafka nor the archive has all"):
        app.project.live()
    facts = app.facts(Window(app.start - timedelta(hours=2), app.start - timedelta(hours=1)))
    assert (facts.trouble, len(facts.dropped)) == (Trouble.STOPPED, 6)
    (advice,) = advise(facts)
    assert (advice.recovery, len(advice.why)) == (Recovery.LOST, 1 + 6)
    words = ["rewind", folder, "--new-savepoint", "--yes"]
    refused = CliRunner().invoke(main, words, env={"REKAPPA_HOME": str(app.project.home.root)})
    assert (refused.exit_code, "neither Kafka nor the archive has all" in refused.output) == (2, True), refused.output
    assert _told(app, run.id) == before, "refused before anything was touched"
    assert not app.project.home.savepoints(app.name).names()


def _told(app: Booted, run: str) -> Any:
    folder = app.project.home.checkpoint(app.name, run)
    return app.store.run(run), sorted((file.name, file.size, file.modified) for file in folder.files())


class Traffic:
    """Events that keep coming: a few more every moment, until told to stop."""

    def __init__(self, app: Booted, first: int) -> None:
        self._app, self.sent, self._stop = app, first, threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _send(self) -> None:
        while not self._stop.wait(1):
            self._app.send(range(self.sent, self.sent + 6))
            self.sent += 6


def test_no_state_takes_out_what_a_bootstrapped_run_carries_on(
    spark: SparkSession, tmp_path: Path, home: Home, broker: str
) -> None:
    app = Booted(spark, tmp_path, home, broker, hours=1)
    app.send(range(60))
    app.project.live()
    app.archive()
    app.send(range(60, 90))
    folder = str(app.project.folder)
    app.bootstrap(app.start - timedelta(minutes=1))
    assert app.seen() == app.once(range(90))
    app.call("rewind", folder, "--no-state", "--yes")
    assert app.seen() == Counter()
    app.project.live()
    assert app.seen() == app.once(range(90))
    app.call("rewind", folder, "--undo", "--yes")
    assert app.seen() == app.once(range(90))


@pytest.mark.timeout(900 + 90 * KILLS)
def test_killed_anywhere_every_offset_reaches_the_job_once(
    spark: SparkSession, tmp_path: Path, home: Home, broker: str
) -> None:
    app = Booted(spark, tmp_path, home, broker, hours=3, bound="1m")
    app.send(range(HISTORY))
    app.archive()
    app.delete_below(HISTORY * 2 // 3)
    dice = random.Random(SEED)
    since = (app.start - timedelta(minutes=1)).isoformat()
    words = ["bootstrap", str(app.project.folder), "--from", since, "--write-history"]

    def progress() -> int:
        """Files of the checkpoints: more with every step of a batch."""
        runs = app.store.runs(app.name, Kind.LIVE)
        folder = app.project.home.checkpoint(app.name, runs[0].id) if runs else None
        return sum(1 for file in folder.files() if not file.name.endswith(".crc")) if folder else 0

    with Traffic(app, HISTORY) as traffic:
        for _ in range(KILLS):
            process = app.project.start(*words)
            wanted = progress() + dice.randint(3, 40)
            wait_until(lambda wanted=wanted: progress() >= wanted, "it is somewhere else")  # type: ignore[misc]
            assert process.poll() is None, app.project.errors.read_text()[-3000:]
            process.kill()
            process.communicate()
            words = ["run", str(app.project.folder)]
    ended = app.project.live()
    assert [run.id for run in app.store.runs(app.name, Kind.LIVE)] == [ended.id], "one run, however often killed"
    assert app.seen() == app.once(range(traffic.sent))
    assert app.paired() == Counter(dict.fromkeys(range(traffic.sent - 1), 4))
    counted = app.windows()
    assert counted == {key: count for key, count in app.counted(traffic.sent).items() if key in counted}
    assert set(app.counted(HISTORY - 20)) <= set(counted)
    recorded = app.store.batches(ended.id, "seen")
    assert [batch.number for batch in recorded] == list(range(-1, len(recorded) - 1))
    assert all(set(one.ends.values()) == {0} for one in recorded[0].positions), "where it began is known"
