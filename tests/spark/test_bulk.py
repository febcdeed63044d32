"""Bulk replay end to end: the plan, chunks into staging, crashes, damage, and the same job in the other modes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from bulky import DAY, WINDOW, M, make_app

from rekappa.app import App
from rekappa.config.bind import load_app
from rekappa.config.load import Loaded
from rekappa.errors import PlanError, RekappaError, RunError
from rekappa.home import Home
from rekappa.plan.chunks import plan_chunks
from rekappa.plan.plan import Mode, Plan
from rekappa.planning.make import make_plan
from rekappa.runs.backfill import BackfillRequest, continue_backfill, create_backfill, run_backfill
from rekappa.runs.control import cancel
from rekappa.runs.work import Progress
from rekappa.staging.tables import staging_table
from rekappa.store.record import Run, State, Wish
from rekappa.store.runs import RunStore
from rekappa.timeline import Window

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def loaded(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return make_app(spark, tmp_path_factory.mktemp("bulky"))


@pytest.fixture(scope="module")
def app(loaded: Loaded) -> App:
    return load_app(loaded)


def expected(spark: SparkSession, loaded: Loaded, app: App, home: Home, job: str, output: str, column: str) -> set[Any]:
    """The job over the whole archive as one batch, cut to the window afterwards."""
    from pyspark.sql import functions as F

    from rekappa.sources.open import open_batch

    inputs = {name: open_batch(spark, loaded, home, name, None, ()) for name in app.jobs[job].sources}
    rows = app.jobs[job].results(inputs)[output]
    return set(rows.where((F.col(column) >= F.lit(WINDOW.start)) & (F.col(column) < F.lit(WINDOW.end))).collect())


def staged(spark: SparkSession, loaded: Loaded, run: Run, sink: str) -> list[Any]:
    return spark.table(staging_table(loaded.config, run.id, sink)).collect()


def hourly(plan: Plan) -> Plan:
    """The plan with one chunk for each hour of the window."""
    jobs = [
        replace(
            job,
            chunks=tuple(
                replace(chunk, number=number)
                for number, chunk in enumerate(
                    part
                    for hour in range(2)
                    for part in plan_chunks(
                        [],
                        window=Window(WINDOW.start + hour * 60 * M, WINDOW.start + (hour + 1) * 60 * M),
                        warm_up=job.warm_up,
                        drain=job.drain,
                    )
                )
            ),
        )
        for job in plan.jobs
    ]
    return replace(plan, jobs=tuple(jobs))


def test_the_plan_says_what_is_read_and_why(spark: SparkSession, loaded: Loaded, app: App, home: Home) -> None:
    plan = make_plan(spark, loaded, app, home, BackfillRequest(WINDOW))
    both, firsts = plan.job("both"), plan.job("firsts")
    assert (both.mode, firsts.mode) == (Mode.BULK, Mode.BULK)
    assert (both.by_slice, firsts.by_slice) == (False, True)
    assert both.drain == 25 * M
    assert "join range" in both.drain_reason
    assert "watermark" in both.drain_reason
    assert both.reads == Window(WINDOW.start - M, WINDOW.end + 25 * M)
    shown = both.source("shown")
    assert 0 < shown.files < shown.files + shown.skipped_files
    assert set(shown.complete_until) == {"eu", "us"}
    assert both.estimate.duration is None
    assert "no run of this job in this mode" in both.estimate.basis
    assert both.estimate.state_rows is None
    assert len(firsts.slices) > 1
    assert [chunk.output for chunk in firsts.chunks] == [WINDOW]
    assert firsts.source("shown").columns == ("id", "event_ts")
    assert plan == make_plan(spark, loaded, app, home, BackfillRequest(WINDOW))


def test_bulk_gives_what_the_whole_archive_gives_crash_or_not(
    spark: SparkSession, loaded: Loaded, app: App, home: Home
) -> None:
    request = BackfillRequest(WINDOW, jobs=("both",))
    plan = hourly(make_plan(spark, loaded, app, home, request))
    run = create_backfill(spark, loaded, home, request, plan)
    seen: list[Progress] = []

    def crash_after_the_first_chunk(now: Progress) -> None:
        seen.append(now)
        if now.done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        continue_backfill(spark, loaded, app, home, run.id, on_progress=crash_after_the_first_chunk)
    assert RunStore.open(home).run(run.id).state is State.STOPPED
    seen.clear()
    ended = continue_backfill(spark, loaded, app, home, run.id, on_progress=seen.append)
    assert ended.state is State.FINISHED
    assert [now.done for now in seen] == [1, 2]
    assert seen[-1].reached == WINDOW.end
    for sink, column in (("plays", "event_ts"), ("rates", "at")):
        rows = staged(spark, loaded, run, sink)
        assert len(rows) == len(set(rows))
        assert set(rows) == expected(spark, loaded, app, home, "both", sink, column)
    with pytest.raises(RunError, match="finished"):
        continue_backfill(spark, loaded, app, home, run.id)


@pytest.mark.parametrize("mode", [Mode.BULK, Mode.ORDERED])
def test_what_depends_on_order_runs_slice_by_slice(
    spark: SparkSession, loaded: Loaded, app: App, home: Home, mode: Mode
) -> None:
    request = BackfillRequest(WINDOW, jobs=("firsts",), mode=mode)
    run = run_backfill(spark, loaded, app, home, request)
    assert run.state is State.FINISHED
    rows = staged(spark, loaded, run, "firsts")
    assert {row.id for row in rows} == set(range(3600, 7200))
    assert len(rows) == 3600
    job = run.progress["jobs"][0]
    assert job["done"] == job["total"]
    assert job["rows_per_second"] > 0
    assert job["queries"]["firsts"]["late_rows"] == 0
    assert job["queries"]["firsts"]["not_final_from"] is None
    again = make_plan(spark, loaded, app, home, request)
    assert run.id in again.job("firsts").estimate.basis


def test_one_region_is_one_region(spark: SparkSession, loaded: Loaded, app: App, home: Home) -> None:
    run = run_backfill(spark, loaded, app, home, BackfillRequest(WINDOW, jobs=("both",), regions=("eu",)))
    assert {row.id for row in staged(spark, loaded, run, "plays")} == set(range(3600, 7200, 3))
    with pytest.raises(PlanError, match="region 'mars'"):
        make_plan(spark, loaded, app, home, BackfillRequest(WINDOW, jobs=("both",), regions=("mars",)))


def test_a_window_past_the_archive_is_refused_or_said_to_be_not_final(
    spark: SparkSession, loaded: Loaded, app: App, home: Home
) -> None:
    beyond = Window(WINDOW.start, DAY + timedelta(hours=7))
    with pytest.raises(PlanError, match="complete up to 2026-11-01T06:00Z"):
        make_plan(spark, loaded, app, home, BackfillRequest(beyond, jobs=("both",)))
    told = make_plan(spark, loaded, app, home, BackfillRequest(beyond, jobs=("both",), allow_incomplete=True))
    assert any("Incomplete" in note for note in told.jobs[0].warnings)
    edge = Window(WINDOW.start, DAY + timedelta(hours=6))
    plan = make_plan(spark, loaded, app, home, BackfillRequest(edge, jobs=("both",)))
    assert any("Not final: output from 2026-11-01T05:35Z" in note for note in plan.jobs[0].warnings)


def test_cancelled_before_it_goes_on(spark: SparkSession, loaded: Loaded, app: App, home: Home) -> None:
    request = BackfillRequest(WINDOW, jobs=("both",))
    run = create_backfill(spark, loaded, home, request, hourly(make_plan(spark, loaded, app, home, request)))

    def give_up(now: Progress) -> None:
        if now.done == 1:
            RunStore.open(home).update(run.id, wish=Wish.CANCEL)

    assert continue_backfill(spark, loaded, app, home, run.id, on_progress=give_up).state is State.CANCELLED
    with pytest.raises(RunError, match="cancelled"):
        cancel(RunStore.open(home), run.id)


def test_a_missing_file_is_named_and_the_run_can_go_on(spark: SparkSession, home: Home, tmp_path: Path) -> None:
    own = make_app(spark, tmp_path, complete=None)
    bound = load_app(own)
    request = BackfillRequest(WINDOW, jobs=("both",))
    run = create_backfill(spark, own, home, request, make_plan(spark, own, bound, home, request))
    table = own.config.sources["shown"].candidates["past"].table  # type: ignore[union-attr]
    files = spark.table(f"{table}.files").where("lower(file_path) LIKE '%2026-11-01-03%'").collect()
    lost = Path(files[0].file_path.removeprefix("file:"))
    lost.rename(lost.with_suffix(".away"))
    with pytest.raises(RunError) as refusal:
        continue_backfill(spark, own, bound, home, run.id)
    assert lost.name in refusal.value.message
    assert "chunk 1 of 1" in refusal.value.message
    assert RunStore.open(home).run(run.id).state is State.FAILED
    lost.with_suffix(".away").rename(lost)
    assert continue_backfill(spark, own, bound, home, run.id).state is State.FINISHED
    rows = staged(spark, own, run, "plays")
    assert set(rows) == expected(spark, own, bound, home, "both", "plays", "event_ts")


def test_what_was_planned_is_what_is_read(spark: SparkSession, home: Home, tmp_path: Path) -> None:
    """Rows that reach the archive after the plan are not of it; a plan whose snapshot is gone must be made again."""
    own = make_app(spark, tmp_path, complete=None)
    bound = load_app(own)
    request = BackfillRequest(WINDOW, jobs=("both",))
    plan = make_plan(spark, own, bound, home, request)
    first, second = (create_backfill(spark, own, home, request, plan) for _ in range(2))
    wanted = expected(spark, own, bound, home, "both", "plays", "event_ts")
    tables = [own.config.sources[name].candidates["past"].table for name in ("shown", "played")]  # type: ignore[union-attr]
    for table in tables:
        spark.table(table).writeTo(table).append()
    continue_backfill(spark, own, bound, home, first.id)
    assert Counter(staged(spark, own, first, "plays")) == Counter(wanted)
    for table in tables:
        spark.sql(f"CALL lake.system.expire_snapshots(table => '{table[5:]}', older_than => TIMESTAMP '2100-01-01')")
    with pytest.raises(RekappaError, match=r"as planned: its snapshot .* has expired") as refusal:
        continue_backfill(spark, own, bound, home, second.id)
    assert "Plan again" in str(refusal.value.hint)
