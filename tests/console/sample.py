"""A project as it looks on a bad day, for the browser's tests and the screenshots: an app, its runs, a verdict, an
effect, an archive. Written through the store as runs write it; nothing of it ever ran."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import uvicorn
from sqlalchemy import insert

import rekappa.demo
from console.site_of import Known
from rekappa.console.app import make_app
from rekappa.console.context import Console
from rekappa.console.observed import Observation
from rekappa.expect import CodeChange
from rekappa.home import Home
from rekappa.recovery.advice import advise
from rekappa.recovery.outage import Memory, OutageFacts, QueryFacts, Trouble
from rekappa.shown import plain
from rekappa.store.address import Address
from rekappa.store.database import Database
from rekappa.store.desk import Desk
from rekappa.store.host import this_host
from rekappa.store.leases import run_lease
from rekappa.store.record import Kind, Run, State
from rekappa.store.runs import RunStore
from rekappa.store.tables import SAMPLES
from rekappa.store.task import Task, TaskState
from rekappa.tasks.files import answer_file, log_file
from rekappa.timeline import Window, format_instant
from rekappa.validate.over_time import OverTime, Stretches
from rekappa.validate.result import Cause, Comparison, Outcome, Sample, SinkVerdict, Verdict

START = datetime(2026, 11, 1, 12, tzinfo=UTC)
WINDOW = Window(START + timedelta(minutes=40), START + timedelta(hours=2))
TOKEN = "token-of-this-start"
LIVE, DONE, PUBLISHED = "live_20261101_120000_a1b2", "backfill_20261101_151000_c3d4", "backfill_20261101_151500_e5f6"
FAILED, PLAN, EFFECT = "backfill_20261031_090000_0708", "task_20261101_150900_aaaa", "task_20261101_152000_bbbb"
ADVICE, REWIND, PROOF = "task_20261101_150000_dddd", "task_20261101_150300_eeee", "task_20261101_145900_ffff"
CONTROL = "control_20261101_151200_9a9a"


RATES = """\
app: rates
sources:
  plays:
    schema: impression_id BIGINT, show_id BIGINT, playback_id BIGINT, event_ts TIMESTAMP
    event_time: event_ts
    selected: follow
    candidates:
      follow: {type: iceberg, table: lake.demo.plays}
sinks:
  rates: {type: kafka, topic: rates, key: [show_id]}
"""
BOARD = """\
app: board
sources:
  rates:
    schema: show_id BIGINT, rate DOUBLE, event_ts TIMESTAMP
    event_time: event_ts
    candidates:
      live: {type: kafka, topic: rates}
sinks:
  board: {type: iceberg, table: lake.board.rates, mode: append, event_time: event_ts}
