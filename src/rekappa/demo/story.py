"""The demo's steps: an app that was wrong for an hour, and how that hour is made right again.

Everything is real: a Kafka broker, Spark, Iceberg tables, in a folder of its own. Each step is the operation
behind one command, and says which.
"""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from rekappa.demo.events import Traffic, in_arrival_order, take_rate
from rekappa.demo.produce import produce
from rekappa.demo.telling import Telling
from rekappa.produce.topics import create_topics
from rekappa.spark.times import within
from rekappa.store.record import Run
from rekappa.store.runs import RunStore
from rekappa.timeline import Window

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rekappa.plan.plan import Plan
    from rekappa.publish.plan import Effect
    from rekappa.validate.result import SinkVerdict

APP = "plays"
START = datetime(2026, 11, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
SETTLED = timedelta(minutes=20)
"""How old output may be that was not final when the bug came: ten minutes of join, ten of watermark."""
WINDOW = Window(START + HOUR - SETTLED, START + 2 * HOUR)
RIGHT, WRONG = "INTERVAL 10 MINUTES", "INTERVAL 10 SECONDS"
EXPECTED = "changed=playback_id,missing=0,extra=0"
SHAPE = Traffic(per_minute=300, quiet=range(0), burst=range(20, 25))


class Story(Telling):
    """One telling, with one app."""

    @property
    def project(self) -> Path:
        return self.folder / APP

    @cached_property
    def spark(self) -> SparkSession:
        from rekappa.runs.session import backfill_session

        return backfill_session(self.load(APP)[0], self.home, {"spark.sql.shuffle.partitions": "2"})

    def up(self) -> str:
        """`rekappa up`, and an app in its folder."""
        from rekappa.stack.broker import up

        shutil.copytree(Path(__file__).with_name("project"), self.project, ignore=shutil.ignore_patterns("__pycache__"))
        self.home.root.mkdir()
        return up(self.home).bootstrap

    def deploy(self, *, wrong: bool) -> None:
        """Change one line of the app's code."""
        code = Path(__file__).with_name("project").joinpath("app.py").read_text()
        (self.project / "app.py").write_text(code.replace(RIGHT, WRONG) if wrong else code)

    def run_hour(self, hour: int, bootstrap: str) -> Run:
        """One hour of events, then `rekappa run plays --available-now`."""
        everything = in_arrival_order(take_rate(Window(START, START + 3 * HOUR), SHAPE))
        first, last = START + hour * HOUR, START + (hour + 1) * HOUR
        events = [
            event for event in everything if first <= event.ingested < last or (hour == 2 and event.ingested >= last)
        ]
        create_topics(bootstrap, {event.topic for event in events})
        self.sent += produce(bootstrap, events, prefixes=False)
        return self.run_live(APP)

    def archive(self) -> None:
        """`rekappa archive run plays --available-now`."""
        from rekappa.archive.router import run_routers

        run_routers(self.spark, self.load(APP)[0], self.home, available_now=True)

    def plan(self) -> Plan:
        """`rekappa plan plays --start … --end …`."""
        from rekappa.planning.make import make_plan
        from rekappa.planning.request import BackfillRequest

        return make_plan(self.spark, *self.load(APP), self.home, BackfillRequest(WINDOW))

    def backfill(self, plan: Plan) -> Run:
        """`rekappa backfill plays --start … --end …`."""
        from rekappa.planning.request import BackfillRequest
        from rekappa.runs.backfill import run_backfill

        return run_backfill(self.spark, *self.load(APP), self.home, BackfillRequest(WINDOW), plan=plan)

    def validate(self, run: Run) -> SinkVerdict:
        """`rekappa validate RUN --expect …`."""
        from rekappa.staging.staged import open_staged
        from rekappa.validate.run import Request, expectations, validate

        staged = open_staged(self.spark, self.home, run, self.load(APP)[0])
        return validate(self.spark, staged, Request(expect=expectations((EXPECTED,), ()))).sinks[0]

    def publish(self, run: Run) -> Effect:
        """`rekappa publish RUN`: refused unless the validation passed."""
        from rekappa.publish.evaluate import publish
        from rekappa.publish.gate import require_validated
        from rekappa.publish.make import make_publish_plan
        from rekappa.staging.staged import open_staged

        staged = open_staged(self.spark, self.home, RunStore.open(self.home).run(run.id), self.load(APP)[0])
        require_validated(staged)
        plan = make_publish_plan(self.spark, staged)
        publish(self.spark, staged, plan)
        return plan.sinks[0].effect

    def undo(self, run: Run) -> None:
        """`rekappa undo RUN`."""
        from rekappa.publish.evaluate import undo
        from rekappa.staging.staged import open_staged

        undo(self.spark, open_staged(self.spark, self.home, run, self.load(APP)[0]))

    def clean_run(self) -> int:
        """The right code over all of Kafka, into a table of its own; how many rows of the window differ from it."""
        from pyspark.sql import functions as F

        self.run_live(APP, "sinks.plays.table=lake.demo.clean", fresh=True)
        inside = within(F.col("event_ts"), WINDOW)
        for table in ("lake.demo.plays", "lake.demo.clean"):
            self.spark.catalog.refreshTable(table)
        clean, plays = (self.spark.table(f"lake.demo.{name}").where(inside) for name in ("clean", "plays"))
        return clean.exceptAll(plays).count() + plays.exceptAll(clean).count()

    def by_hand(self) -> None:
        """The same hour as somebody would write it as a batch job, with Spark's own settings."""
        from pyspark.sql import functions as F

        margin = timedelta(minutes=30)
        shown, played = (
            self.spark.table(f"lake.events.{name}").where(
                F.col("event_ts").between(F.lit(WINDOW.start - margin), F.lit(WINDOW.end + margin))
            )
            for name in ("impressions", "playbacks")
        )
        soon = played["event_ts"].between(shown["event_ts"], shown["event_ts"] + F.expr(RIGHT))
        pairs = shown.join(played, (shown["impression_id"] == played["impression_id"]) & soon, "left")
        pairs = pairs.where(within(shown["event_ts"], WINDOW))
        made = pairs.select(shown["impression_id"], shown["show_id"], shown["event_ts"], played["playback_id"])
        made.writeTo("lake.demo.by_hand").using("iceberg").createOrReplace()
