"""The commands, as processes: plan, backfill, killed with -9, resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from bulky import make_app
from project import wait_until

from rekappa.config.load import Loaded
from rekappa.home import Home
from rekappa.staging.tables import staging_table
from rekappa.store.address import Address
from rekappa.store.leases import run_lease
from rekappa.store.record import Kind, Run, State
from rekappa.store.runs import RunStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARGUMENTS = ["--start", "2026-11-01T02:00Z", "--end", "2026-11-01T04:00Z"]
SLICES = ["--mode", "ordered", "--slice-span"]


@pytest.fixture(scope="module")
def loaded(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return make_app(spark, tmp_path_factory.mktemp("cli"))


def command(home: Home, *words: str, **environ: str) -> subprocess.Popen[str]:
    told = {"REKAPPA_HOME": str(home.root), "REKAPPA_PROFILES__BACKFILL__MASTER": "local[2]", **environ}
    return subprocess.Popen(
        [sys.executable, "-m", "rekappa.cli.main", *words],
        env={**os.environ, **told},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def answer(home: Home, *words: str, **environ: str) -> Any:
    process = command(home, *words, "--json", **environ)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    return json.loads(out)


def test_two_at_once_one_of_them_killed_and_resumed_twice_at_once(
    spark: SparkSession, home: Home, loaded: Loaded
) -> None:
    """Two backfills of one app side by side. One is killed after at least one slice; of two that resume it at the same
    moment one is refused, the other makes the rest. Both end up with every row once."""
    store = RunStore.open(home)
    known = {run.id for run in store.runs(kind=Kind.BACKFILL)}
    words = ["backfill", str(loaded.folder), *ARGUMENTS, "--job", "firsts", *SLICES, "5m", "--json"]
    processes = {process.pid: process for process in (command(home, *words) for _ in range(2))}

    def begun() -> Run | None:
        fresh = [one for one in store.runs(kind=Kind.BACKFILL) if one.id not in known and one.pid]
        return next((one for one in fresh if any(job.get("done", 0) for job in one.progress.get("jobs", ()))), None)

    wait_until(lambda: begun() is not None, "one of the two has made a slice")
    run = begun()
    assert run is not None
    assert run.pid is not None
    killed = processes.pop(run.pid)
    killed.send_signal(signal.SIGKILL)
    _, err = killed.communicate(timeout=600)
    assert store.run(run.id).state is State.DIED, err
    both = [command(home, "resume", run.id, "--json") for _ in range(2)]
    told = [process.communicate(timeout=600) for process in both]
    assert sorted(process.returncode for process in both) == [0, 2], told
    assert store.run(run.id).state is State.FINISHED
    (other,) = processes.values()
    out, err = other.communicate(timeout=600)
    assert other.returncode == 0, err
    for name in (run.id, json.loads(out)["id"]):
        rows = spark.table(staging_table(loaded.config, name, "firsts")).collect()
        assert sorted(row.id for row in rows) == list(range(3600, 7200))


def test_paused_and_let_go_on_from_another_machine(
    spark: SparkSession, home: Home, loaded: Loaded, postgres_store: str, tmp_path: Path
) -> None:
    """Its record is in a team's PostgreSQL: whoever pauses it has another project folder, and nothing of the run's."""
    store, elsewhere = RunStore(Address.parse(postgres_store)), Home(tmp_path / ".rekappa")
    words = ["backfill", str(loaded.folder), *ARGUMENTS, "--job", "firsts", *SLICES, "2m", "--json"]
    process = command(home, *words, REKAPPA_STORE=postgres_store)

    def started() -> Run | None:
        return next(iter(store.runs(kind=Kind.BACKFILL)), None)

    def at_work() -> bool:
        found = started()
        return found is not None and found.state.going

    wait_until(lambda: at_work() or process.poll() is not None, "the backfill is at work")
    run = started()
    assert run is not None, process.communicate()
    assert answer(elsewhere, "pause", run.id, REKAPPA_STORE=postgres_store)["asked"] == "pause"
    wait_until(lambda: store.run(run.id).state is State.PAUSED, "it is paused")
    heard: set[datetime | None] = set()

    def heard_of(times: int) -> bool:
        lease = store.lease(run_lease(run.id))
        heard.add(lease.heartbeat if lease else None)
        return len(heard) > times

    def made() -> list[int]:
        return [job.get("done", 0) for job in store.run(run.id).progress.get("jobs", ())]

    # The figures of the slice before it may come a moment after it has begun to wait.
    wait_until(lambda: heard_of(5), "its process was heard of five times")
    waiting = made()
    wait_until(lambda: heard_of(10), "its process was heard of five times more")
    assert made() == waiting, "nothing is made while it is paused"
    assert answer(elsewhere, "resume", run.id, REKAPPA_STORE=postgres_store)["run"] == run.id
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert json.loads(out)["state"] == "finished"
    assert not elsewhere.root.exists()
    assert run.id not in {one.id for one in RunStore.open(home).runs()}
    rows = spark.table(staging_table(loaded.config, run.id, "firsts")).collect()
    assert sorted(row.id for row in rows) == list(range(3600, 7200))


def test_plan_and_refusals(home: Home, loaded: Loaded) -> None:
    planned = answer(home, "plan", str(loaded.folder), *ARGUMENTS)
    assert {job["job"]: job["mode"] for job in planned["jobs"]} == {"both": "bulk", "firsts": "bulk"}
    assert planned["window"] == {"start": "2026-11-01T02:00Z", "end": "2026-11-01T04:00Z"}
    refused = command(
        home, "backfill", str(loaded.folder), "--start", "2026-11-01T04:00Z", "--end", "2026-11-01T02:00Z"
    )
    _, err = refused.communicate(timeout=600)
    assert refused.returncode == 2
    assert "the end must be after the start" in err
    unknown = command(home, "pause", "nothing")
    _, err = unknown.communicate(timeout=600)
    assert unknown.returncode == 2
    assert "Traceback" not in err
