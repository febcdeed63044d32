"""What one would be woken for, told to a webhook: when it begins, and when it is over.

The rules are pure; the watcher looks now and then, and sends what has changed.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool

from rekappa.console.sight import Sight
from rekappa.errors import RekappaError
from rekappa.masking import hidden
from rekappa.store.record import State
from rekappa.store.task import TaskState
from rekappa.timeline import format_duration, format_instant

EVERY = timedelta(seconds=30)
AT_ONCE = 16
"""So many are told at the same time: a server that is slow to take one holds up few others."""
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
    """`look` is called in a thread; `send` gets one document for each change, in threads of its own."""

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
        """One look. What could not be sent is sent the next time, if it is still so; the rest is sent meanwhile."""
        try:
            sight = self.look(now)
        except (RekappaError, OSError) as error:
            print(f"alerts: {hidden(str(error))}", file=sys.stderr)
            return
        found = alerts(sight, self._before, self.bounds)
        changed = [key for key in dict.fromkeys([*found, *self._known]) if (key in found) != (key in self._known)]
        told = True
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="alerts") as pool:
            sent = {key: pool.submit(self._tell, key, found.get(key), now) for key in changed}
        for key, future in sent.items():
            failure = future.exception()
            if isinstance(failure, RekappaError | OSError):
                print(f"alerts: {hidden(str(failure))}", file=sys.stderr)
                told = False
            elif failure is not None:
                raise failure
            elif key in found:
                self._known[key] = found[key]
            else:
                del self._known[key]
        # What rises is told by comparing with the last look of which all could be told.
        self._before = sight if told else self._before

    def _tell(self, key: str, now_wrong: Alert | None, now: datetime) -> None:
        self.send(_document(now_wrong or self._known[key], "firing" if now_wrong else "resolved", now))


def _document(alert: Alert, state: str, now: datetime) -> dict[str, Any]:
    return {
        "state": state,
        "rule": alert.rule,
        "app": alert.app,
        "key": alert.key,
        "text": hidden(alert.text),
        "at": now.isoformat(),
    }


def webhook(address: str, patience: float = 10.0) -> Callable[[Mapping[str, Any]], None]:
    """Sends by POST as JSON, and refuses any answer but a yes. Errors name the server, not the address: that may hold
    a key. No redirection is followed: what is told goes to the server that was named, or nowhere."""
    server = urlsplit(address).netloc.rpartition("@")[2]

    def send(document: Mapping[str, Any]) -> None:
        import requests

        try:
            answer = requests.post(address, json=document, timeout=patience, allow_redirects=False, stream=True)
            answer.close()  # What it says beyond yes or no is not waited for.
        except requests.Timeout:
            raise ConnectionError(
                f"Cannot tell the webhook at {server}: it did not answer within {patience:g} s"
            ) from None
        except requests.RequestException as error:
            raise ConnectionError(f"Cannot tell the webhook at {server}: {type(error).__name__}") from None
        if not answer.ok or answer.is_redirect:
            raise ConnectionError(f"Cannot tell the webhook at {server}: it answered {answer.status_code}")

    return send
