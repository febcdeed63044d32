"""The commands of README.md and docs/your-data.md, run as they are printed, with the package as it is installed.

Both are told in one project folder, with one Spark for all commands that end by themselves.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from project import wait_until
from warm import warm

from rekappa.demo.events import Traffic, in_arrival_order, take_rate
from rekappa.demo.produce import produce
from rekappa.home import Home
from rekappa.produce.topics import create_topics
from rekappa.store.record import Kind
from rekappa.store.runs import RunStore
from rekappa.timeline import Window

ROOT = Path(__file__).parents[2]
PATIENCE = 900
NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)


def blocks(page: str, kind: str, section: str = "") -> list[str]:
    """The blocks of one kind on a page, or in one of its sections."""
    text = (ROOT / page).read_text("utf-8")
    if section:
        text = text.split(f"\n## {section}\n")[1].split("\n## ")[0]
    return re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)


@dataclass(frozen=True)
class Reader:
    """Somebody who copies commands from a page into a shell."""

    folder: Path
    environ: dict[str, str]

    @property
    def store(self) -> RunStore:
        return RunStore.open(Home(self.folder / ".rekappa"))

    def call(self, *command: str, expect: int = 0) -> tuple[str, str]:
        """What it wrote to stdout and stderr. Into files: a pipe would last as long as the Spark that it started."""
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            done = subprocess.run(command, cwd=self.folder, env=self.environ, stdout=out, stderr=err, timeout=PATIENCE)
            for file in (out, err):
                file.seek(0)
            told = out.read(), err.read()
        assert done.returncode == expect, f"{command}\n{told[0][-3000:]}\n{told[1][-6000:]}"
        return told

    def shell(self, script: str) -> str:
        return self.call("bash", "-euo", "pipefail", "-c", script)[0]

    def background(self, line: str) -> subprocess.Popen[bytes]:
        with (self.folder / "background.txt").open("a") as log:
            return subprocess.Popen(
                ["bash", "-c", f"exec {line}"], cwd=self.folder, env=self.environ, stdout=log, stderr=log
            )

    def ask(self, app: str, sql: str, *more: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(
            self.call("rekappa", "query", app, sql, "--json", "--limit", "0", *more)[0]
        )
        return found

    def refused(self, *words: str) -> str:
        return self.call("rekappa", *words, expect=2)[1]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """A shell in an empty folder, on a machine where `make wheel` was installed."""
    checkout, site = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("site")
    for name in ("src", "requirements"):
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "Makefile", "README.md"):
        shutil.copy(ROOT / name, checkout / name)
    tools = Path(sys.executable).parent
    (checkout / "venv").mkdir()
    (checkout / "venv" / ".build").touch()
    subprocess.run(["make", "wheel", "VENV=venv", f"BIN={tools}"], cwd=checkout, check=True, capture_output=True)
    (wheel,) = (checkout / "dist").glob("rekappa-*.whl")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(site)]
    subprocess.run([*install, str(wheel)], check=True)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("REKAPPA_HOME")}
    environ["PYTHONPATH"] = str(site)
    folder = tmp_path_factory.mktemp("own")
    with warm(tmp_path_factory.mktemp("warm"), environ) as there:
        one = Reader(folder, there)
        try:
            yield one
        finally:
            subprocess.run(["rekappa", "down"], cwd=folder, env=there)


REVENUE = "select start, country, orders, euros from revenue"


def rows(found: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in found)


def right_euros(folder: Path) -> dict[tuple[str, str], float]:
    """What the page's app should have made, worked out from the page's own file."""
    with (folder / "orders.csv").open() as file:
        orders = list(csv.DictReader(file))
    worth = {"EUR": 1.0, "USD": 0.87, "GBP": 1.14}
    made: dict[tuple[str, str], float] = {}
    for order in orders:
        # New York is five hours behind in November.
        at = datetime.fromisoformat(order["ordered_at"]).replace(tzinfo=UTC) + timedelta(hours=5)
        start = at.replace(minute=at.minute // 10 * 10, second=0)
        key = (f"{start:%Y-%m-%dT%H:%MZ}", order["country"])
        made[key] = made.get(key, 0.0) + float(order["amount"]) * worth[order["currency"]]
    return made


@pytest.mark.timeout(1800)
def test_your_data_from_nothing_to_a_published_repair(reader: Reader) -> None:
    for script in blocks("docs/your-data.md", "sh"):
        reader.shell(script)
    with (reader.folder / "differences.csv").open() as file:
        told = list(csv.DictReader(file))
    # Three hours of ten minutes in two currencies that are no euros.
    assert Counter((row["kind"], row["cause"], row["columns"]) for row in told) == {
        ("different", "change in code", "euros"): 36
    }
    assert all(row["production.country"] == row["staging.country"] != "de" for row in told)
    run = reader.store.run("last")
    assert run.validation is not None
    assert run.publication is not None
    assert (run.validation["outcome"], run.publication["state"]) == ("passed", "published")

    shown = " ".join(reader.shell("rekappa runs last").split())
    for words in (
        "2025-11-03T14:00Z .. 2025-11-03T17:00Z",
        "mode revenue: bulk",
        "validation passed at",
        "published at",
    ):
        assert words in shown

    production, staged = reader.ask("shop", REVENUE), reader.ask("shop", "from staging.revenue", "--run", run.id)
    right = right_euros(reader.folder)
    inside = [row for row in production if "2025-11-03T14:00Z" <= row["start"] < "2025-11-03T17:00Z"]
    assert len(inside) == 54
    assert rows(inside) == rows(staged), "published again after it was undone"
    for row in inside:
        assert abs(float(row["euros"]) - right[row["start"], row["country"]]) < 0.01
    (archived,) = reader.ask(
        "shop",
        "select count(*) as n, count_if(__metadata__.kafka_ingestion_ts = ordered_at) as same, "
        "count(distinct __metadata__.key) as keys from archive.orders",
    )
    assert archived == {"n": 1800, "same": 1800, "keys": 40}


def test_queries_only_read_and_say_when_they_cut(reader: Reader) -> None:
    """On what the page has left behind."""
    for statement, words in (
        ("drop table lake.shop.revenue", "Cannot run DROP here: a query only reads"),
        ("with a as (select 1) insert into lake.shop.revenue select * from a", "only reads"),
        ("from revenue insert into lake.shop.revenue select *", "only reads"),
        ("select transform(country) using 'cat' from revenue", "only reads"),
        ("call lake.system.expire_snapshots('shop.revenue')", "Cannot run CALL here"),
        ("select * from revenu", "Tables: revenue, "),
        ("select 1 +", "Cannot read the query"),
        ("select * from staging.revenue", "The newest is --run backfill_"),
    ):
        assert words in reader.refused("query", "shop", statement)
    _, failed = reader.call("rekappa", "query", "shop", "select cast('soon' as timestamp) from revenue", expect=1)
    assert "The query failed: [CAST_INVALID_INPUT]" in failed
    before = reader.ask("shop", REVENUE)
    cut = reader.shell(f'rekappa query shop "{REVENUE} order by start, country" --limit 3 --csv 2>&1')
    lines = cut.splitlines()
    assert lines[0] == "start,country,orders,euros"
    assert lines[1].startswith("2025-11-03T13:00Z,de,")
    assert lines[4:] == ["cut after 3 rows: --limit 0 gives all"]
    assert rows(reader.ask("shop", REVENUE)) == rows(before)
    assert reader.ask("shop", "select count(*) as n from dead_letters.orders") == [{"n": 0}]


@pytest.mark.timeout(1800)
def test_a_bad_day_as_the_readme_prints_it(reader: Reader) -> None:
    """The README's app with a bug in it reads five hours of events; mended, its commands repair three of them."""
    app = reader.folder / "plays"
    app.mkdir()
    (code,), (config,) = blocks("README.md", "python", "An app"), blocks("README.md", "yaml", "An app")
    all_along, repair = blocks("README.md", "sh", "A bad day")
    (app / "app.py").write_text(code.replace("INTERVAL 10 MINUTES", "INTERVAL 10 SECONDS"))
    (app / "rekappa.yaml").write_text(config)
    reader.shell("rekappa up")
    events = in_arrival_order(take_rate(Window(NOON, NOON + timedelta(hours=5)), Traffic(per_minute=6, quiet=range(0))))
    bootstrap = json.loads(reader.shell("rekappa status --json"))["bootstrap"]
    create_topics(bootstrap, {event.topic for event in events})
    produce(bootstrap, events, prefixes=False)
    running = [reader.background(line) for line in all_along.splitlines()]
    try:
        wait_until(lambda: caught_up(reader, len(events)), "the app and the router have read everything", PATIENCE)
        (app / "app.py").write_text(code)
        wrong = "select impression_id, event_ts, playback_id from plays"
        before = rows(reader.ask("plays", wrong))
        reader.shell(repair)
        assert all(process.poll() is None for process in running), "the live job and the router go on"
    finally:
        for process in running:
            process.terminate()
    assert [process.wait(PATIENCE) for process in running] == [0, 0]
    assert rows(reader.ask("plays", wrong)) == before, "undone"
    differences = pq.read_table(reader.folder / "differences.parquet").to_pylist()
    assert Counter((row["kind"], row["cause"], *row["columns"]) for row in differences) == {
        ("different", "change in code", "playback_id"): expected_plays(events)
    }
    assert all(row["production"]["playback_id"] is None for row in differences)


