"""Saved plans come back whole, or are refused by name."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from rekappa.errors import PlanError
from rekappa.plan.model import OffsetRange, Slice, SourceSlice, Split
from rekappa.plan.plan import PLAN_VERSION, Chunk, Estimate, JobPlan, Mode, Plan, SourcePlan
from rekappa.plan.shape import Tolerance
from rekappa.plan.store import PlanFile, load, save
from rekappa.storage.location import Location
from rekappa.timeline import Window

T0 = datetime(2026, 11, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
TICK = timedelta(microseconds=1)


def at(hours: float) -> datetime:
    return T0 + hours * HOUR


def sample_plan(slices: int = 5) -> Plan:
    def part(number: int) -> Slice:
        whole = Split("plays", "s3://lake/é.parquet", 10, 100, at(number), at(number + 1) - TICK, "eu")
        piece = replace(whole, source="shows", cut=Window(at(number), at(number + 0.5)))
        exact = SourceSlice(
            (piece, replace(whole, source="shows", deletes=True)), (OffsetRange("eu", "shows", 3, 5, 9),)
        )
        return Slice(number, {"plays": SourceSlice((whole,)), "shows": exact}, Window(at(number), at(number + 1)))

    source = SourcePlan(
        "plays", "lake.events.plays", 77, ("id", "ts"), timedelta(minutes=15), 10, 100, 1000, 3, 300,
        {"eu": at(3), "us": at(4)}, at(5), 2, (1, 2, 3),
    )  # fmt: skip
    ordered = JobPlan(
        "sessions", ("out",), Mode.ORDERED, "custom state", HOUR, "timers", HOUR / 2, "watermark",
        Window(at(-1), at(slices)), (source,), tuple(part(n) for n in range(slices)), (), ("careful",),
        Estimate(100, 1000, timedelta(seconds=3), 12, "measured"),
    )  # fmt: skip
    chunk = Chunk(0, Window(at(0), at(2)), Window(at(-1), at(3)))
    bulk = replace(ordered, job="rate", mode=Mode.BULK, slices=(), chunks=(chunk,), estimate=Estimate(0, 0))
    doubtful = {"out": {"total": Tolerance.ROUNDING, "names": Tolerance.ORDER}}
    quiet = replace(ordered, job="quiet", slices=(Slice(0, {}),), tolerances=doubtful)
    return Plan("app", Window(at(0), at(slices)), ("eu", "us"), (ordered, bulk, quiet))


def test_a_saved_plan_comes_back_equal_and_with_the_same_id(location: Location) -> None:
    plan = sample_plan()
    identity = save(plan, location / "deep" / "plan.gz")
    assert load(location / "deep" / "plan.gz") == plan
    assert identity == plan.id == PlanFile(location / "deep" / "plan.gz").id
    assert (location / "deep").names() == ["plan.gz"]


def test_equal_plans_are_equal_files_and_another_plan_has_another_id(location: Location) -> None:
    save(sample_plan(), location / "a")
    save(sample_plan(), location / "b")
    assert (location / "a").read_bytes() == (location / "b").read_bytes()
    assert replace(sample_plan(), regions=("eu",)).id != sample_plan().id != sample_plan(6).id


def test_one_slice_is_read_alone(location: Location) -> None:
    plan = sample_plan(20)
    save(plan, location / "plan")
    saved = PlanFile(location / "plan")
    for number in (0, 7, 19):
        assert saved.slice("sessions", number) == plan.job("sessions").slices[number]
    assert saved.slice("quiet", 0) == Slice(0, {})
    assert (saved.slice_count("sessions"), saved.slice_count("rate")) == (20, 0)
    assert saved.head == replace(plan, jobs=tuple(replace(job, slices=()) for job in plan.jobs))


def test_the_file_is_plain_gzip_json_lines(location: Location) -> None:
    save(sample_plan(), location / "plan")
    with gzip.open((location / "plan").path) as file:
        lines = [json.loads(line) for line in file]
    assert [line.get("slice") for line in lines] == [None, 0, 1, 2, 3, 4, 0, None, None]


def test_what_the_plan_does_not_have_is_refused(location: Location) -> None:
    save(sample_plan(), location / "plan")
    saved = PlanFile(location / "plan")
    for number in (-1, 5):
        with pytest.raises(PlanError, match=rf"slice {number} .* the plan has 5"):
            saved.slice("sessions", number)
    with pytest.raises(PlanError, match="job 'nope'"):
        saved.slice("nope", 0)
    with pytest.raises(PlanError, match="job 'nope'"):
        sample_plan().job("nope")
    with pytest.raises(PlanError, match="source 'nope'"):
        sample_plan().job("rate").source("nope")
    with pytest.raises(PlanError, match="no such file"):
        load(location / "gone")


def test_a_newer_version_is_refused_with_both_numbers(location: Location) -> None:
    save(replace(sample_plan(), version=PLAN_VERSION + 1), location / "plan")
    with pytest.raises(PlanError, match=rf"version {PLAN_VERSION + 1}, .* reads {PLAN_VERSION}"):
        PlanFile(location / "plan").slice("sessions", 0)


def test_a_damaged_file_is_refused_by_name_wherever_the_damage_is(location: Location) -> None:
    save(sample_plan(), location / "plan")
    good = (location / "plan").read_bytes()
    path = location / "broken"
    for cut in (0, 1, len(good) // 2, len(good) - 1):
        path.write(good[:cut])
        with pytest.raises(PlanError, match="broken"):
            load(path)
    refused = 0
    for spot in range(0, len(good), 7):
        path.write(good[:spot] + bytes([good[spot] ^ 0xFF]) + good[spot + 1 :])
        try:
            same = load(path) == sample_plan()
        except PlanError as error:
            refused += "broken" in str(error)
        else:
            assert same, f"damage at byte {spot} changed the plan"
    assert refused > len(good) // 7 * 0.8
