"""The console's pages with many runs in the store: milliseconds until the page is there, as its server makes it.

The archive's figures come from what a command in the background said last, which has the same size for any number of
files; how long that command takes is the planner's figure.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient
from sqlalchemy import insert

from rekappa.console.app import make_app
from rekappa.console.context import Console
from rekappa.console.observed import Observation, Observed
from rekappa.home import Home
from rekappa.store.address import Address
from rekappa.store.database import Database
from rekappa.store.record import Kind, Run, State
from rekappa.store.rows import run_row
from rekappa.store.runs import RunStore
from rekappa.store.tables import RUNS

RUNS_KEPT, ROUNDS, FILES = 10_000, 15, 100_000
START = datetime(2026, 11, 1, tzinfo=UTC)
CONFIG = """\
app: shop
sources:
  clicks:
    schema: id BIGINT, event_ts TIMESTAMP
    event_time: event_ts
    candidates:
      live: {type: kafka, topic: clicks}
      backfill: {type: iceberg, table: lake.events.clicks}
sinks:
  totals: {type: iceberg, table: lake.shop.totals, event_time: event_ts}
"""


class LargeArchive(Observed):
    """Answers as the commands would of an archive with many files."""

    def ask(self, *words: str, **rest: Any) -> Observation:
        until = {"eu": "2026-11-30T00:00Z"}
        counts = {"source": "clicks", "table": "lake.events.clicks", "files": FILES, "bytes": FILES * 2**20}
        cells = [int(1e6 + 1e5 * math.sin(n)) for n in range(240)]
        over = {
            "start": "2026-11-01T00:00Z",
            "end": "2026-12-01T00:00Z",
            "rows": {"eu": cells, "us": cells},
            "dead": cells,
        }
        rest = {"lag": 7, "rows": 10**9, "small_files": 3, "dead_letters": 5}
        value = {
            "overview": [counts | over | {"complete_until": until}],
            "status": [counts | rest | {"complete_until": until}],
        }
        return Observation(value.get(words[1] if len(words) > 1 else ""), datetime.now(UTC))


def main() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder, home = Path(name), Home(Path(name) / ".rekappa")
        (folder / "shop").mkdir()
        (folder / "shop" / "rekappa.yaml").write_text(CONFIG)
        (folder / "shop" / "app.py").write_text("")
        RunStore.open(home)
        spec = {"start": "2026-11-01T00:00Z", "end": "2026-11-01T01:00Z", "sinks": ["totals"]}
        job = {"job": "totals", "mode": "bulk", "done": 9, "total": 9, "rows": 10**6, "planned_rows": 10**6}
        runs = [
            Run(f"backfill_{n}", "shop", Kind.BACKFILL, "f", State.FINISHED, START + timedelta(seconds=n), spec=spec,
                progress={"jobs": [job]})
            for n in range(RUNS_KEPT)
        ]  # fmt: skip
        with Database(Address.of(home)).changing() as db:
            db.execute(insert(RUNS), [run_row(run) for run in runs])
        console = Console(home, folder, LargeArchive(home, folder), "token", "anna")
        with TestClient(make_app(console), base_url="http://127.0.0.1") as client:
            client.get("/login?token=token")
            found = {page: _measured(client, page) for page in PAGES}
    return {"runs": RUNS_KEPT, "files": FILES, "milliseconds": found, "slowest": max(found.values())}


PAGES = ("/", "/apps/shop", "/runs", "/runs/backfill_77", "/runs/backfill_77/publish", "/apps/shop/backfill",
         "/apps/shop/archive", "/metrics")  # fmt: skip


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
