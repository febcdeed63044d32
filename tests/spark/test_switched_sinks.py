"""One app tried elsewhere, then changed: what is production stays production, and its tables follow when told."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result
from project import Project

from rekappa.archive.router import run_routers
from rekappa.cli.main import main
from rekappa.config.bind import load_app
from rekappa.config.load import load
from rekappa.demo.events import Event
from rekappa.errors import RunError
from rekappa.home import Home
from rekappa.plan.plan import Mode
from rekappa.planning.make import make_plan
from rekappa.planning.request import BackfillRequest
from rekappa.runs.live import run_live
from rekappa.staging.tables import staging_table
from rekappa.store.record import Kind, Run
from rekappa.store.runs import RunStore
from rekappa.timeline import Window, format_instant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(1200)

START = datetime(2026, 11, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
WINDOW = Window(START + 10 * MINUTE, START + 30 * MINUTE)
CODE = """
from pyspark.sql import functions as F
from rekappa import App

app = App("switched")

@app.job
def plays(events):
    return events.select(COLUMNS)

@app.job
def users(events):
    return events.select("user", "event_ts")
"""
TRUE, TRIED = '"user", "v", "event_ts"', '"user", (F.col("v") * 2).alias("v"), "event_ts"'
GAINED = '"user", "v", "event_ts", F.lit("new").alias("extra")'
CONFIG = """
app: switched
owner: the-team
sources:
  events:
    schema: user BIGINT, v BIGINT, event_ts TIMESTAMP
    event_time: event_ts
    candidates:
      live: {type: kafka, topic: switched_events}
      backfill: {type: iceberg, table: lake.switched.events}
sinks:
  plays:
    event_time: event_ts
    candidates:
      production: {type: iceberg, table: lake.switched.plays}
      test: {type: iceberg, table: lake.switched.plays_test}
  users:
    event_time: event_ts
    candidates:
      production: {type: iceberg, table: lake.switched.users}
      nowhere: {type: null}
profiles:
  live: {spark.sql.shuffle.partitions: 2}
  backfill: {spark.sql.shuffle.partitions: 2, master: "local[2]"}
