"""Fidelity: what ran live comes out again when it is replayed from the archive, row for row, in every safe mode."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fidelity_expected import everything, expected, in_time, key, weight
from fidelity_history import JOBS, LATE, MINUTE, ON_TIME, Production, make_production, stretch

from rekappa.home import Home
from rekappa.plan.model import Slice
from rekappa.plan.plan import Chunk, Mode, Plan
from rekappa.store.record import Run
from rekappa.timeline import Window

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The first test waits for production.
pytestmark = pytest.mark.timeout(900)

BOTH = Window(ON_TIME.start, LATE.end)
AHEAD = stretch(207, 227.5)
"""Where impressions had been read far ahead of playbacks; in LATE it was the other way round."""
IN_ORDER = ("distinct_keys", "distinct_within", "sessions")
"""Jobs whose output depends on the order of events: bulk runs them slice by slice, with watermarks of its own."""
UNTIL_ALL_IS_IN = timedelta(hours=2)
"""A drain that takes in the latest of the late events."""


@pytest.fixture(scope="module")
def production(spark: SparkSession, home: Home, broker: str) -> Production:
    return make_production(spark, home, broker)


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("mode", [Mode.BULK, Mode.ORDERED, Mode.STRICT])
def test_on_time_data_gives_the_same_rows(production: Production, job: str, mode: Mode) -> None:
    run = production.replay(job, mode, ON_TIME, slice_span=30 * MINUTE)
    live = production.output(job, ON_TIME)
    assert live
    assert production.staged(job, run, ON_TIME) == live


@pytest.mark.parametrize("job", JOBS)
def test_exact_gives_productions_rows_late_drops_included(production: Production, job: str) -> None:
    run = production.replay(job, Mode.EXACT, LATE)
    live = production.output(job, LATE)
    assert production.staged(job, run, LATE) == live
    assert live == expected(production, job, in_time, LATE)
    assert (live != expected(production, job, everything, LATE)) == (job != "plain"), "no event was dropped as late"


@pytest.mark.parametrize("job", JOBS)
def test_exact_starts_early_enough(production: Production, job: str) -> None:
    """Inside a round: the batches that the window needs are neither the first nor, for every source, the same."""
    live = production.output(job, AHEAD)
    run = production.replay(job, Mode.EXACT, AHEAD)
    assert live
    assert production.staged(job, run, AHEAD) == live


@pytest.mark.parametrize("job", [job for job in JOBS if job not in IN_ORDER])
def test_bulk_adds_exactly_what_production_dropped_as_late(production: Production, job: str) -> None:
    run = production.replay(job, Mode.BULK, LATE, drain=UNTIL_ALL_IS_IN)
    assert production.staged(job, run, LATE) == expected(production, job, everything, LATE)


@pytest.mark.parametrize("job", JOBS)
def test_ordered_differs_only_where_production_dropped_late_events(production: Production, job: str) -> None:
    """Its slices are wider than production's micro-batches, so its watermark waits longer: it drops less."""
    run = production.replay(job, Mode.ORDERED, LATE, drain=UNTIL_ALL_IS_IN, slice_span=60 * MINUTE)
    live, replayed = production.output(job, LATE), production.staged(job, run, LATE)
    complete = expected(production, job, everything, LATE)
    touched = {key(job, row) for row in (live - complete) + (complete - live)}
    assert _without(job, replayed, touched) == _without(job, live, touched)
    assert weight(job, live) <= weight(job, replayed) <= weight(job, complete)
    assert weight(job, live) < weight(job, replayed) or job == "plain"


def _without(job: str, rows: Counter[tuple[object, ...]], keys: set[tuple[object, ...]]) -> Counter[tuple[object, ...]]:
    return Counter({row: count for row, count in rows.items() if key(job, row) not in keys})


@pytest.mark.parametrize("job", IN_ORDER)
def test_slice_by_slice_bulk_equals_ordered_over_its_slices_and_production_over_its_micro_batches(
    production: Production, job: str
) -> None:
    ordered = production.replay(job, Mode.ORDERED, LATE, drain=UNTIL_ALL_IS_IN, slice_span=60 * MINUTE)
    bulk = production.replay(job, Mode.BULK, LATE, drain=UNTIL_ALL_IS_IN, slice_span=60 * MINUTE)
    assert production.staged(job, bulk, LATE) == production.staged(job, ordered, LATE)
    assert _figure(bulk, job, "late_rows") == _figure(ordered, job, "late_rows")

    request, plan = production.plan(job, Mode.EXACT, LATE)
    part = plan.jobs[0]
    recorded = replace(part, mode=Mode.BULK, by_slice=True, chunks=(Chunk(0, LATE, part.reads),))
    run = production.run(job, request, replace(plan, jobs=(recorded,)))
    assert production.staged(job, run, LATE) == production.output(job, LATE)
    assert production.output(job, LATE) != production.staged(job, ordered, LATE)


def test_how_long_custom_state_lives_is_measured(production: Production) -> None:
    """Sessions last minutes: an hour is enough, and twice that shows it."""
    part = production.plan("sessions", Mode.BULK, ON_TIME)[1].jobs[0]
    assert part.by_slice
    assert "the same when" in part.warm_up_reason


def test_without_order_sessions_are_wrong(production: Production) -> None:
    """The same slices in another order: the watermark runs ahead, and what comes after it is dropped."""
    request, plan = production.plan("sessions", Mode.ORDERED, ON_TIME, slice_span=30 * MINUTE)
    live = production.output("sessions", ON_TIME)
    slices = list(plan.jobs[0].slices)
    random.Random(3).shuffle(slices)
    run = production.run("sessions", request, _with_slices(plan, slices))
    assert production.staged("sessions", run, ON_TIME) != live
    assert _figure(run, "sessions", "late_rows") > 0
    ordered = production.replay("sessions", Mode.ORDERED, ON_TIME, slice_span=30 * MINUTE)
    assert production.staged("sessions", ordered, ON_TIME) == live
    assert _figure(ordered, "sessions", "late_rows") == 0


def test_without_alignment_state_grows(production: Production) -> None:
    """Impressions are ten times as many as playbacks; read whole before the first playback, all of them are held."""
    job = "plays_per_impression"
    request, plan = production.plan(job, Mode.ORDERED, BOTH, slice_span=30 * MINUTE)
    slices = plan.jobs[0].slices
    apart = [
        replace(part, sources={name: part.sources[name]})
        for name in ("impressions", "playbacks")
        for part in slices
        if name in part.sources
    ]
    peaks = {
        name: _figure(production.run(job, request, _with_slices(plan, parts)), job, "peak_state_rows")
        for name, parts in (("aligned", list(slices)), ("apart", apart))
    }
    assert peaks["apart"] > 2 * peaks["aligned"]


def test_the_docs_table_is_what_is_tested() -> None:
    lines = (Path(__file__).parents[2] / "docs" / "fidelity.md").read_text().splitlines()
    cells = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| `")]
    promised = {row[0]: row[2:] for row in cells}
    assert promised == {job: ["equal"] * 4 for job in JOBS}


def _with_slices(plan: Plan, slices: list[Slice]) -> Plan:
    numbered = tuple(replace(part, number=number) for number, part in enumerate(slices))
    return replace(plan, jobs=(replace(plan.jobs[0], slices=numbered),))


def _figure(run: Run, job: str, name: str) -> int:
    return int(run.progress["jobs"][0]["queries"][job][name])