def test_old_hours_are_dropped_on_purpose(reader: Reader) -> None:
    """On what the README has left behind: five hours from noon on."""
    cut = NOON + timedelta(hours=2)
    age = f"{(datetime.now(UTC) - cut) // timedelta(minutes=1)}m"
    expire = ("archive", "expire", "plays", "--older-than", age)
    first_hours = ("--start", "2026-11-01T13:00Z", "--end", "2026-11-01T14:00Z")
    seen = json.loads(reader.call("rekappa", *expire, "--dry-run", "--json")[0])
    assert seen["state"] == "would drop"
    assert {one["source"] for one in seen["sources"] if one["rows"]} == {"impressions", "playbacks"}
    (job,) = seen["jobs"]
    start = datetime.fromisoformat(job["start"])
    assert start > cut
    reader.call("rekappa", "plan", "plays", *first_hours)
    assert "Cannot ask for consent" in reader.refused(*expire)
    told = reader.call("rekappa", *expire, "--yes")[0]
    assert "No replay" not in told
    assert "dropped: " in told
    assert "was expired up to 2026-11-01T14:00Z" in reader.refused("plan", "plays", *first_hours)
    almost, then = (start - timedelta(minutes=1)).isoformat(), (start + timedelta(hours=1)).isoformat()
    assert "was expired up to" in reader.refused("plan", "plays", "--start", almost, "--end", then)
    reader.call("rekappa", "plan", "plays", "--start", start.isoformat(), "--end", then)
    reader.call("rekappa", "archive", "verify", "plays")
    assert json.loads(reader.call("rekappa", *expire, "--yes", "--json")[0])["state"] == "nothing to drop"


def caught_up(reader: Reader, events: int) -> bool:
    """Whether both background runs have read all, and the app has written all of the window."""
    runs = {run.kind: run for run in reader.store.runs("plays")}
    live, router = runs.get(Kind.LIVE), runs.get(Kind.ARCHIVE)
    if live is None or router is None:
        return False
    archived = sum(route["rows"] for route in router.progress.get("routes") or ())
    until = NOON + timedelta(hours=4, minutes=20)
    marks = [one.watermark for one in reader.store.batches(live.id, "plays") if one.watermark is not None]
    return archived == events and bool(marks) and max(marks) > until


def expected_plays(events: list[Any]) -> int:
    """Impressions of the window whose play came after ten seconds and within ten minutes: what the bug lost."""
    shown = {one.payload["impression_id"]: one.event_time for one in events if one.topic == "impressions"}
    waits = [
        (one.event_time - shown[one.payload["impression_id"]], shown[one.payload["impression_id"]])
        for one in events if one.topic == "playbacks"
    ]  # fmt: skip
    window = Window(NOON + timedelta(hours=1), NOON + timedelta(hours=4))
    return sum(timedelta(seconds=10) < wait <= timedelta(minutes=10) and window.contains(at) for wait, at in waits)
