"""The demo's second story: two chained jobs, the first of them wrong from 13:00 to 16:00, made right by one command.

The first job's messages can't be taken back, and the second has added them up: its state is wrong for good.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from rekappa.demo.events import Traffic, in_arrival_order, take_rate
from rekappa.demo.produce import produce
from rekappa.demo.telling import Telling
from rekappa.produce.topics import create_topics
from rekappa.recovery.live_app import LiveApp
from rekappa.store.record import Run
from rekappa.timeline import Window

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rekappa.recovery.plan import RewindPlan

START = datetime(2026, 11, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
SHAPE = Traffic(per_minute=30, quiet=range(0), burst=range(90, 95))
RIGHT, WRONG = '"show_id"', '"account_id % 20 AS show_id"'
BAD, END = 1, 5
"""Of the hours from noon on, the first that is wrong, and how many there are; the last one is right again."""
TABLE, WRONG_TABLE, CLEAN_TABLE = "lake.demo.hourly", "lake.demo.hourly_wrong", "lake.demo.hourly_clean"
CLEAN = {
    "enrich": ("sinks.shown.topic=shown_clean",),
    "hourly": ("sources.shown.candidates.live.topic=shown_clean", f"sinks.hourly.table={CLEAN_TABLE}"),
}


class ChainStory(Telling):
    """One telling, with two apps."""

    @cached_property
    def spark(self) -> SparkSession:
        from rekappa.runs.live import live_session

        return live_session(self.load("enrich")[0], self.home)

    def up(self) -> str:
        """`rekappa up`, and two apps in their folders."""
        from rekappa.stack.broker import up

        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(Path(__file__).with_name("chain"), self.folder, ignore=ignored, dirs_exist_ok=True)
        self.home.root.mkdir()
        return up(self.home).bootstrap

    def deploy(self, *, wrong: bool) -> None:
        """Change one line of the first app's code."""
        code = Path(__file__).with_name("chain").joinpath("enrich", "app.py").read_text()
        (self.folder / "enrich" / "app.py").write_text(code.replace(RIGHT, WRONG) if wrong else code)

    def run_hours(self, hours: Sequence[int], bootstrap: str) -> datetime:
        """Some hours of events, then `rekappa run` of both; answers when all of it was done."""
        everything = [
            event
            for event in in_arrival_order(take_rate(Window(START, START + END * HOUR), SHAPE))
            if event.topic == "impressions"
        ]
        first, last = START + hours[0] * HOUR, START + (hours[-1] + 1) * HOUR
        events = [one for one in everything if first <= one.ingested and (one.ingested < last or hours[-1] == END - 1)]
        create_topics(bootstrap, {"impressions", "shown", "shown_clean"})
        self.sent += produce(bootstrap, events, prefixes=False)
        self.run_both()
        return datetime.now(UTC)

    def run_both(self) -> list[Run]:
        return [self.run_live(app) for app in ("enrich", "hourly")]

    def rewind(self, moment: datetime) -> RewindPlan:
        """`rekappa rewind enrich --to TIME --cascade`."""
        from rekappa.recovery.choose import ToTime
        from rekappa.recovery.rewind import plan_rewind, rewind

        live = LiveApp(self.spark, self.home, *self.load("enrich"))
        plan = plan_rewind(live, ToTime(moment), cascade=True)
        rewind(live, plan)
        return plan

    def in_topic(self) -> int:
        """How many messages the topic between the two holds, whether they count or not."""
        from rekappa.sources.kafka import cluster_options

        options = cluster_options(self.load("enrich")[0].config, "main", self.home)
        return int(self.spark.read.format("kafka").options(**options, subscribe="shown").load().count())

    def clean_run(self) -> None:
        """Both apps with the right code over all of Kafka, into a topic and a table of their own."""
        for app, overrides in CLEAN.items():
            self.run_live(app, *overrides, fresh=True)

    def remember(self) -> None:
        """Keep the table as it is, to be compared later."""
        self.spark.catalog.refreshTable(TABLE)
        self.spark.table(TABLE).writeTo(WRONG_TABLE).using("iceberg").create()

    def differing(self, table: str) -> int:
        """How many rows of the table are not those of the clean run, or missing."""
        for one in (table, CLEAN_TABLE):
            self.spark.catalog.refreshTable(one)
        made, clean = self.spark.table(table), self.spark.table(CLEAN_TABLE)
        return made.exceptAll(clean).count() + clean.exceptAll(made).count()
