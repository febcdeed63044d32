"""`/metrics` for Prometheus, through its official client."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from fastapi import APIRouter, Request
from fastapi.responses import Response
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rekappa.console.context import console_of
from rekappa.console.sight import Sight, look

router = APIRouter()
CONTENT = "text/plain; version=0.0.4; charset=utf-8"


class Figures(Collector):
    def __init__(self, sight: Sight) -> None:
        self._sight = sight

    def collect(self) -> Iterator[Metric]:
        sight = self._sight
        runs = GaugeMetricFamily("rekappa_runs", "Runs by their recorded state.", labels=["app", "kind", "state"])
        for (app, kind, state), count in sight.counts.items():
            runs.add_metric([app, kind.value, state.value], count)
        yield runs
        died = GaugeMetricFamily(
            "rekappa_runs_died", "Of the newest runs, those whose process is gone.", labels=["app"]
        )
        for app in {run.app for run in sight.newest}:
            died.add_metric([app], sum(run.app == app and run.state == "died" for run in sight.newest))
        yield died
        lag = GaugeMetricFamily(
            "rekappa_live_lag_events", "Events that wait in Kafka for the live run.", labels=["app"]
        )
        for app, value in sight.lags.items():
            lag.add_metric([app], value)
        yield lag
        labels = ["app", "source"]
        behind = GaugeMetricFamily("rekappa_archive_lag_events", "Events that the archive has not yet.", labels=labels)
        dead = CounterMetricFamily("rekappa_archive_dead_letters", "Messages that could not be decoded.", labels=labels)
        until = GaugeMetricFamily(
            "rekappa_archive_complete_until_timestamp_seconds", "Up to when all regions are complete.", labels=labels
        )
        for one in sight.archives:
            if one.lag is not None:
                behind.add_metric([one.app, one.source], one.lag)
            dead.add_metric([one.app, one.source], one.dead_letters)
            if one.complete_until is not None:
                until.add_metric([one.app, one.source], one.complete_until.timestamp())
        yield from (behind, dead, until)
        jobs = GaugeMetricFamily("rekappa_jobs", "Jobs that are looked after, by state.", labels=["state"])
        states = [task.state for task in sight.tasks if task.kept]
        for word in sorted(set(states)):
            jobs.add_metric([word.value], states.count(word))
        yield jobs


@router.get("/metrics")
def metrics(request: Request) -> Response:
    registry = CollectorRegistry()
    registry.register(Figures(look(console_of(request), datetime.now(UTC))))
    return Response(generate_latest(registry), headers={"Content-Type": CONTENT})