"""
ELSEWHERE = ("sinks.plays.selected=test", "sinks.users.selected=nowhere")


def events(first: int, last: int) -> list[Event]:
    moments = ((minute, START + minute * MINUTE) for minute in range(first, last))
    return [Event("switched_events", "local", 1, at, at, {"user": minute % 3, "v": minute}) for minute, at in moments]


@dataclass
class Switched:
    project: Project
    spark: SparkSession

    @property
    def store(self) -> RunStore:
        return RunStore.open(self.project.home)

    def code(self, columns: str) -> None:
        (self.project.folder / "app.py").write_text(CODE.replace("COLUMNS", columns))

    def live(self, *overrides: str, **options: Any) -> Run:
        loaded = load(self.project.folder, overrides=overrides)
        return run_live(loaded, load_app(loaded), self.project.home, available_now=True, **options)

    def call(self, *words: str) -> Result:
        return CliRunner().invoke(main, list(words))

    def data(self, *words: str) -> Any:
        result = self.call(*words, "--json")
        assert result.exit_code in (0, 1), (result.output, result.exception)
        return json.loads(result.stdout)

    def backfill(self, *words: str) -> Any:
        span = ("--start", format_instant(WINDOW.start), "--end", format_instant(WINDOW.end))
        return self.data("backfill", str(self.project.folder), *span, "--allow-incomplete", *words)

    def refused(self, *words: str) -> str:
        result = self.call(*words)
        assert result.exit_code == 2, result.output
        return result.stderr

    def held(self, table: str, *columns: str) -> Counter[tuple[Any, ...]]:
        self.spark.catalog.refreshTable(f"lake.switched.{table}")
        return Counter(tuple(row) for row in self.spark.table(f"lake.switched.{table}").select(*columns).collect())


@pytest.fixture(scope="module")
def switched(
    spark: SparkSession, home: Home, broker: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Switched]:
    project = Project.make(tmp_path_factory.mktemp("switched") / "switched", home, broker, "", CONFIG)
    made = Switched(project, spark)
    made.code(TRUE)
    project.send(events(0, 40))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REKAPPA_HOME", str(home.root))
        yield made


def test_what_was_tried_elsewhere_is_never_taken_for_production(switched: Switched, spark: SparkSession) -> None:
    it, folder = switched, str(switched.project.folder)
    production = it.live()
    it.code(TRIED)
    tried = it.live(*ELSEWHERE)
    it.code(TRUE)
    assert production.id != tried.id
    assert it.held("plays", "user", "v") == Counter((n % 3, n) for n in range(40))
    assert it.held("plays_test", "user", "v") == Counter((n % 3, n * 2) for n in range(40))
    assert it.held("users", "user") == Counter((n % 3,) for n in range(40))
    listed = {run["id"]: run for run in it.data("runs", "--app", "switched")}
    assert {run["owner"] for run in listed.values()} == {"the-team"}
    assert listed[tried.id]["spec"]["elsewhere"] == {"plays": "test", "users": "nowhere"}
    assert "it writes plays to 'test'" in " ".join(it.call("runs", tried.id).stdout.split())

    run_routers(spark, it.project.loaded, it.project.home, available_now=True)
    loaded = it.project.loaded
    asked = BackfillRequest(WINDOW, jobs=("plays",), mode=Mode.EXACT, allow_incomplete=True)
    plan = make_plan(spark, loaded, load_app(loaded), it.project.home, asked)
    assert production.id in plan.job("plays").reason
    span = ("--start", format_instant(WINDOW.start), "--end", format_instant(WINDOW.end))
    for told in ("plan", "backfill"):
        assert "always means the sink that" in it.refused(told, folder, *span, "--set", ELSEWHERE[0])
    named = it.refused("plan", folder, *span, "--job", "plays", "--mode", "exact", "--live-run", tried.id)
    assert f"Cannot take run {tried.id} for production" in named

    # Production's rows are damaged: only its own code, never the newer code that was tried, is asked why.
    spark.sql("UPDATE lake.switched.plays SET v = v * 2 WHERE v = 20")
    run = it.backfill("--sink", "plays", "--warm-up", "plays=5m", "--mode", "bulk")
    assert run["progress"]["jobs"][0]["rows"] > 0
    assert not spark.catalog.tableExists(staging_table(loaded.config, run["id"], "users"))
    found = it.data("validate", run["id"])
    assert [one["sink"] for one in found["sinks"]] == ["plays"]
    assert found["outcome"] == "failed"
    assert "always means the sink that" in it.refused("publish", run["id"], "--yes", "--set", ELSEWHERE[0])
    shown = it.data("plan", folder, *span, "--sink", "plays", "--mode", "bulk", "--warm-up", "plays=5m")
    (job,) = shown["jobs"]
    assert job["warm_up"] == 6 * 60, "as told, and a minute for clocks that are ahead"
    assert run["id"] in job["estimate"]["basis"]
    both = it.data("plan", folder, *span, "--mode", "ordered")
    assert [one["estimate"]["seconds"] for one in both["jobs"]] == [None, None]


def test_one_sink_of_a_run_is_published_and_undone_alone(switched: Switched) -> None:
    it = switched
    run = it.backfill()
    found = it.data("validate", run["id"])
    assert {one["sink"]: one["outcome"] for one in found["sinks"]} == {"plays": "failed", "users": "passed"}
    assert "did not pass validation" in it.refused("publish", run["id"], "--yes")
    assert "Cannot find sink 'nobody'" in it.refused("publish", run["id"], "--sink", "nobody")
    done = it.data("publish", run["id"], "--sink", "users", "--yes")
    assert [one["sink"] for one in done["sinks"]] == ["users"]
    recorded = it.store.run(run["id"]).publication
    assert recorded is not None
    assert (recorded["state"], recorded["owner"]) == ("partly published", "the-team")
    it.data("publish", run["id"], "--sink", "plays", "--unvalidated", "--yes")
    assert it.held("plays", "user", "v") == Counter((n % 3, n) for n in range(40))
    assert (it.store.run(run["id"]).publication or {})["state"] == "published"
    undone = it.data("undo", run["id"], "--sink", "plays", "--yes")
    assert [one["sink"] for one in undone["sinks"]] == ["plays"]
    assert it.held("plays", "v")[40,] == 1
    assert (it.store.run(run["id"]).publication or {})["sinks"]["users"]["state"] == "published"


def test_a_gained_column_is_refused_until_the_table_may_follow(switched: Switched, spark: SparkSession) -> None:
    it, folder = switched, str(switched.project.folder)
    before = len(it.store.runs("switched", Kind.BACKFILL))
    it.code(GAINED)
    it.project.send(events(40, 50))
    with pytest.raises(RunError, match=r"it would have to add column extra \(string\)") as caught:
        it.live()
    assert "`rekappa migrate switched`" in str(caught.value.hint)
    span = ("--start", format_instant(WINDOW.start), "--end", format_instant(WINDOW.end), "--allow-incomplete")
    assert "`rekappa migrate switched` does that" in it.refused("backfill", folder, *span)
    assert len(it.store.runs("switched", Kind.BACKFILL)) == before, "nothing was begun"
    step = {"sink": "plays", "table": "lake.switched.plays", "step": "add column extra (string)"}
    assert it.data("migrate", folder, "--dry-run") == [step]
    assert "extra" not in spark.table("lake.switched.plays").columns
    assert it.data("migrate", folder) == [step]
    assert it.data("migrate", folder) == []
    it.live()
    assert it.held("plays", "extra") == Counter({("new",): 10, (None,): 40})

    said: list[str] = []
    it.code(GAINED + ', F.lit(1).alias("more")')
    it.project.send(events(50, 55))
    it.live("sinks.plays.evolve=true", tell=said.append)
    assert said == ["sink plays: lake.switched.plays: add column more (int)"]
    assert it.held("plays", "more") == Counter({(1,): 5, (None,): 50})
    it.code(TRUE.replace('"v"', 'F.col("v").cast("string").alias("v")'))
    refused = it.refused("migrate", folder)
    assert "column v is string in the rows and bigint in the table (Iceberg widens" in refused
    assert "the table's column extra is not in the rows" in refused
