"""The webhook over real HTTP: what arrives, what is sent again, what holds nobody up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Barrier, Event, Thread
from typing import Any

import pytest

from console.test_alerts import NOW, QUIET
from rekappa.console.alerts import Bounds, Watcher, webhook
from rekappa.console.sight import Sight
from rekappa.store.record import Kind, Run, State

LATE = replace(QUIET, lags={"shop": 5000})


@dataclass
class Pager:
    """Somebody's server: answers the statuses it is told to, then 200; notes what arrived."""

    address: str = ""
    statuses: list[int] = field(default_factory=list)
    arrived: list[dict[str, Any]] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)
    hangs: Event = field(default_factory=Event)
    together: Barrier | None = None


@contextmanager
def pager(*statuses: int) -> Iterator[Pager]:
    found = Pager(statuses=list(statuses))
    found.hangs.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.kinds.add(self.headers["Content-Type"])
            found.hangs.wait(60)
            if found.together:
                found.together.wait(60)
            status = found.statuses.pop(0) if found.statuses else 200
            if status == 200:
                found.arrived.append(json.loads(body))
            self.send_response(status)
            if status == 302:
                self.send_header("Location", "http://127.0.0.1:1/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.address = f"http://127.0.0.1:{server.server_address[1]}/hook?key=s3cr3tkey"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        found.hangs.set()
        server.shutdown()
        server.server_close()
        thread.join(30)


def watcher(address: str, *sights: Sight, patience: float = 30) -> Watcher:
    looks = iter(sights)
    return Watcher(lambda now: next(looks), webhook(address, patience), Bounds(1000, timedelta(minutes=15)))


def test_it_is_told_when_it_begins_and_when_it_is_over() -> None:
    with pager() as found:
        watch = watcher(found.address, QUIET, LATE, LATE, QUIET)
        for _ in range(4):
            watch.once(NOW)
    assert [(one["state"], one["rule"], one["app"]) for one in found.arrived] == [
        ("firing", "lag", "shop"), ("resolved", "lag", "shop"),
    ]  # fmt: skip
    assert found.kinds == {"application/json"}


@pytest.mark.parametrize("status", [500, 503, 404, 302])
def test_what_was_refused_is_sent_again_at_the_next_look(status: int, capsys: pytest.CaptureFixture[str]) -> None:
    with pager(status, status) as found:
        watch = watcher(found.address, LATE, LATE, LATE, LATE)
        for _ in range(4):
            watch.once(NOW)
    assert [one["state"] for one in found.arrived] == ["firing"], "once, when it was taken"
    said = capsys.readouterr().err
    assert said.count("alerts: ") == 2
    assert "s3cr3tkey" not in said, "an address may hold a key"


def test_a_server_that_is_away_is_told_later_what_is_still_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    with pager() as found:
        away = found.address
    watch = watcher(away, LATE, LATE)
    watch.once(NOW)
    assert "alerts: Cannot tell the webhook" in capsys.readouterr().err
    with pager() as back:
        watch.send = webhook(back.address)
        watch.once(NOW)
        assert [one["rule"] for one in back.arrived] == ["lag"]


def test_a_server_that_does_not_answer_is_not_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    with pager() as found:
        found.hangs.clear()
        watch = watcher(found.address, LATE, LATE, patience=0.2)
        watch.once(NOW)
        assert "did not answer" in capsys.readouterr().err
        found.hangs.set()
        watch.send = webhook(found.address)
        watch.once(NOW)
        assert found.arrived[-1]["state"] == "firing"


def test_one_that_fails_does_not_keep_the_others_from_being_told() -> None:
    both = replace(LATE, newest=(Run("live_1", "shop", Kind.LIVE, "f", State.FAILED, created=NOW, error="no broker"),))
    with pager(500) as found:
        watch = watcher(found.address, both, both)
        watch.once(NOW)
        assert len(found.arrived) == 1
        watch.once(NOW)
    assert {one["rule"] for one in found.arrived} == {"lag", "run failed"}
    assert len(found.arrived) == 2


def test_a_slow_answer_to_one_does_not_hold_up_the_others() -> None:
    """The server takes none of them until all have come: told one after another, each would wait for the one before."""
    failed = [Run(f"live_{number}", "shop", Kind.LIVE, "f", State.FAILED, created=NOW) for number in range(8)]
    with pager() as found:
        found.together = Barrier(len(failed))
        watcher(found.address, replace(QUIET, newest=tuple(failed))).once(NOW)
    assert {one["key"] for one in found.arrived} == {f"run {run.id}" for run in failed}


def test_new_dead_letters_are_told_although_the_first_try_failed() -> None:
    more = replace(QUIET, archives=(replace(QUIET.archives[0], dead_letters=9),))
    with pager(500) as found:
        watch = watcher(found.address, QUIET, more, more, more)
        for _ in range(4):
            watch.once(NOW)
    assert [one["state"] for one in found.arrived] == ["firing", "resolved"]
    assert found.arrived[0]["text"] == "6 new dead letters of shop/clicks, 9 in all"


def test_no_secret_is_sent() -> None:
    run = Run("live_1", "shop", Kind.LIVE, "f", State.FAILED, created=NOW,
              error="Cannot reach postgresql://me:hunter2@db/x with sasl.password=hunter3")  # fmt: skip
    with pager() as found:
        watcher(found.address, replace(QUIET, newest=(run,))).once(NOW)
    (document,) = found.arrived
    assert set(document) == {"state", "rule", "app", "key", "text", "at"}
    assert "hunter" not in json.dumps(document)
    assert "Cannot reach postgresql://me:" in document["text"]
