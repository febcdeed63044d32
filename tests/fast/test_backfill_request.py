"""What a person may ask of a backfill: kept as told, and refused in clear words where no calendar holds it."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from click.testing import CliRunner

from rekappa.cli.main import main
from rekappa.cli.margins import MARGINS, told_margins
from rekappa.errors import PlanError
from rekappa.planning.request import BackfillRequest
from rekappa.timeline import Window, parse_duration

WINDOW = Window.parse("2026-11-01T13:00Z", "2026-11-01T16:00Z")


def test_a_request_is_read_back_as_it_was_written() -> None:
    asked = BackfillRequest(WINDOW, warm_up=timedelta(), drain=timedelta(minutes=5), clock_skew=timedelta(seconds=90))
    assert BackfillRequest.from_json(asked.to_json()) == asked


def test_what_is_told_of_one_job_goes_before_what_is_told_of_all() -> None:
    every, single = told_margins(
        {
            "warm_up": ("30m", "plays=0"),
            "drain": ("plays=2h",),
            "clock_skew": ("5s",),
            "slice_rows": ("plays=1000", "7"),
            "slice_span": (),
        }
    )
    asked = BackfillRequest(WINDOW, sinks=("plays",), by_job=single, **every)
    assert BackfillRequest.from_json(json.loads(json.dumps(asked.to_json()))) == asked
    plays, others = asked.of_job("plays"), asked.of_job("others")
    assert (plays.warm_up, plays.drain, plays.clock_skew) == (timedelta(), timedelta(hours=2), timedelta(seconds=5))
    assert (others.warm_up, others.drain, others.slice_rows) == (timedelta(minutes=30), None, 7)
    assert plays.slice_rows == 1000
    assert plays.by_job == others.by_job == {}


@pytest.mark.parametrize(
    ("option", "values", "said"),
    [
        ("warm_up", ("1h", "2h"), "--warm-up 2h: it was said for all jobs already"),
        ("drain", ("a=1h", "a=2h"), "--drain a=2h: it was said for job 'a' already"),
        ("drain", ("a=soon",), "Cannot use --drain"),
        ("slice_rows", ("a=0",), "--slice-rows 0: it is a number of rows"),
        ("clock_skew", ("a=1000000d",), "longer than a hundred years"),
    ],
)
def test_margins_that_say_nothing_clear_are_refused(option: str, values: tuple[str, ...], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        told_margins({**dict.fromkeys(MARGINS, ()), option: values})


@pytest.mark.parametrize("text", ["0", " 0 ", "0s", "0 minutes"])
def test_nothing_is_a_duration(text: str) -> None:
    assert parse_duration(text) == timedelta()


@pytest.mark.parametrize("text", ["00x", "5", "-0", "", "1d1d", "1h 2 hours", "٣d", "1m 1min", "1\u017f"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="as a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("start", "end"), [("0001-01-01", "0001-01-02"), ("9999-12-30", "9999-12-31"), ("0001-01-01", "9999-12-31")]
)
def test_years_at_the_ends_of_the_calendar_are_refused(start: str, end: str) -> None:
    with pytest.raises(PlanError, match="outside the years 1583 to 9000"):
        BackfillRequest(Window.parse(start, end))


@pytest.mark.parametrize("margin", ["warm_up", "drain", "clock_skew"])
def test_margins_of_a_million_days_are_refused(margin: str) -> None:
    with pytest.raises(PlanError, match="of 1000000d: it is longer than a hundred years"):
        BackfillRequest(WINDOW, **{margin: timedelta(days=1_000_000)})  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="can't be negative"):
        BackfillRequest(WINDOW, **{margin: timedelta(seconds=-1)})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (["--start", "0001-01-01", "--end", "0001-01-02"], "outside the years"),
        (["--start", "2026-11-01", "--end", "2026-11-02", "--warm-up", "1000000d"], "hundred years"),
        (["--start", "2026-11-01", "--end", "2026-11-02", "--clock-skew", "soon"], "Cannot use --clock-skew"),
        (["--start", "2026-11-01", "--end", "2026-11-02", "--slice-span", "0s"], "a slice must span some time"),
        (["--start", "2026-11-01", "--end", "2026-11-02", "--slice-rows", "0"], "--slice-rows"),
        (["--start", "9999-12-30", "--end", "9999-12-31"], "outside the years"),
        (["--start", "0001-01-01T00:00+14:00", "--end", "0001-01-02"], "Cannot read '0001-01-01T00:00+14:00'"),
        (["--start", "2026-11-01", "--end", "2026-11-02", "--drain", "999999999999d"], "too long"),
    ],
)
def test_the_command_line_says_so(told: list[str], said: str) -> None:
    done = CliRunner().invoke(main, ["plan", "nowhere", *told])
    assert done.exit_code == 2
    assert said in done.stderr


def test_a_window_does_not_leave_the_calendar() -> None:
    with pytest.raises(PlanError, match="outside the years 1 to 9999"):
        WINDOW.widened(timedelta(days=1_000_000))
