"""The console's pages with many runs in the store and a real archive of many files: milliseconds until a page is there.

The archive is an Iceberg table made from metadata alone (`_large`). What the pages show of it is asked for in the
background, by the real commands, before anything is timed; how long those took is told beside.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient
from sqlalchemy import insert

from benchmarks import _large
from rekappa.console.app import make_app
from rekappa.console.context import Console
from rekappa.console.observed import Observed
from rekappa.home import Home
from rekappa.store.address import Address
from rekappa.store.database import Database
from rekappa.store.record import Kind, Run, State
from rekappa.store.rows import run_row
from rekappa.store.runs import RunStore
from rekappa.store.tables import RUNS

RUNS_KEPT, ROUNDS = 10_000, 15
FILES = int(os.environ.get("REKAPPA_FILES", "100000"))
START = datetime(2026, 1, 1, tzinfo=UTC)
CONFIG = """\
app: shop
sources:
  plays:
    schema: id BIGINT, event_ts TIMESTAMP
    event_time: event_ts
    candidates:
      live: {type: kafka, topic: plays}
      backfill: {type: iceberg, table: lake.events.plays}
sinks:
  totals: {type: iceberg, table: lake.shop.totals, event_time: event_ts}
"""
CODE = "from rekappa import App\n\napp = App('shop')\n\n\n@app.job\ndef totals(plays):\n    return plays\n"
PAGES = ("/", "/apps/shop", "/runs", "/runs/backfill_77", "/runs/backfill_77/publish", "/apps/shop/backfill",
         "/apps/shop/estimate?start=2026-01-02T00:00Z&end=2026-01-03T00:00Z", "/apps/shop/archive", "/apps/shop/advise",
         "/apps/shop/checkpoints", "/tasks", "/audit", "/metrics")  # fmt: skip


def main() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder, home = Path(name), Home(Path(name) / ".rekappa")
        home.made()
        _large.create(home.root, FILES)
        (folder / "shop").mkdir()
        (folder / "shop" / "rekappa.yaml").write_text(CONFIG)
        (folder / "shop" / "app.py").write_text(CODE)
        _fill(home)
        console = Console(home, folder, Observed(home, folder), "token", "anna")
        with TestClient(make_app(console), base_url="http://127.0.0.1") as client:
            client.get("/login?token=token")
            began = time.monotonic()
            status, overview = _looked_at(client, home)
            looked = time.monotonic() - began
            assert (status["files"], overview["files"]) == (FILES, FILES), "the pages show the whole archive"
            found = {page: _measured(client, page) for page in PAGES}
            assert f"{FILES:,}" in client.get("/apps/shop/archive").text
    return {
        "runs": RUNS_KEPT,
        "files": FILES,
        "milliseconds": found,
        "slowest": max(found.values()),
        "seconds_in_the_background": round(looked, 1),
    }


def _fill(home: Home) -> None:
    RunStore.open(home)
    spec = {"start": "2026-01-02T00:00Z", "end": "2026-01-02T01:00Z", "sinks": ["totals"]}
    job = {"job": "totals", "mode": "bulk", "done": 9, "total": 9, "rows": 10**6, "planned_rows": 10**6}
    runs = [
        Run(f"backfill_{n}", "shop", Kind.BACKFILL, "f", State.FINISHED, START + timedelta(seconds=n), spec=spec,
            progress={"jobs": [job]})
        for n in range(RUNS_KEPT)
    ]  # fmt: skip
    with Database(Address.of(home)).changing() as db:
        db.execute(insert(RUNS), [run_row(run) for run in runs])


def _looked_at(client: TestClient, home: Home) -> tuple[dict[str, Any], dict[str, Any]]:
    """Open the pages until every command that they ask in the background has answered."""
    deadline = time.monotonic() + 600
    wanted = {"status", "overview", "dead", "cost", "config"}
    answers: dict[str, Any] = {}
    while wanted - set(answers):
        assert time.monotonic() < deadline, f"not answered: {wanted - set(answers)}"
        for page in ("/", "/apps/shop/archive"):
            client.get(page)
        for file in (home.root / "console").glob("*.json"):
            told = json.loads(file.read_text())
            name = told["words"][1] if told["words"][0] == "archive" else told["words"][0]
            answers[name] = told["value"]
        time.sleep(0.5)
    return answers["status"][0], answers["overview"][0]


def _measured(client: TestClient, page: str) -> float:
    times = []
    for number in range(ROUNDS + 2):
        began = time.perf_counter()
        assert client.get(page).status_code == 200, page
        if number > 1:
            times.append(time.perf_counter() - began)
    return round(1000 * statistics.median(times), 1)


if __name__ == "__main__":
    print(main())
