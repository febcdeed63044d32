"""The report's charts and figures: nothing is lost in a bar, and no two different values look the same."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from rekappa.timeline import Window
from rekappa.validate.chart import OTHERS, PALETTE, colored, foremost, over_time
from rekappa.validate.figures import DIGITS, apart, exactly, written
from rekappa.validate.html import page
from rekappa.validate.over_time import MOST, OverTime, Stretches
from rekappa.validate.result import Cause, Comparison, Outcome, Sample, SinkVerdict, Verdict

AT = datetime(2026, 11, 1, 13, tzinfo=UTC)
lengths = st.timedeltas(timedelta(microseconds=1), timedelta(days=366 * 1000))
windows = st.builds(lambda length: Window(AT, AT + length), lengths)
names = st.text(max_size=30)
counts = st.dictionaries(names, st.lists(st.integers(0, 10**9), min_size=12, max_size=12).map(tuple), max_size=12)
HOUR = Stretches(AT, timedelta(minutes=5), 12)


@given(windows)
def test_stretches_cover_the_window_and_are_few(window: Window) -> None:
    made = Stretches.of(window)
    assert 1 <= made.count <= MOST
    assert made.start == window.start
    assert made.start + (made.count - 1) * made.width < window.end <= made.start + made.count * made.width


@given(windows, st.lists(st.tuples(st.none() | st.integers(-5, 99), names, st.integers(0, 99)), max_size=20))
def test_every_count_that_has_a_time_is_in_a_stretch(
    window: Window, counted: list[tuple[int | None, str, int]]
) -> None:
    made = Stretches.of(window)
    spread = made.spread(counted)
    for name, cells in spread.items():
        assert len(cells) == made.count
        assert sum(cells) == sum(count for cell, which, count in counted if which == name and cell is not None)
    assert set(spread) == {name for cell, name, _ in counted if cell is not None}


@given(counts)
def test_the_chart_tells_every_count_and_escapes_every_name(counted: dict[str, tuple[int, ...]]) -> None:
    shown = foremost(counted)
    assert len(shown) <= len(PALETTE)
    assert sum(map(sum, shown.values())) == sum(map(sum, counted.values()))
    if len(counted) > len(PALETTE):
        assert OTHERS in shown
    drawn = over_time(shown, HOUR, colored([*shown]), "<title>")
    bars = sum(1 for at in range(12) if any(cells[at] for cells in counted.values()))
    assert drawn.count("<title>2026-11-01 13:") == bars
    assert bool(drawn) == bool(bars)
    assert not re.findall(r"<(?!/?(?:svg|g|title|rect|line|text|div|span)\b)", drawn)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(values, values)
def test_two_different_values_never_look_the_same(before: object, after: object) -> None:
    old, new = apart(before, after)
    if exactly(before) != exactly(after):
        assert old != new
    assert exactly(before) == exactly(before)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_fraction_is_short_and_near(value: float) -> None:
    text = written(value)
    assert abs(float(text) - value) <= abs(value) * 10 ** (1 - DIGITS)
    assert float(exactly(value)) == value


def test_the_page_has_charts_rounded_figures_and_zones() -> None:
    cells = tuple(range(12))
    found = Comparison(
        9, 9, 9, 66, 0, 0, ("id",), {"rate": 66}, {Cause.CODE: 66},
        samples=(
            Sample("different", Cause.CODE, ("rate",), {"id": 1, "rate": 0.123456789}, {"id": 1, "rate": 7.5}),
            Sample("extra", Cause.LATE, (), None, {"id": 2, "at": "2026-11-01T13:30Z", "rate": 1 / 3}),
        ),
        over_time=OverTime(HOUR, {str(Cause.CODE): cells}, {"rate": cells}),
    )  # fmt: skip
    one = SinkVerdict("out", "lake.a.b", found, Outcome.PASSED)
    html = page(Verdict("r", "a", AT, AT + timedelta(hours=1), AT, (one,)))
    assert "When, by cause" in html
    assert "When, by column" in html
    assert "<title>2026-11-01 13:05:00 UTC, 5m\nchange in code: 1</title>" in html
    assert '<span class="value" title="0.123456789">0.123457</span> → <span class="value">7.5</span>' in html
    assert "2026-11-01T13:30Z" in html
    assert f'title="{1 / 3!r}">0.333333<' in html
    assert "compared 2026-11-01T13:00Z; all times in UTC" in html
    assert "http" not in html
    stored = one.comparison and one.comparison.as_json()["over_time"]
    assert stored == {
        "start": "2026-11-01T13:00:00+00:00",
        "seconds": 300.0,
        "causes": {"change in code": [*cells]},
        "columns": {"rate": [*cells]},
    }


def test_bars_are_as_wide_as_the_step_of_the_rows() -> None:
    """Rows of ten-minute windows in stretches of five minutes; rows at any time keep theirs."""
    every_other = OverTime(
        HOUR, {"a": (0, 3, 0, 1, 0, 0, 0, 2, 0, 0, 0, 5)}, {"x": (0, 3, 0, 1, 0, 0, 0, 2, 0, 0, 0, 5)}
    )
    wide = every_other.stepped()
    assert (wide.stretches.width, wide.stretches.count) == (timedelta(minutes=10), 6)
    assert wide.causes == {"a": (3, 1, 0, 2, 0, 5)}
    assert wide.columns == {"x": (3, 1, 0, 2, 0, 5)}
    any_time = OverTime(HOUR, {"a": (0, 3, 2, 1, 0, 0, 0, 2, 0, 0, 0, 5)})
    assert any_time.stepped() == any_time
    assert OverTime(HOUR, {"a": (1, *[0] * 9, 1, 0)}).stepped().stretches == HOUR, "two tell no step"


@given(st.lists(st.integers(0, 5), min_size=12, max_size=12), st.integers(1, 6))
def test_wider_bars_lose_no_count(cells: list[int], step: int) -> None:
    spread = tuple(count if at % step == 0 else 0 for at, count in enumerate(cells))
    found = OverTime(HOUR, {"a": spread}, {"x": spread}).stepped()
    assert sum(found.causes["a"]) == sum(spread)
    assert len(found.causes["a"]) == found.stretches.count
    assert found.stretches.count * found.stretches.width >= HOUR.count * HOUR.width
