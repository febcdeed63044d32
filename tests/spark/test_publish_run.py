"""validate, publish, undo and clean as a person calls them, over one staged backfill."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import functions as F
from servers.postgres import postgres

from rekappa.cli.main import main
from rekappa.config.load import load
from rekappa.home import Home
from rekappa.record import METADATA_TYPE
from rekappa.sinks.contract import BatchId
from rekappa.sinks.registry import open_sink
from rekappa.staging.baseline import baseline_of
from rekappa.staging.tables import staging_sink, staging_table
from rekappa.storage.location import Location
from rekappa.store.record import Batch, Kind, Run, State
from rekappa.store.runs import RunStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DAY = datetime(2026, 11, 1, tzinfo=UTC)
_numbers = itertools.count()
_APP = """
from pyspark.sql import DataFrame
from rekappa import App
app = App("{app}")
@app.job
def out(events: DataFrame) -> DataFrame:
    return events.select("id", "v", "at")
"""
_YAML = """
app: {app}
sources:
  events:
    schema: id BIGINT, v STRING, at TIMESTAMP
    event_time: at
    candidates:
      live: {{type: kafka, topic: {app}}}
      backfill: {{type: iceberg, table: lake.{app}.events}}
sinks:
  out: {{type: iceberg, table: lake.{app}.out, mode: upsert, key: [id], event_time: at}}
