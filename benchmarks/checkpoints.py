"""Restart points of a query that keeps many batches: what `rekappa checkpoints` takes to find them, by a listing.

A join with four partitions has 16 state stores, each with a file for every batch and its checksum. The files are
empty, but for the log: their contents are not looked at.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rekappa.checkpoints.savepoints import DENSE, EVERY, KEPT, THINNED, name_for, take
from rekappa.home import Home
from rekappa.recovery.listing import known_points
from rekappa.store.record import Batch, Kind, Run, State
from rekappa.store.runs import RunStore

SIZES = (250, 1000, 4000)
ROUNDS = 5
PARTITIONS, SNAPSHOT_EVERY = 4, 10
STORES = ("left-keyToNumValues", "left-keyWithIndexToValue", "right-keyToNumValues", "right-keyWithIndexToValue")
MOMENT = 1_790_000_000_000
RUN = "live_20261101_000000_ab12"
CONFIG = """
app: shop
sources:
  clicks:
    schema: id BIGINT, event_ts TIMESTAMP
    event_time: event_ts
    candidates: {live: {type: kafka, topic: clicks}}
sinks:
  joined: {type: "null"}
"""


def main() -> dict[str, Any]:
    """Seconds by batches kept, the median of some rounds; the whole command, too; and three days of savepoints."""
    kept = {str(batches): _kept(batches) for batches in SIZES}
    return {"kept": kept, "three_days": _three_days()}


def _kept(batches: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        home, files = _checkpoint(Path(folder), batches)
        store = RunStore.existing(home)
        times = sorted(_seconds(lambda: _listed(home, store, batches)) for _ in range(ROUNDS))
        command = _seconds(lambda: _command(Path(folder), home))
    print(f"   {batches}: {times}", flush=True)
    return {"files": files, "seconds": round(times[ROUNDS // 2], 3), "whole_command_seconds": round(command, 2)}


def _listed(home: Home, store: RunStore, batches: int) -> None:
    points = known_points(home, store, store.run(RUN))
    assert sum(one.restorable for one in points) == batches - 1, "all but the first, whose log of before is purged"


def _command(folder: Path, home: Home) -> None:
    words = [sys.executable, "-m", "rekappa.cli.main", "checkpoints", str(folder / "shop"), "--json"]
    environ = {**os.environ, "REKAPPA_HOME": str(home.root), "PYTHONPATH": ":".join(sys.path)}
    subprocess.run(words, env=environ, check=True, stdout=subprocess.DEVNULL)


def _three_days() -> dict[str, Any]:
    """All automatic savepoints that a run has after three days, beside 200 batches: how many files there are in all."""
    now = datetime(2026, 11, 4, tzinfo=UTC)
    ages = [DENSE - EVERY * at for at in range(DENSE // EVERY)]
    ages += [KEPT - THINNED * at for at in range((KEPT - DENSE) // THINNED)]
    with tempfile.TemporaryDirectory() as folder:
        home, _ = _checkpoint(Path(folder), 200)
        for age in ages:
            take(home, "shop", RUN, ["joined"], name_for(now - age, automatic=True), now - age)
        store = RunStore.existing(home)
        files = sum(1 for path in home.root.rglob("*") if path.is_file())
        seconds = _seconds(lambda: known_points(home, store, store.run(RUN)))
        return {"savepoints": len(ages), "files": files, "seconds": round(seconds, 3)}


def _checkpoint(folder: Path, batches: int) -> tuple[Home, int]:
    """A project whose run has kept so many batches; the first of them is not the first that it ran."""
    app = folder / "shop"
    app.mkdir()
    (app / "app.py").write_text("")
    (app / "rekappa.yaml").write_text(CONFIG)
    home = Home(folder / ".rekappa")
    store = RunStore.open(home)
    spec = {"selected": {"clicks": "live"}, "targets": {"joined": ""}, "elsewhere": {}}
    store.create(Run(RUN, "shop", Kind.LIVE, str(app), state=State.STOPPED, spec=spec))
    first = 100
    store.record_batches([Batch(RUN, "joined", first + batches - 1, (), None, datetime.now(UTC))])
    query = Path(home.checkpoint("shop", RUN).path) / "joined"
    for at in range(first, first + batches):
        told = json.dumps(
            {"batchWatermarkMs": 1_790_000_000_000, "batchTimestampMs": 1_790_000_000_000 + at, "conf": {}}
        )
        _put(query / "offsets" / str(at), f'v1\n{told}\n{{"clicks":{{"0":{at},"1":{at}}}}}\n{{"plays":{{"0":{at}}}}}')
        _put(query / "commits" / str(at), "v1\n{}")
    for partition in range(PARTITIONS):
        for name in STORES:
            here = query / "state" / "0" / str(partition) / name
            for version in range(first - SNAPSHOT_EVERY, first + batches + 1):
                _put(here / f"{version}.delta", "")
                if version % SNAPSHOT_EVERY == 0:
                    _put(here / f"{version}.snapshot", "")
    return home, sum(1 for path in query.rglob("*") if path.is_file())


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.with_name(f".{path.name}.crc").write_text("")


def _seconds(work: Any) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began
