"""Metrics and alerts: what one would be woken for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from console.site_of import TOKEN, Site
from rekappa.console.alerts import Bounds, Watcher, alerts
from rekappa.console.metrics import Figures
from rekappa.console.observed import Observation
from rekappa.console.sight import SeenArchive, Sight
from rekappa.store.leases import run_lease
from rekappa.store.record import Kind, Run, State
from rekappa.store.task import Task, TaskState
from rekappa.tasks.standing import newest_of_each

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
QUIET = Sight(NOW, archives=(SeenArchive("shop", "clicks", 0, 3, NOW - timedelta(minutes=1)),))


def told(now: Sight, before: Sight | None = None) -> set[str]:
    return {one.rule for one in alerts(now, before, Bounds(1000, timedelta(minutes=15))).values()}


def test_nobody_is_woken_by_a_quiet_night() -> None:
    assert told(QUIET) == set()
    assert told(QUIET, QUIET) == set()
    assert told(replace(QUIET, lags={"shop": 1000}), QUIET) == set()


def test_each_rule_fires() -> None:
    assert told(replace(QUIET, lags={"shop": 1001})) == {"lag"}
    late = SeenArchive("shop", "clicks", 0, 3, NOW - timedelta(minutes=16))
    assert told(replace(QUIET, archives=(late,))) == {"archive not complete"}
    more = replace(QUIET, archives=(replace(QUIET.archives[0], dead_letters=4),))
    assert told(more, QUIET) == {"dead letters rising"}
    assert told(more) == set(), "what was there before the first look is not rising"
    for state in (State.FAILED, State.DIED):
        run = Run("live_1", "shop", Kind.LIVE, "f", state, created=NOW, error="no broker")
        assert told(replace(QUIET, newest=(run,))) == {"run failed"}
        old = replace(run, created=NOW - timedelta(days=2))
        assert told(replace(QUIET, newest=(old,))) == set()
    task = Task("t", ("run", "shop"), "olga", "cli", "/", "h", "m", kept=True, state=TaskState.LOST, created=NOW)
    assert told(replace(QUIET, tasks=(task,))) == {"job failed"}


def test_a_webhook_is_told_once_when_it_begins_and_once_when_it_is_over() -> None:
    sights = [QUIET, *[replace(QUIET, lags={"shop": 5000})] * 3, QUIET, QUIET]
    sent: list[Mapping[str, Any]] = []
    broken = True

    def send(document: Mapping[str, Any]) -> None:
        if broken:
            raise OSError("no route to postgresql://me:pw@host/x")
        sent.append(document)

    looks = iter(sights)
    watcher = Watcher(lambda now: next(looks), send, Bounds(1000, timedelta(minutes=15)))
    watcher.once(NOW)
    watcher.once(NOW)
    broken = False
    for _ in sights[2:]:
        watcher.once(NOW)
    assert [(one["state"], one["rule"], one["app"]) for one in sent] == [
        ("firing", "lag", "shop"), ("resolved", "lag", "shop"),
    ]  # fmt: skip


def test_the_documented_rules_name_metrics_that_there_are() -> None:
    text = (Path(__file__).parents[2] / "docs" / "console.md").read_text()
    named = set(re.findall(r"rekappa_[a-z_]+", text)) - {"rekappa_archive_dead_letters_total"}
    there = {family.name for family in Figures(QUIET).collect()}
    assert named == there - {"rekappa_archive_dead_letters"}


def test_metrics_say_what_the_store_and_the_archive_say(site: Site) -> None:
    site.store.create(Run("live_1", "shop", Kind.LIVE, "f"))
    site.store.create(Run("backfill_1", "shop", Kind.BACKFILL, "f", State.FAILED))
    status = [{"source": "clicks", "lag": 7, "dead_letters": 2, "complete_until": {"eu": "2026-11-01T12:00Z"}}]
    site.known.answers[("archive", "status")] = Observation(status, NOW)
    with site.store.claim([run_lease("live_1")], "run") as claim:
        claim.begin("live_1")
        claim.update(progress={"queries": [{"query": "a", "lag": 40}, {"query": "b", "lag": 2}]})
        answer = site.browser().get("/metrics", headers={"authorization": f"Bearer {TOKEN}"})
    found = {
        (sample.name, tuple(sorted(sample.labels.values()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    assert found["rekappa_live_lag_events", ("shop",)] == 42
    assert found["rekappa_runs", ("backfill", "failed", "shop")] == 1
    assert found["rekappa_archive_lag_events", ("clicks", "shop")] == 7
    assert found["rekappa_archive_dead_letters_total", ("clicks", "shop")] == 2
    assert found["rekappa_archive_complete_until_timestamp_seconds", ("clicks", "shop")] == NOW.timestamp()


def test_a_job_that_failed_counts_until_the_same_is_started_again() -> None:
    failed = Task("t1", ("run", "shop"), "olga", "cli", "/", "h", "m", app="shop", kept=True, state=TaskState.FAILED,
                  created=NOW - timedelta(minutes=9))  # fmt: skip
    again = replace(failed, id="t2", state=TaskState.RUNNING, created=NOW)
    assert told(replace(QUIET, tasks=newest_of_each([failed]))) == {"job failed"}
    assert told(replace(QUIET, tasks=newest_of_each([again, failed]))) == set()
