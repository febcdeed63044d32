"""From when on output was not final, by the plan alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from rekappa.plan.plan import JobPlan, Mode, SourcePlan
from rekappa.timeline import Window
from rekappa.validate.final import open_ends

AT = datetime(2026, 11, 1, tzinfo=UTC)
WINDOW = Window(AT, AT + timedelta(hours=3))
minutes = st.integers(-60, 400).map(lambda value: timedelta(minutes=value))


def job(drain: timedelta, *until: dict[str, datetime]) -> JobPlan:
    sources = tuple(
        SourcePlan(f"s{n}", "t", 1, (), timedelta(), 0, 0, 0, complete_until=known) for n, known in enumerate(until)
    )
    reads = WINDOW.widened(after=drain)
    return JobPlan("j", ("out",), Mode.BULK, "", timedelta(), "", drain, "", reads, sources)


@given(minutes, minutes, st.integers(0, 90).map(lambda value: timedelta(minutes=value)))
def test_open_only_where_the_archive_ends_too_early(one: timedelta, two: timedelta, drain: timedelta) -> None:
    found = open_ends(job(drain, {"eu": AT + one, "us": AT + two}), WINDOW)
    enough = min(one, two) >= WINDOW.length + drain
    assert found == ([] if enough else [AT + min(one, two) - drain])


def test_regions_and_archives_that_say_nothing() -> None:
    plan = job(timedelta(), {"eu": AT, "us": WINDOW.end}, {})
    assert open_ends(plan, WINDOW, ["us"]) == []
    assert open_ends(plan, WINDOW, ["eu"]) == [AT]
