"""The report, its picture and its JSON say what the plan says, at any width."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from rekappa.plan.model import Slice, SourceSlice, Split
from rekappa.plan.picture import bars, picture, stretches
from rekappa.plan.plan import Chunk, Estimate, JobPlan, Mode, Plan, SourcePlan
from rekappa.plan.remarks import remarks
from rekappa.plan.report import SOURCE_COLUMNS, plan_report, plan_summary
from rekappa.plan.words import count, size
from rekappa.timeline import Window

T0 = datetime(2026, 11, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
WINDOW = Window(T0, T0 + 8 * HOUR)


def source(name: str = "plays", **changes: object) -> SourcePlan:
    plain = SourcePlan(
        name, f"lake.events.{name}", 1, ("id",), HOUR / 4, 10, 4800, 48_000, 5, 999,
        {"eu": T0 + 24 * HOUR}, T0 + 24 * HOUR, 0, (100,) * 48,
    )  # fmt: skip
    return replace(plain, **changes)  # type: ignore[arg-type]


def job(*sources: SourcePlan, **changes: object) -> JobPlan:
    split = Split("plays", "f", 4800, 48_000, T0, T0 + HOUR)
    plain = JobPlan(
        "rate", ("out",), Mode.ORDERED, "custom state", HOUR, "the window", HOUR, "the watermark",
        WINDOW.widened(HOUR, HOUR), sources or (source(),), (Slice(0, {"plays": SourceSlice((split,))}),), (),
        ("Careful.",), Estimate(4800, 48_000, timedelta(seconds=75), 1234, "120,000 rows/s"),
    )  # fmt: skip
    return replace(plain, **changes)  # type: ignore[arg-type]


def test_the_report_says_what_and_why() -> None:
    text = "\n".join(plan_report(Plan("rmi", WINDOW, ("eu",), (job(),))).lines())
    for said in (
        "2026-11-01T00:00Z .. 2026-11-01T08:00Z",
        "ordered (custom state)",
        "1h (the window)",
        "1h (the watermark)",
        "4.80 k rows, 46.9 KiB",
        "about 1m 15s (120,000 rows/s)",
        "about 1.23 k rows",
        "5 files, 999 B",
        "eu 2026-11-02T00:00Z",
        "warning: Careful.",
    ):
        assert said in text
    unknown = job(estimate=Estimate(10, 10, None, None, "no run of this job has been measured"))
    said = "\n".join(plan_report(Plan("rmi", WINDOW, ("eu",), (unknown,))).lines())
    assert "not known (no run of this job has been measured)" in said
    assert all(len(row) == len(SOURCE_COLUMNS) for row in plan_report(Plan("a", WINDOW, (), (job(),))).jobs[0].sources)


def test_the_summary_is_json_and_agrees_with_the_plan() -> None:
    bulk = job(job="bulk", mode=Mode.BULK, slices=(), chunks=(Chunk(0, WINDOW, WINDOW.widened(HOUR, HOUR)),))
    summary = json.loads(json.dumps(plan_summary(Plan("rmi", WINDOW, ("eu",), (job(), bulk)))))
    assert summary["window"] == {"start": "2026-11-01T00:00Z", "end": "2026-11-01T08:00Z"}
    assert [one["slices"] for one in summary["jobs"]] == [1, 0]
    assert summary["jobs"][0]["largest_slice_rows"] == 4800
    assert summary["jobs"][1]["chunks"][0]["output"] == summary["window"]
    assert summary["jobs"][0]["estimate"]["seconds"] == 75
    assert summary["jobs"][0]["warnings"] == ["Careful."]


def test_bulk_that_goes_slice_by_slice_shows_its_slices() -> None:
    chunks = (Chunk(0, WINDOW, WINDOW.widened(HOUR, HOUR)),)
    sliced = Plan("rmi", WINDOW, (), (job(mode=Mode.BULK, by_slice=True, chunks=chunks),))
    labels = [fact.label for fact in plan_report(sliced).jobs[0].facts]
    assert ("chunks" in labels, "slices" in labels) == (True, True)
    assert plan_summary(sliced)["jobs"][0]["by_slice"] is True
    whole = Plan("rmi", WINDOW, (), (job(mode=Mode.BULK, slices=(), chunks=chunks),))
    assert "slices" not in [fact.label for fact in plan_report(whole).jobs[0].facts]


def test_the_picture_shows_warm_up_window_drain_density_and_where_the_archive_ends() -> None:
    busy = source("impressions", density=(0,) * 12 + (10,) * 12 + (80,) * 24)
    open_end = source("plays", complete_until={"eu": T0 + 4 * HOUR, "us": T0})
    lines = picture(job(busy, open_end), WINDOW, regions=["eu"], width=53)
    assert lines[1] == "reads        " + "░" * 4 + "█" * 32 + "▒" * 4
    assert lines[2] == "impressions  " + "·" * 10 + "▂" * 10 + "█" * 20
    assert lines[3] == "plays        " + "█" * 20 + "?" * 20
    assert lines[0].startswith("             10-31 23:00")
    assert lines[0].endswith("11-01 09:00")
    assert "? not complete" in " ".join(lines[4:])


@given(st.integers(0, 200), st.text(min_size=1, max_size=60), st.lists(st.integers(0, 10**9), max_size=100))
def test_no_line_of_the_picture_is_wider_than_asked(width: int, name: str, density: list[int]) -> None:
    lines = picture(job(source(name, density=tuple(density))), WINDOW, width=width)
    assert all(len(line) <= max(width, 24) for line in lines)


@given(st.integers(1, 10**6), st.integers(0, 10**7), st.integers(0, 10**7), st.integers(3, 120))
def test_every_stretch_that_exists_is_to_be_seen(length: int, warm_up: int, drain: int, columns: int) -> None:
    window = Window(T0, T0 + timedelta(seconds=length))
    reads = window.widened(timedelta(seconds=warm_up), timedelta(seconds=drain))
    drawn = stretches(reads, window, columns)
    assert len(drawn) == columns
    assert "█" in drawn
    assert ("░" in drawn) == (warm_up > 0)
    assert ("▒" in drawn) == (drain > 0)
    assert drawn == "".join(sorted(drawn, key="░█▒".index))


def test_a_source_without_rows_is_a_dotted_line() -> None:
    assert bars(source(density=()), WINDOW, 5) == "·····"
    assert bars(source(density=(0, 0), complete_until={}), WINDOW, 5) == "·····"


def test_remarks_name_what_a_person_should_know() -> None:
    empty = source("shows", files=0, rows=0)
    ending = source("plays", complete_until={}, newest=T0 + 8 * HOUR, wide_files=3)
    huge = Slice(7, {"plays": SourceSlice((Split("plays", "f", 10**8, 10**10, T0, T0 + HOUR),))})
    found = remarks(job(empty, ending, slices=(huge,)), WINDOW)
    assert found[0] == "Careful."
    assert "'shows' (lake.events.shows) has no data" in found[1]
    assert "ends at 2026-11-01T08:00Z: output from 2026-11-01T07:00Z on is not final" in found[2]
    assert "3 of 10 files of source 'plays' span more than 15m" in found[3]
    assert "slice 7: 100 M rows, 9.31 GiB" in found[4]
    assert remarks(job(), WINDOW) == ("Careful.",)


def test_counts_and_sizes_are_short() -> None:
    assert [count(n) for n in (0, 999, 1000, 12_345, 123_456_789)] == ["0", "999", "1.00 k", "12.3 k", "123 M"]
    assert [size(n) for n in (0, 1023, 1024, 10 * 1024**3)] == ["0 B", "1023 B", "1.00 KiB", "10.0 GiB"]
