"""Publishing one sink's rows in tests, as `rekappa.publish` does for a whole run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rekappa.publish.make import plan_of
from rekappa.publish.plan import Effect, PublishState
from rekappa.publish.publishers.contract import Part, Publisher
from rekappa.staging.tables import before_sink
from rekappa.timeline import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from rekappa.config.model import AppConfig

# Rows are a minute apart from 08:00 on: these are 10 to 39.
WINDOW = Window.parse("2026-11-01T08:10Z", "2026-11-01T08:40Z")


def part(config: AppConfig, sink: str, rows: DataFrame, run: str = "run-7", window: Window = WINDOW) -> Part:
    return Part(
        spark=rows.sparkSession,
        sink=sink,
        run=run,
        window=window,
        regions=(),
        rows=rows,
        keys=rows.select(*config.sinks[sink].key),
        staging=None,
        baseline=None,
        known=True,
        before=lambda one: before_sink(config, one, sink),
    )


def effect(publisher: Publisher) -> Effect:
    return plan_of(publisher, PublishState.NEVER).effect


def publish(publisher: Publisher) -> Effect:
    return publisher.publish(plan_of(publisher, PublishState.NEVER), lambda: None)


def undo(publisher: Publisher) -> Effect:
    return publisher.undo(lambda: None, force=False)