"""


@dataclass(frozen=True)
class Project:
    """An app with six hours in production, minutes 60 to 180 of which were staged anew."""

    spark: SparkSession
    home: Home
    folder: Path
    app: str
    run: str

    @property
    def store(self) -> RunStore:
        return RunStore.open(self.home)

    def call(self, *words: str) -> Result:
        return CliRunner().invoke(main, list(words))

    def data(self, *words: str) -> Any:
        result = self.call(*words, "--json")
        assert result.exit_code in (0, 1), result.output
        return json.loads(result.stdout)

    def production(self) -> dict[str, int]:
        rows = self.spark.table(f"lake.{self.app}.out").groupBy("v").count().collect()
        return {row.v: row["count"] for row in rows}

    def rows(self, first: int, count: int, v: str) -> DataFrame:
        return minutes(self.spark, first, count, v)

    def stage(self, rows: DataFrame, number: int = 0) -> None:
        sink = staging_sink(load(self.folder).config, self.run, "out")
        sink.prepare(self.spark, rows.schema)
        sink.write(rows, BatchId(self.run, "out", number))


def minutes(spark: SparkSession, first: int, count: int, v: str) -> DataFrame:
    at = f"timestampadd(MINUTE, CAST(id AS INT), TIMESTAMP '{DAY:%Y-%m-%d %H:%M:%S}Z')"
    return spark.range(first, first + count, 1, 1).selectExpr("id", f"'{v}' AS v", f"{at} AS at")


@pytest.fixture
def project(
    spark: SparkSession, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[DataFrame | None], Project]:
    monkeypatch.setenv("REKAPPA_HOME", str(home.root))

    def build(staged: DataFrame | None) -> Project:
        app = f"pub{next(_numbers)}"
        folder = tmp_path / app
        folder.mkdir()
        (folder / "app.py").write_text(_APP.format(app=app))
        (folder / "rekappa.yaml").write_text(_YAML.format(app=app))
        sink = open_sink("out", load(folder).config, home)
        rows = minutes(spark, 0, 360, "ok")
        sink.prepare(spark, rows.schema)
        rows.writeTo(f"lake.{app}.out").append()
        baseline = baseline_of(spark, load(folder).config, ["out"]).as_json()
        window = {"start": (DAY + timedelta(hours=1)).isoformat(), "end": (DAY + timedelta(hours=3)).isoformat()}
        spec = {**window, "baseline": baseline}
        run = Run(f"backfill_{app}", app, Kind.BACKFILL, str(folder), State.FINISHED, spec=spec)
        RunStore.open(home).create(run)
        made = Project(spark, home, folder, app, run.id)
        if staged is not None:
            made.stage(staged)
        return made

    return build


Build = Callable[["DataFrame | None"], Project]


def test_the_whole_way(spark: SparkSession, project: Build) -> None:
    it = project(minutes(spark, 60, 120, "ok"))
    assert "not validated" in it.call("publish", it.run, "--yes").stderr
    found = it.data("validate", it.run)
    assert found["passed"] is True
    assert found["sinks"][0]["comparison"]["matched"] == 120
    kept = dict(it.store.run(it.run).validation or {})
    assert kept.pop("asked")["control"] is True, "how it was compared is kept beside"
    assert kept == found
    shown = it.data("publish", it.run, "--dry-run")
    assert (shown["state"], shown["sinks"][0]["unchanged"]) == ("would publish", 120)
    assert it.store.run(it.run).publication is None
    assert it.call("publish", it.run).exit_code == 2, "nobody to ask"
    assert it.data("publish", it.run, "--yes")["state"] == "published"
    assert it.data("publish", it.run, "--yes")["state"] == "already published"
    assert (it.store.run(it.run).publication or {})["state"] == "published"
    it.store.update(it.run, publication=None)
    assert it.data("publish", it.run, "--yes")["state"] == "already published"
    assert (it.store.run(it.run).publication or {})["state"] == "published", "the store agrees with the table again"
    assert it.data("undo", it.run, "--yes")["state"] == "undone"
    assert it.data("undo", it.run, "--yes")["state"] == "already undone"
    assert (it.store.run(it.run).publication or {})["state"] == "undone"
    assert it.production() == {"ok": 360}


def test_a_repair(spark: SparkSession, project: Build, tmp_path: Path) -> None:
    """Production was wrong: validation shows how, publishing has to be told, undo brings the error back."""
    it = project(minutes(spark, 60, 110, "fixed"))
    page = tmp_path / "report.html"
    text = it.call("validate", it.run, "--html", str(page))
    assert text.exit_code == 1
    assert "FAILED" in text.stdout
    assert "unexplained" in text.stdout
    assert "<svg" in page.read_text()
    refused = it.call("publish", it.run, "--yes")
    assert (refused.exit_code, "did not pass" in refused.stderr) == (2, True)
    done = it.call("publish", it.run, "--yes", "--unvalidated")
    assert done.exit_code == 0, done.output
    assert it.production() == {"ok": 240, "fixed": 110}
    it.call("undo", it.run, "--yes")
    assert it.production() == {"ok": 360}


def test_refused_before_anything_is_touched(spark: SparkSession, project: Build) -> None:
    it = project(minutes(spark, 60, 120, "new"))

    def refused(*words: str) -> str:
        result = it.call(*words)
        assert result.exit_code == 2, result.output
        assert "error: Cannot" in result.stderr
        return result.stderr

    publish = ("publish", it.run, "--yes", "--unvalidated")
    assert "Cannot find run" in refused("publish", "nope", "--yes")
    assert "Cannot find run" in refused("validate", "nope")
    assert "not published" in refused("undo", it.run, "--yes")
    assert "Cannot read expectation" in refused("validate", it.run, "--expect", "nope")
    assert "Cannot ignore nope" in refused("validate", it.run, "--ignore", "nope")
    it.store.update(it.run, state=State.STOPPED)
    assert "stopped, not finished" in refused(*publish)
    with it.store.claim([], "go on") as claim:
        claim.begin(it.run)
        assert "still going" in refused(*publish)
        claim.end(State.FINISHED)
    it.store.create(Run(f"x_live_{it.app}", it.app, Kind.LIVE, str(it.folder), State.STOPPED))
    assert "it is a live run" in refused("publish", f"x_live_{it.app}", "--yes")
    staging = staging_table(load(it.folder).config, it.run, "out")
    spark.sql(f"ALTER TABLE {staging} ADD COLUMN more INT")
    assert "it would have to add column more (int)" in (said := refused(*publish))
    assert "`rekappa migrate" in said
    spark.sql(f"ALTER TABLE {staging} DROP COLUMN more")
    spark.sql(f"ALTER TABLE lake.{it.app}.out RENAME TO {it.app}.gone")
    missing = it.call(*publish)
    assert (missing.exit_code, "does not exist" in missing.stderr) == (2, True)
    spark.sql(f"ALTER TABLE lake.{it.app}.gone RENAME TO {it.app}.out")
    spark.sql(f"DROP TABLE {staging}")
    assert "Cannot find the staging" in refused(*publish)
    assert it.production() == {"ok": 360}


def test_a_key_that_is_staged_again_counts_once_and_not_at_all_if_it_left_the_window(
    spark: SparkSession, project: Build
) -> None:
    it = project(minutes(spark, 60, 120, "new"))
    it.stage(it.rows(60, 1, "again"), 1)
    it.stage(it.rows(500, 1, "later").withColumn("id", F.lit(61).cast("long")), 2)
    assert it.data("validate", it.run)["sinks"][0]["comparison"]["staging"] == 119
    assert it.data("publish", it.run, "--yes", "--unvalidated")["state"] == "published"
    assert it.production() == {"ok": 240, "new": 118, "again": 1}


def test_a_verdict_holds_for_the_staging_and_the_columns_it_saw(spark: SparkSession, project: Build) -> None:
    it = project(minutes(spark, 60, 120, "ok"))
    assert it.data("validate", it.run, "--ignore", "v")["outcome"] == "needs a yes"
    told = it.call("publish", it.run, "--yes", "--json")
    assert (told.exit_code, "not compared, and published all the same: v" in told.stderr) == (2, True)
    assert it.data("validate", it.run)["outcome"] == "passed"
    spark.sql(f"UPDATE {staging_table(load(it.folder).config, it.run, 'out')} SET v = 'evil' WHERE id = 100")
    told = it.call("publish", it.run, "--yes")
    assert (told.exit_code, "has changed since it was validated" in told.stderr) == (2, True)
    told = it.call("validate", it.run)
    assert (told.exit_code, "was changed by" in told.stderr) == (2, True)
    assert it.production() == {"ok": 360}


def test_what_was_published_is_known_after_its_snapshots_expired(spark: SparkSession, project: Build) -> None:
    it = project(minutes(spark, 60, 120, "new"))
    assert it.data("publish", it.run, "--yes", "--unvalidated")["state"] == "published"
    table = f"lake.{it.app}.out"
    minutes(spark, 1000, 1, "more").writeTo(table).append()
    which = f"table => '{it.app}.out', older_than => current_timestamp(), retain_last => 1"
    assert spark.sql(f"CALL lake.system.expire_snapshots({which})").first() is not None
    assert spark.sql(f"SELECT * FROM {table}.snapshots").count() == 2, "the newest, and the one that the tag holds"
    again = it.data("publish", it.run, "--yes", "--unvalidated")
    assert (again["state"], it.production()) == ("already published", {"ok": 240, "new": 120, "more": 1})
    told = it.call("undo", it.run, "--yes")
    assert (told.exit_code, "no longer reaches back" in told.stderr) == (2, True)
    assert it.data("undo", it.run, "--yes", "--force")["state"] == "undone"
    assert it.production() == {"ok": 360, "more": 1}


def test_clean(spark: SparkSession, project: Build) -> None:
    it = project(minutes(spark, 60, 120, "new"))
    assert it.call("publish", it.run, "--yes", "--unvalidated").exit_code == 0
    staging = staging_table(load(it.folder).config, it.run, "out")
    folder = str(it.folder)
    assert [row["what"] for row in it.data("clean", folder, "--yes")] == ["younger than the retention"]
    it.store.update(it.run, state=State.DIED)
    assert "can be resumed" in it.data("clean", folder, "--yes", "--older-than", "0s")[0]["what"]
    home = Home.locate()
    checkpoint, log = home.checkpoint(it.app, it.run), home.logs / "spark-of-this-run.log"
    shared, live = home.logs / "spark-shared.log", home.checkpoint(it.app, f"{it.app}_live")
    for location in (checkpoint / "plan.jsonl.gz", live / "metadata", Location.local(log), Location.local(shared)):
        location.write("12345")
    it.store.update(it.run, state=State.FINISHED, logs=[log.name, shared.name])
    it.store.create(Run(live.name, it.app, Kind.LIVE, folder, State.STOPPED, logs=[shared.name]))
    for run in (it.run, live.name):
        it.store.record_batches([Batch(run, "out", 0, (), None, datetime.now(UTC))])
    dry = it.data("clean", folder, "--dry-run", "--older-than", "0s")
    assert (dry[0]["what"], dry[0]["undo"]) == ("would remove", "lost")
    assert (dry[1]["name"], dry[1]["what"], dry[1]["rows"], dry[1]["bytes"]) == (str(checkpoint), "would remove", 1, 10)
    assert spark.catalog.tableExists(staging)
    assert checkpoint.exists()
    assert it.call("clean", folder, "--older-than", "nonsense").exit_code == 2
    assert [row["what"] for row in it.data("clean", folder, "--yes", "--older-than", "0s")] == ["removed", "removed"]
    assert not spark.catalog.tableExists(staging)
    assert [path.exists() for path in (checkpoint, log, shared, live / "metadata")] == [False, False, True, True]
    assert (it.store.batch_count(it.run), it.store.batch_count(live.name)) == (0, 1)
    assert it.data("clean", folder, "--yes", "--older-than", "0s") == []
    assert it.call("undo", it.run, "--yes").exit_code == 2
    assert it.production() == {"ok": 240, "new": 120}


_SINKS = """
  served: {{type: postgres, job: out, {login}, table: {app}, key: [id], event_time: at}}
  sent: {{type: kafka, job: out, topic: {app}-out, key: [id], event_time: at}}
