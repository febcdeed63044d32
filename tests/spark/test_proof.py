"""Why rows differ, shown by running production's own code: a late event, a change in code, a table edited by hand.

One production for all: counts per user in windows of ten minutes, run in three catch-ups. An event of minute 15 of user
1 comes when production's watermark has passed it, so production drops it; a bulk replay keeps it. One of minute 25 of
user 2 comes forty minutes late, but in the same micro-batch as its neighbours, so production keeps it; a replay in
narrow slices drops it.
"""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result
from project import Project, wait_until
from pyspark.sql import functions as F

from rekappa.archive.router import run_routers
from rekappa.cli.main import main
from rekappa.config.bind import load_app
from rekappa.demo.events import Event
from rekappa.home import Home
from rekappa.plan.plan import Mode
from rekappa.planning.request import BackfillRequest
from rekappa.runs.backfill import run_backfill
from rekappa.staging.tables import staging_table
from rekappa.store.record import Kind, Run, State
from rekappa.store.runs import RunStore
from rekappa.timeline import Window

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

pytestmark = pytest.mark.timeout(1200)

START = datetime(2026, 11, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
WINDOW = Window(START, START + 60 * MINUTE)
CODE = """
from pyspark.sql import functions as F
from rekappa import App
from limits import FLOOR, LIMIT

app = App("proof")

@app.job
def totals(events):
    timed = events.where(F.col("v") >= FLOOR).withWatermark("event_ts", "5 minutes")
    grouped = timed.groupBy(F.window("event_ts", "10 minutes"), "user")
    rows = grouped.agg(F.count("*").alias("n"), F.count_if(F.col("v") >= LIMIT).alias("big"))
    return rows.select(F.col("window.start").alias("at"), "user", "n", "big")
"""
CONFIG = """
app: proof
sources:
  events:
    schema: user BIGINT, v BIGINT, event_ts TIMESTAMP
    event_time: event_ts
    candidates:
      live: {type: kafka, topic: proof_events}
      backfill: {type: iceberg, table: lake.proof.events}
sinks:
  totals: {type: iceberg, table: lake.proof.totals, mode: append, key: [at, user], event_time: at}
profiles:
  live: {spark.sql.shuffle.partitions: 1}
  backfill: {spark.sql.shuffle.partitions: 1, master: "local[2]"}
"""


def event(minute: float, user: int, v: int, ingested: float | None = None) -> Event:
    came = START + (minute if ingested is None else ingested) * MINUTE
    return Event("proof_events", "local", user, START + minute * MINUTE, came, {"user": user, "v": v})


def on_time(first: int, last: int) -> list[Event]:
    return [event(minute + user / 10, user, minute % 7 + user) for minute in range(first, last) for user in (1, 2)]


@dataclass
class Proof:
    """The project, and how a person works with it."""

    project: Project
    spark: SparkSession

    @property
    def store(self) -> RunStore:
        return RunStore.open(self.project.home)

    def limit(self, value: int, floor: int = 0) -> None:
        (self.project.folder / "limits.py").write_text(f"LIMIT = {value}\nFLOOR = {floor}\n")
        # A person would start a new process: this one has read the file already.
        sys.modules.pop("limits", None)

    def send(self, events: list[Event]) -> None:
        topic = f"{self.project.name}_events"
        self.project.send([replace(one, topic=topic) for one in events])

    def backfill(self, **asked: Any) -> Run:
        loaded = self.project.loaded
        request = BackfillRequest(**{"window": WINDOW, **asked})
        return run_backfill(self.spark, loaded, load_app(loaded), self.project.home, request)

    def call(self, *words: str) -> Result:
        return CliRunner().invoke(main, list(words))

    def validate(self, run: Run, *words: str) -> Any:
        result = self.call("validate", run.id, *words, "--json")
        assert result.exit_code in (0, 1), (result.output, result.exception)
        found = json.loads(result.stdout)
        assert (result.exit_code == 1) == (found["outcome"] == "failed")
        return found

    def totals(self) -> Counter[Row]:
        self.spark.catalog.refreshTable("lake.proof.totals")
        return Counter(self.spark.table("lake.proof.totals").collect())

    def controls(self, run: Run) -> dict[str, Run]:
        return {
            str(one.spec["role"]): one
            for one in self.store.runs(self.project.name, Kind.CONTROL)
            if one.spec["control_of"] == run.id
        }


@pytest.fixture(scope="module")
def proof(spark: SparkSession, home: Home, broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proof]:
    project = Project.make(tmp_path_factory.mktemp("proof") / "proof", home, broker, CODE, CONFIG)
    made = Proof(project, spark)
    made.limit(4)
    project.send(sorted([event(25, 2, 100, ingested=65), *on_time(0, 70)], key=lambda one: one.ingested))
    project.live()
    project.send([event(15, 1, 100, ingested=70), *on_time(70, 120)])
    project.live()
    project.send(on_time(120, 180))
    project.live()
    run_routers(spark, project.loaded, home, available_now=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REKAPPA_HOME", str(home.root))
        yield made
    spark.sql("DROP TABLE IF EXISTS lake.proof.totals")


def test_a_row_dropped_as_late_is_named_so_and_no_other(proof: Proof) -> None:
    run = proof.backfill()
    verdict = proof.validate(run)
    found = verdict["sinks"][0]["comparison"]
    assert found["causes"] == {"late in production": 1}, found
    (sample,) = found["samples"]
    assert (sample["production"]["at"], sample["production"]["user"]) == ("2026-11-01T00:10Z", 1)
    assert (sample["production"]["n"], sample["staging"]["n"]) == (10, 11)
    assert verdict["outcome"] == "passed"
    roles = {"production's code over its micro-batches", "in production's micro-batches, dropping nothing"}
    assert set(proof.controls(run)) == roles, "the code was not changed"
    again = proof.validate(run, "--late", "drop")
    assert again["outcome"] == "failed"
    assert len(proof.controls(run)) == 2, "a finished control is not run again"
    without = proof.validate(run, "--no-control")
    assert without["sinks"][0]["comparison"]["causes"] == {"unexplained": 1}
    assert without["outcome"] == "failed"


def test_a_replay_that_lost_rows_is_not_excused_by_a_late_event_elsewhere(proof: Proof) -> None:
    """Staged as by a replay with a fault: its rows lie, though one event of the window was late in truth."""
    run = proof.backfill()
    table = staging_table(proof.project.loaded.config, run.id, "totals")
    stamped = {
        f"snapshot-property.{name}": value for name, value in (("rekappa.writer", "fault"), ("rekappa.batch", "0"))
    }
    right = proof.spark.table(table).localCheckpoint()
    wrong = right.where("user = 1 or at < timestamp '2026-11-01T00:30:00Z'").withColumn(
        "n", F.when(F.col("at") == F.lit(START + 40 * MINUTE), F.col("n") + 1).otherwise(F.col("n"))
    )
    wrong.writeTo(table).options(**stamped).overwrite(F.lit(True))
    found = proof.validate(run)["sinks"][0]["comparison"]
    assert found["causes"] == {"late in production": 1, "unexplained": 4}, found


@pytest.mark.parametrize("asked", [{}, {"drain": timedelta()}], ids=["derived", "told"])
def test_what_the_backfill_did_not_read_is_never_called_late(proof: Proof, asked: dict[str, Any]) -> None:
    """The event of minute 25 comes after the drain of this window: production has it, the backfill does not."""
    run = proof.backfill(window=Window(START, START + 40 * MINUTE), **asked)
    verdict = proof.validate(run, "--expect", "changed=0")
    found = verdict["sinks"][0]["comparison"]
    assert found["causes"] == {"unexplained": 1}, found
    assert (found["samples"][0]["production"]["n"], found["samples"][0]["staging"]["n"]) == (11, 10)
    assert verdict["outcome"] == "failed"
    assert any("does not vouch" in note for note in found["notes"])
    assert "did not pass validation" in proof.call("publish", run.id, "--yes").output


def test_one_threshold_in_the_code_is_never_late(proof: Proof, tmp_path: Path) -> None:
    proof.limit(6)
    try:
        run = proof.backfill()
        verdict = proof.validate(run, "--expect", "changed=big")
        found = verdict["sinks"][0]["comparison"]
        assert found["causes"] == {"change in code": 12}, found
        assert found["code"]["changed"] == [{"columns": ["big"], "rows": 12}], "the late event is not the code's doing"
        assert found["late_too"] == 1
        assert verdict["outcome"] == "passed"
        roles = {"production's code", "production's code over its micro-batches"}
        assert set(proof.controls(run)) == roles | {"in production's micro-batches, dropping nothing"}
        other = proof.validate(run, "--expect", "changed=n,missing=0")
        assert other["outcome"] == "failed"
        assert other["sinks"][0]["why"] == ["not expected: 12 rows changed in big"]
        asked = proof.call("validate", run.id, "--html", str(tmp_path / "report.html"))
        assert asked.exit_code == 0
        assert "NEEDS A YES" in asked.stdout
        assert "change in code" in asked.stdout
        assert "change in code" in (tmp_path / "report.html").read_text()
        shown = proof.call("runs", run.id).stdout
        assert "needs a yes" in shown
        assert "production's code" in shown
        live = proof.store.runs("proof", Kind.LIVE)[0]
        diff = proof.call("runs", run.id, "--diff", live.id).stdout
        assert "-LIMIT = 4\n+LIMIT = 6\n" in diff
    finally:
        proof.limit(4)


def test_a_control_that_was_killed_goes_on(proof: Proof) -> None:
    proof.limit(7)
    try:
        run = proof.backfill()
        process = proof.project.start("validate", run.id, "--expect", "changed=big", "--json")
        wait_until(
            lambda: process.poll() is not None or any(one.state.going for one in proof.controls(run).values()),
            "a control is going",
        )
        process.send_signal(signal.SIGKILL)
        process.communicate()
        killed = [one for one in proof.controls(run).values() if one.state is State.DIED]
        assert killed, proof.project.errors.read_text()[-2000:]
        resumed = proof.call("resume", killed[0].id, "--json")
        assert json.loads(resumed.stdout)["state"] == "finished", resumed.output
        verdict = proof.validate(run, "--expect", "changed=big")
        assert verdict["outcome"] == "passed", verdict
        assert proof.controls(run)["production's code"].id == killed[0].id, "no second one was begun"
    finally:
        proof.limit(4)


def test_a_table_edited_by_hand_is_unexplained_and_what_the_replay_dropped_is_its_own(proof: Proof) -> None:
    spark = proof.spark
    run = proof.backfill(mode=Mode.ORDERED, slice_span=5 * MINUTE)
    spark.sql("UPDATE lake.proof.totals SET n = n + 1 WHERE user = 2 AND at = TIMESTAMP '2026-11-01T00:30:00Z'")
    try:
        verdict = proof.validate(run, "--expect", "changed=*,missing=*,extra=*")
        found = verdict["sinks"][0]["comparison"]
        assert found["causes"] == {"late in the backfill": 1, "unexplained": 1}, found
        assert verdict["outcome"] == "failed"
        refused = proof.call("publish", run.id, "--yes", "--accept-changes")
        assert refused.exit_code == 2
        assert "did not pass" in refused.stderr
    finally:
        spark.sql("UPDATE lake.proof.totals SET n = n - 1 WHERE user = 2 AND at = TIMESTAMP '2026-11-01T00:30:00Z'")


def test_rows_that_were_not_final_never_pass(proof: Proof) -> None:
    """The archive ends at minute 180: what happened from minute 160 on could still change."""
    window = Window(START + 100 * MINUTE, START + 200 * MINUTE)
    run = proof.backfill(window=window, allow_incomplete=True)
    verdict = proof.validate(run, "--expect", "changed=*,missing=*,extra=*")
    found = verdict["sinks"][0]["comparison"]
    assert found["causes"].get("not final", 0) > 0, found
    assert found["causes"].get("unexplained", 0) == 0, found
    assert verdict["outcome"] == "failed"


def test_the_final_part_of_a_window_is_judged_and_published_alone(proof: Proof) -> None:
    """Another code, so that every hour differs: what is published ends where rows were not final any more."""
    window = Window(START + 100 * MINUTE, START + 200 * MINUTE)
    before = proof.totals()
    proof.limit(9)
    try:
        run = proof.backfill(window=window, allow_incomplete=True)
        verdict = proof.validate(run, "--expect", "changed=big", "--final-only")
        assert verdict["outcome"] == "passed", verdict
        until = datetime.fromisoformat(verdict["window"]["end"])
        assert window.start < until < window.end
        published = json.loads(proof.call("publish", run.id, "--yes", "--json").stdout)
        assert published["window"] == verdict["window"]
        after = proof.totals()
        changed = (before - after) + (after - before)
        assert changed
        assert all(window.start <= row.at.astimezone(UTC) < until for row in changed)
        assert json.loads(proof.call("undo", run.id, "--yes", "--json").stdout)["state"] == "undone"
        assert proof.totals() == before
    finally:
        proof.limit(4)


def test_a_window_without_events_leaves_an_empty_staging(proof: Proof) -> None:
    window = Window(START + timedelta(days=3), START + timedelta(days=3, hours=1))
    run = proof.backfill(window=window, mode=Mode.ORDERED, allow_incomplete=True)
    table = proof.spark.table(staging_table(proof.project.loaded.config, run.id, "totals"))
    assert table.columns == ["at", "user", "n", "big"]
    assert table.count() == 0


def test_controls_go_with_the_staging_of_their_run(proof: Proof) -> None:
    controls = proof.store.runs("proof", Kind.CONTROL)
    assert controls
    cleaned = proof.call("clean", str(proof.project.folder), "--older-than", "0s", "--yes", "--json")
    assert cleaned.exit_code == 0, cleaned.output
    config = proof.project.loaded.config
    for one in controls:
        assert not proof.spark.catalog.tableExists(staging_table(config, one.id, "totals"))


def test_what_no_version_of_productions_code_took_is_not_called_late(
    spark: SparkSession, home: Home, broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two versions made the window. Both events came too late for their window; the second one, though, production's
    code of then did not take at all, so that the code keeps its row from production, not the time it came at."""
    monkeypatch.setenv("REKAPPA_HOME", str(home.root))
    code, config = (text.replace("proof", "proof_twice") for text in (CODE, CONFIG))
    proof = Proof(Project.make(tmp_path / "proof_twice", home, broker, code, config), spark)
    proof.limit(4)
    proof.send(on_time(0, 40))
    proof.project.live()
    proof.limit(4, floor=1)
    proof.send([event(5, 2, 5, ingested=45), event(15, 1, 0, ingested=46), *on_time(47, 90)])
    proof.project.live()
    run_routers(spark, proof.project.loaded, home, available_now=True)
    proof.limit(4, floor=-1)
    run = proof.backfill(window=Window(START, START + 30 * MINUTE), drain=40 * MINUTE)
    verdict = proof.validate(run, "--expect", "changed=0")
    found = verdict["sinks"][0]["comparison"]
    assert found["causes"] == {"late in production": 1, "change in code": 1}, found
    assert found["code"]["changed"] == [{"columns": ["n"], "rows": 1}], found
    assert verdict["outcome"] == "failed"
    assert proof.validate(run, "--expect", "changed=n")["outcome"] == "passed"
