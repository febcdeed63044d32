"""What one would be woken for, told to a webhook: when it begins, and when it is over.

The rules are pure; the watcher looks now and then, and sends what has changed.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.concurrency import run_in_threadpool

from rekappa.console.sight import Sight
from rekappa.errors import RekappaError
from rekappa.masking import hidden
from rekappa.store.record import State
from rekappa.store.task import TaskState
from rekappa.timeline import format_duration, format_instant

EVERY = timedelta(seconds=30)
RECENT = timedelta(days=1)
"""A run that failed longer ago wakes nobody any more."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """From where on somebody is told."""

    lag: int = 100_000
    behind: timedelta = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class Alert:
    """`key` is the same as long as it is the same thing that is wrong."""

    key: str
    rule: str
    app: str
    text: str


def alerts(now: Sight, before: Sight | None, bounds: Bounds) -> dict[str, Alert]:
    """What is wrong now. Rising dead letters are told by comparing with the look before."""
    found = []
    for app, lag in now.lags.items():
        if lag > bounds.lag:
            found.append(Alert(f"lag {app}", "lag", app, f"{lag:,} events wait in Kafka for {app}"))
    earlier = {(one.app, one.source): one.dead_letters for one in before.archives} if before else {}
    for one in now.archives:
        key = f"{one.app}/{one.source}"
        if one.complete_until is not None and now.at - one.complete_until > bounds.behind:
            late = format_duration((now.at - one.complete_until) // timedelta(seconds=1) * timedelta(seconds=1))
            text = f"The archive of {key} is complete only until {format_instant(one.complete_until)}, {late} ago"
            found.append(Alert(f"incomplete {key}", "archive not complete", one.app, text))
        rise = one.dead_letters - earlier.get((one.app, one.source), one.dead_letters)
        if rise > 0:
            text = f"{rise:,} new dead letters of {key}, {one.dead_letters:,} in all"
            found.append(Alert(f"dead {key} {one.dead_letters}", "dead letters rising", one.app, text))
    for run in now.newest:
        since = run.ended or run.started or run.created
        if run.state in (State.FAILED, State.DIED) and now.at - since < RECENT:
            text = f"Run {run.id} of {run.app} {run.state}: {run.error or 'its process is gone'}"
            found.append(Alert(f"run {run.id}", "run failed", run.app, text))
    for task in now.tasks:
        if task.kept and task.state in (TaskState.FAILED, TaskState.LOST) and now.at - task.created < RECENT:
            text = f"`{task.command}` is {task.state}: {task.error or 'nobody looks after it'}"
            found.append(Alert(f"job {task.id}", "job failed", task.app or "", text))
    return {one.key: one for one in found}


@dataclass(slots=True)
class Watcher:
    """`look` is called in a thread; `send` gets one document for each change."""

    look: Callable[[datetime], Sight]
    send: Callable[[Mapping[str, Any]], None]
    bounds: Bounds = field(default_factory=Bounds)
    _before: Sight | None = None
    _known: dict[str, Alert] = field(default_factory=dict)

    async def watch(self) -> None:
        while True:
            await run_in_threadpool(self.once, datetime.now(UTC))
            await asyncio.sleep(EVERY.total_seconds())

    def once(self, now: datetime) -> None:
        """One look. What could not be sent is sent the next time."""
        try:
            sight = self.look(now)
            found = alerts(sight, self._before, self.bounds)
            for key in [*found, *self._known]:
                if (key in found) == (key in self._known):
                    continue
                one = found.get(key) or self._known[key]
                self.send(_document(one, "firing" if key in found else "resolved", now))
                if key in found:
                    self._known[key] = one
                else:
                    del self._known[key]
            self._before = sight
        except (RekappaError, OSError) as error:
            print(f"alerts: {hidden(str(error))}", file=sys.stderr)


def _document(alert: Alert, state: str, now: datetime) -> dict[str, Any]:
    return {
        "state": state,
        "rule": alert.rule,
        "app": alert.app,
        "key": alert.key,
        "text": hidden(alert.text),
        "at": now.isoformat(),
    }


def webhook(address: str) -> Callable[[Mapping[str, Any]], None]:
    """Sends by POST as JSON. `requests` raises what is an OSError when that fails."""

    def send(document: Mapping[str, Any]) -> None:
        import requests

        requests.post(address, json=document, timeout=10).raise_for_status()

    return send