clusters:
  main: {{bootstrap: "{broker}"}}
"""


def archived(rows: DataFrame, topic: str) -> DataFrame:
    """The rows as the archive holds them, ingested when they happened."""
    meta = (
        f"CAST(named_struct('topic', '{topic}', 'partition', 0, 'offset', id, 'kafka_ingestion_ts', at, 'key', NULL, "
        f"'headers', NULL, 'region', 'local') AS {METADATA_TYPE}) AS __metadata__"
    )
    return rows.selectExpr("*", meta)


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """How a sink of PostgreSQL logs in, as YAML."""
    with postgres() as server:
        yield (
            f'host: 127.0.0.1, port: {server.port}, user: "{server.user}", password: "{server.password}", '
            f"database: {server.database}"
        )


@pytest.mark.timeout(1500)
def test_the_whole_chain_into_three_kinds_of_sinks(
    spark: SparkSession, project: Build, database: str, broker: str
) -> None:
    """Two hours were wrong in a table and in a database, and were never sent: backfill, validate, publish, undo."""
    it = project(None)
    config = (it.folder / "rekappa.yaml").read_text()
    (it.folder / "rekappa.yaml").write_text(config + _SINKS.format(app=it.app, login=database, broker=broker))
    archived(it.rows(60, 120, "fixed"), it.app).writeTo(f"lake.{it.app}.events").create()
    served, sent = (open_sink(name, load(it.folder).config, it.home) for name in ("served", "sent"))
    served.prepare(spark, it.rows(0, 1, "ok").schema)
    served.write(it.rows(0, 360, "ok"), BatchId("live", "out", 0))
    sent.expect(it.rows(0, 1, "ok").schema)

    def held() -> list[Counter[str]]:
        """What each sink holds."""
        tables = [spark.table(f"lake.{it.app}.out"), served.read(spark), sent.read(spark)]
        return [Counter(row.v for row in rows.collect()) for rows in tables if rows is not None]

    window = ("--start", "2026-11-01T01:00Z", "--end", "2026-11-01T03:00Z", "--allow-incomplete")
    made = it.call("backfill", str(it.folder), *window, "--json")
    assert made.exit_code == 0, made.output
    run = next(one.id for one in it.store.runs(it.app) if one.id != it.run)
    assert held() == [{"ok": 360}, {"ok": 360}, {}]

    found = {one["sink"]: one["comparison"] for one in it.data("validate", run)["sinks"]}
    assert {name: (one["different"], one["extra"]) for name, one in found.items()} == {
        "out": (120, 0), "served": (120, 0), "sent": (0, 120)
    }  # fmt: skip
    assert "did not pass" in it.call("publish", run, "--yes").stderr
    shown = it.data("publish", run, "--unvalidated", "--dry-run")
    assert {one["sink"]: (one["added"], one["changed"]) for one in shown["sinks"]} == {
        "out": (0, 120), "served": (0, 120), "sent": (120, 0)
    }  # fmt: skip
    assert held() == [{"ok": 360}, {"ok": 360}, {}]

    done = it.data("publish", run, "--unvalidated", "--yes")
    assert done["sinks"] == shown["sinks"], "what was shown is what ran"
    published = [{"ok": 240, "fixed": 120}, {"ok": 240, "fixed": 120}, {"fixed": 120}]
    assert held() == published
    assert it.data("publish", run, "--unvalidated", "--yes")["state"] == "already published"
    assert held() == published

    undone = it.data("undo", run, "--yes")
    assert undone["state"] == "undone"
    assert {one["sink"]: one["stays"] is None for one in undone["sinks"]} == {
        "out": True, "served": True, "sent": False
    }  # fmt: skip
    assert held() == [{"ok": 360}, {"ok": 360}, {"fixed": 120}], "what was sent stays, and is said"
    again = it.data("publish", run, "--unvalidated", "--yes")
    assert [one["done"] for one in again["sinks"]] == [False, False, True]
    assert held() == published