"""
CHAINED = {"rates": RATES, "board": BOARD}
"""Apps that read what the first one writes."""


def fill(folder: Path) -> Home:
    """The demo's app in `folder`, and a store as if its story had been told."""
    home = Home(folder / ".rekappa")
    shutil.copytree(Path(rekappa.demo.__file__).parent / "project", folder / "plays")
    for name, text in CHAINED.items():
        (folder / name).mkdir()
        (folder / name / "rekappa.yaml").write_text(text)
        (folder / name / "app.py").write_text("")
    home.made().logs.mkdir()
    store, desk, app = RunStore.open(home), Desk.open(home), str(folder / "plays")
    spec: dict[str, Any] = {
        "start": format_instant(WINDOW.start),
        "end": format_instant(WINDOW.end),
        "mode": "auto",
        "sinks": ["plays"],
    }
    spec |= {"modes": {"plays": "bulk"}, "overrides": [], "regions": []}
    _run(store, Run(LIVE, "plays", Kind.LIVE, app, created=START, spec={"selected": {"impressions": "live"}}), [
        {"queries": [{"query": "plays", "batch": n, "rows": 3000 * n, "rows_per_second": 900 + 300 * math.sin(n / 4),
                      "lag": max(0, 9000 - 300 * n), "watermark": (START + timedelta(minutes=6 * n)).isoformat(),
                      "state_rows": 2000 + 900 * math.sin(n / 5), "late_rows": n // 3}]}
        for n in range(1, 31)
    ], State.STOPPED)  # fmt: skip
    failed = Run(FAILED, "plays", Kind.BACKFILL, app, created=START - timedelta(days=1), spec=spec)
    _run(store, failed, [], State.FAILED,
         "Cannot make chunk 3 of job 'plays': no space left on device. The run keeps what is done.")  # fmt: skip
    for name, at in ((PUBLISHED, 10), (DONE, 12)):
        _run(store, Run(name, "plays", Kind.BACKFILL, app, created=START + timedelta(hours=3, minutes=at), spec=spec), [
            {"jobs": [{"job": "plays", "mode": "bulk", "done": n, "total": 12, "rows": 1900 * n, "planned_rows": 22_800,
                       "late_rows": 0, "state_rows": 0, "seconds_left": 2.0 * (12 - n),
                       "reached": format_instant(WINDOW.start + timedelta(minutes=6 * n))}]}
            for n in range(13)
        ], State.FINISHED)  # fmt: skip
    control = {**spec, "control_of": DONE, "role": "control"}
    _run(store, Run(CONTROL, "plays", Kind.CONTROL, app, created=START, spec=control), [], State.FINISHED)
    store.update(DONE, validation=verdict(DONE).as_json())
    store.update(PUBLISHED, validation=verdict(PUBLISHED).as_json(),
                 publication={"state": "published", "at": (START + timedelta(hours=4)).isoformat()})  # fmt: skip
    _tasks(home, desk, app)
    return home


def _run(store: RunStore, run: Run, progress: list[dict[str, Any]], state: State, error: str | None = None) -> None:
    store.create(run)
    (Home(Path(run.folder).parent / ".rekappa").logs / f"{run.id}.log").write_text(
        "26/11/01 15:10:02 INFO SparkContext: Running Spark version 4.1.3\n" * 12
    )
    with store.claim([run_lease(run.id)], "run") as claim:
        claim.begin(run.id, f"{run.id}.log")
        claim.end(state, error)
    ended = run.created + timedelta(seconds=8 * max(len(progress), 1))
    store.update(run.id, started=run.created, ended=ended, progress=progress[-1] if progress else {})
    rows = [
        {"run": run.id, "at": run.created + timedelta(seconds=8 * n), "progress": one} for n, one in enumerate(progress)
    ]
    if rows:
        with Database(Address.of(Home(Path(run.folder).parent / ".rekappa"))).changing() as db:
            db.execute(insert(SAMPLES), rows)


def verdict(run: str) -> Verdict:
    columns = ("playback_id",)
    samples = tuple(
        Sample("different", Cause.CODE, columns, {"impression_id": n, "show_id": n % 7, "playback_id": None},
               {"impression_id": n, "show_id": n % 7, "playback_id": 90_000 + n})
        for n in range(4711, 4719)
    )  # fmt: skip
    stretches = Stretches.of(WINDOW)
    counts = tuple(int(40 + 30 * math.sin(n / 5)) if n * stretches.width >= timedelta(minutes=20) else 0
                   for n in range(stretches.count))  # fmt: skip
    over_time = OverTime(stretches, {str(Cause.CODE): counts}, {"playback_id": counts})
    different = sum(counts)
    found = Comparison(
        23_890, 23_890, 23_890 - different, different, 0, 0, ("impression_id",), {"playback_id": different},
        {Cause.CODE: different}, CodeChange({columns: different}, 0, 0), samples=samples, controls=(CONTROL,),
        over_time=over_time,
    )  # fmt: skip
    expected = "changed=playback_id,missing=0,extra=0"
    sink = SinkVerdict("plays", "lake.demo.plays", found, Outcome.PASSED, (), expected, staging=1)
    return Verdict(run, "plays", WINDOW.start, WINDOW.end, START + timedelta(hours=3, minutes=14), (sink,))


def _tasks(home: Home, desk: Desk, app: str) -> None:
    host = this_host()
    for name, words, kept, run, state, error in (
        ("task_20261101_145500_cccc", ("run", app, "--json"), True, LIVE, TaskState.FAILED,
         "Cannot read topic 'impressions' of region 'local': no broker. It was started again 10 times in a row."),
        (PLAN, ("plan", app, "--json"), False, None, TaskState.DONE, None),
        (EFFECT, ("publish", DONE, "--dry-run", "--json"), False, DONE, TaskState.DONE, None),
        (ADVICE, ("advise", app, "--json"), False, None, TaskState.DONE, None),
        (PROOF, ("archive", "verify", app, "--json"), False, None, TaskState.FAILED, None),
        (REWIND, ("rewind", app, "--to=20", "--dry-run", "--json"), False, None, TaskState.DONE, None),
    ):  # fmt: skip
        task = Task(name, words, "anna", "console", str(home.root.parent), host.name, host.machine, "plays", run, kept)
        desk.add_task(task)
        desk.change_task(name, state=state, error=error, restarts=10 * kept, now=("ended",))
        log_file(home, name).write_text("starting Spark …\n" + (f"error: {error}\n" if error else "done\n"))
    answer_file(home, EFFECT).write_text(json.dumps({"sinks": [{
        "sink": "plays", "target": "lake.demo.plays", "state": "never published", "done": False, "added": 0,
        "changed": 2391, "removed": 0, "unchanged": 21_499, "files_dropped": 0, "files_rewritten": 3}]}))  # fmt: skip
    answer_file(home, PLAN).write_text(json.dumps(plan()))
    answer_file(home, ADVICE).write_text(json.dumps(advice()))
    answer_file(home, PROOF).write_text(json.dumps(proof()))
    answer_file(home, REWIND).write_text(json.dumps(rewind()))
    for who, what, run in (("anna", "start", LIVE), ("anna", "backfill", DONE), ("ben", "validate", DONE),
                           ("ben", "publish", PUBLISHED)):  # fmt: skip
        desk.tell(who, "console", what, "plays", run)


def proof() -> dict[str, Any]:
    times = [(START + timedelta(minutes=at)).isoformat() for at in (31, 35)]
    return {"sound": False, "partitions": [{"source": "playbacks", "region": "local", "partition": 1, "duplicates": [],
                                            "gaps": [[4800, 4812]], "gap_times": [times]}]}  # fmt: skip


def plan() -> dict[str, Any]:
    window = WINDOW.as_json()
    sources = [
        {"name": name, "table": f"lake.events.{name}", "files": 3, "rows": rows, "bytes": rows * 9, "skipped_files": 2}
        for name, rows in (("impressions", 30_100), ("playbacks", 9_020))
    ]
    estimate = {"rows": 39_120, "bytes": 352_080, "seconds": 21.0, "state_rows": None, "basis": "two earlier runs"}
    job = {"job": "plays", "mode": "bulk", "reason": "A join within a bounded time can be made of all events at once.",
           "warm_up": 600.0, "warm_up_reason": "the join's range",
           "drain": 1200.0, "drain_reason": "watermark and join",
           "chunks": [{}], "slices": 0, "estimate": estimate, "sources": sources,
           "warnings": ["Source 'playbacks' is not complete for the last ten minutes of the drain."]}  # fmt: skip
    return {"window": window, "regions": [], "jobs": [job]}


def advice() -> dict[str, Any]:
    """What `rekappa advise --json` would say: made of the same values, by the same rules."""
    query = QueryFacts("plays", memory=Memory.BOUNDED, remembers=timedelta(minutes=30), takes=timedelta(seconds=21))
    facts = OutageFacts("plays", WINDOW, START + timedelta(hours=3), Trouble.WRONG, (query,), run=LIVE)
    return {"facts": plain(facts), "advice": plain(advise(facts))}


def rewind() -> dict[str, Any]:
    reset = {"sink": "plays", "target": "lake.demo.plays", "removed": 8120, "restored": 0,
             "told": "10 commits are taken out by their stamps"}  # fmt: skip
    query = {"query": "plays", "batch": 20, "committed": (START + timedelta(hours=2)).isoformat(), "reset": reset,
             "savepoint": "before-the-release", "notes": ["its code has changed since"]}  # fmt: skip
    return {"operation": "live_20261101_153000_f0f0", "app": "plays", "run": LIVE, "queries": [query]}


def answers() -> dict[tuple[str, ...], Observation]:
    """What slow commands said of the archive."""
    now = datetime.now(UTC)
    wave = [int(70 + 45 * math.sin(n / 17) + (90 if 80 <= n < 100 else 0)) for n in range(240)]
    until = format_instant(START + timedelta(hours=2, minutes=50))
    names = (("impressions", wave), ("playbacks", [value // 4 for value in wave]))
    seen = [
        {"source": name, "table": f"lake.events.{name}", "files": 3, "bytes": sum(cells) * 9,
         "start": format_instant(START), "end": format_instant(START + timedelta(hours=3)), "rows": {"local": cells},
         "dead": [3 if n == 90 else 0 for n in range(240)] if name == "playbacks" else [],
         "complete_until": {"local": until}}
        for name, cells in names
    ]  # fmt: skip
    status = [
        {"source": name, "table": f"lake.events.{name}", "lag": 0, "rows": sum(cells), "files": 3, "small_files": 3,
         "bytes": sum(cells) * 9, "complete_until": {"local": until}, "dead_letters": 3 * (name == "playbacks")}
        for name, cells in names
    ]  # fmt: skip
    letter = {"source": "playbacks", "reason": "the message is no JSON object", "archived": False, "region": "local",
              "topic": "playbacks", "partition": 1, "offset": 4711, "ingested": until, "size": 17,
              "value": b"<b>not json</b>".hex(), "text": "<b>not json</b>"}  # fmt: skip
    cost = [
        {"source": name, "days": 30.0, "messages": sum(cells), "kafka_bytes_per_message": 96.0,
         "archive_bytes_per_message": 9.1, "messages_per_day": 140_000, "measured": "log files", "kafka_price": 0.13,
         "archive_price": 0.0009, "currency": "USD", "times_smaller": 10.5, "saved": 0.99}
        for name, cells in names
    ]  # fmt: skip
    points = [
        {"run": LIVE, "query": "plays", "batch": n, "committed": (START + timedelta(minutes=6 * n)).isoformat(),
         "watermark": (START + timedelta(minutes=6 * n - 10)).isoformat(), "offsets": [], "state": 20_480 + 900 * n,
         "restorable": n > 12, "lacking": [] if n > 12 else ["state/0/2/7.delta"],
         "savepoint": "before-the-release" if n == 20 else None}
        for n in range(8, 31)
    ]  # fmt: skip
    queries = [{"query": "plays", "job": "plays", "output": "plays", "sink": "plays",
                "sources": ["impressions", "playbacks"]}]  # fmt: skip
    senders = [
        {"app": "rates", "query": "rates", "run": "live_20261101_120000_aaaa", "counts": "up to batch 20", "until": 20},
        {"app": "rates", "query": "rates", "run": "live_20261101_153000_f0f0", "counts": "all", "until": None},
    ]
    return {
        ("archive", "overview"): Observation(seen, now),
        ("archive", "status"): Observation(status, now),
        ("archive", "dead"): Observation([letter], now),
        ("checkpoints",): Observation(points, now),
        ("cost",): Observation(cost, now),
        ("lineage", "rates"): Observation({"topic": "rates", "cluster": "main", "senders": senders}, now),
        ("config",): Observation({"queries": queries}, now),
    }


@contextmanager
def served(console: Console) -> Iterator[str]:
    """The console on a port of this machine, as `rekappa console` serves it."""
    server = uvicorn.Server(uvicorn.Config(make_app(console), port=0, log_level="warning", access_log=False))
    thread = Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "it did not start"
        thread.join(0.02)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)


class OfOneApp(Known):
    """Of the other apps nothing is known yet."""

    def ask(self, *words: str, **rest: object) -> Observation:
        if words[0] != "lineage" and any(word.endswith(f"/{name}") for word in words for name in CHAINED):
            return Observation(None)
        return super().ask(*words, **rest)


def sample_console(folder: Path) -> Console:
    home = fill(folder)
    known = OfOneApp(home, folder)
    known.answers = answers()
    return Console(home, folder, known, TOKEN, "anna")
