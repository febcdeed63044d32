"""Charts as SVG, drawn here: no script, no style attribute, every text escaped. Colours are the style sheet's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from markupsafe import Markup, escape

from rekappa.timeline import Window, format_duration

_WIDTH, _HEIGHT, _LEFT, _TOP, _BELOW = 880, 120, 64, 8, 24
COLOURS = 6


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    points: Sequence[tuple[datetime, float]]


def lines(title: str, drawn: Sequence[Line]) -> Markup:
    """Values over time, to one scale that begins at zero. Empty with fewer than two points."""
    shown = [one for one in drawn if len(one.points) > 1]
    if not shown:
        return Markup("")
    low = min(one.points[0][0] for one in shown)
    high = max(one.points[-1][0] for one in shown)
    window = Window(low, max(high, low + timedelta(seconds=1)))
    top = rounded(max(value for one in shown for _, value in one.points))
    paths = []
    for number, one in enumerate(shown):
        at = " ".join(f"{_x(moment, window):.1f},{_y(value, top):.1f}" for moment, value in one.points)
        paths.append(f'<polyline class="line c{number % COLOURS}" points="{at}"/>')
    body = "".join(paths)
    return Markup(f"{_frame(title, window, top, body)}{_legend([one.name for one in shown])}")


def bars(
    title: str, window: Window, rows: Mapping[str, Sequence[int]], marks: str = "", dead: Sequence[int] = ()
) -> Markup:
    """Counts over time, stacked by name. `marks` is SVG in the same coordinates; `dead` are ticks along the axis."""
    count = max((len(cells) for cells in rows.values()), default=0)
    sums = [sum(cells[place] for cells in rows.values()) for place in range(count)]
    top, step = rounded(max(sums, default=0)), _WIDTH / max(count, 1)
    drawn = []
    for place in range(count):
        bottom = float(_TOP + _HEIGHT)
        for number, cells in enumerate(rows.values()):
            if cells[place]:
                height = max(1.0, _HEIGHT * cells[place] / top)
                bottom -= height
                drawn.append(
                    f'<rect class="c{number % COLOURS}" x="{_LEFT + place * step:.2f}" y="{bottom:.2f}" '
                    f'width="{max(step - 0.4, 0.4):.2f}" height="{height:.2f}"/>'
                )
    for place, found in enumerate(dead):
        if found:
            x = _LEFT + (place + 0.5) * _WIDTH / len(dead)
            drawn.append(
                f'<g><title>{found:,} dead letters</title><path class="dead" '
                f'd="M{x:.1f} {_TOP + _HEIGHT + 1} l4 7 h-8 z"/></g>'
            )
    legend = _legend(list(rows), dead=any(dead))
    return Markup(f"{_frame(title, window, top, ''.join(drawn) + marks, 'pick')}{legend}")


def stretch(window: Window, start: datetime, end: datetime, kind: str, title: str) -> str:
    """A part of the chart marked by a colour: the window, what is not complete, an earlier publication."""
    left, right = max(start, window.start), min(end, window.end)
    if left >= right:
        return ""
    low, high = _x(left, window), _x(right, window)
    return (
        f'<g><title>{escape(title)}</title><rect class="{kind}" x="{low:.1f}" y="{_TOP}" '
        f'width="{max(high - low, 1.5):.1f}" height="{_HEIGHT}"/></g>'
    )


def _frame(title: str, window: Window, top: float, body: str, kind: str = "") -> str:
    total = (_LEFT + _WIDTH + 12, _TOP + _HEIGHT + _BELOW)
    data = f' data-start="{window.start.isoformat()}" data-end="{window.end.isoformat()}"' if kind else ""
    place = f' data-left="{_LEFT}" data-width="{_WIDTH}"' if kind else ""
    return (
        f'<svg class="chart {kind}" viewBox="0 0 {total[0]} {total[1]}" role="img" '
        f'aria-label="{escape(title)}"{data}{place}>{_grid(top)}{body}{_axis(window)}</svg>'
    )


def _grid(top: float) -> str:
    drawn = []
    for share in (0.0, 0.5, 1.0):
        y = _TOP + _HEIGHT * (1 - share)
        drawn.append(
            f'<line class="rule" x1="{_LEFT}" x2="{_LEFT + _WIDTH}" y1="{y}" y2="{y}"/>'
            f'<text class="mark" x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{short(top * share)}</text>'
        )
    return "".join(drawn)


def _axis(window: Window) -> str:
    shape = "%H:%M:%S" if window.length < timedelta(minutes=5) else "%H:%M"
    shape = "%m-%d %H:%M" if window.length > timedelta(hours=20) else shape
    drawn = []
    for part in range(6):
        at = window.start + window.length * part / 5
        anchor = "start" if part == 0 else "end" if part == 5 else "middle"
        drawn.append(
            f'<text class="mark" x="{_x(at, window):.1f}" y="{_TOP + _HEIGHT + 20}" text-anchor="{anchor}">'
            f"{at:{shape}}{' UTC' if part == 5 else ''}</text>"
        )
    return "".join(drawn)


def _legend(names: Sequence[str], *, dead: bool = False) -> str:
    items = [
        f'<span class="item"><svg class="dot" viewBox="0 0 10 10" aria-hidden="true"><rect class="c{number % COLOURS}" '
        f'width="10" height="10" rx="3"/></svg>{escape(name)}</span>'
        for number, name in enumerate(names)
    ]
    if dead:
        items.append(
            '<span class="item"><svg class="dot" viewBox="0 0 10 10" aria-hidden="true">'
            '<path class="dead" d="M5 0 l5 9 h-10 z"/></svg>dead letters</span>'
        )
    return f'<div class="items">{"".join(items)}</div>'


def _x(moment: datetime, window: Window) -> float:
    return _LEFT + _WIDTH * ((moment - window.start) / window.length)


def _y(value: float, top: float) -> float:
    return _TOP + _HEIGHT * (1 - value / top)


def rounded(most: float) -> float:
    """A top of the scale that is easy to read: 1, 2, 4 or 8 times a power of ten, not below."""
    scale = 1.0
    while most > 8 * scale:
        scale *= 10
    return next(first * scale for first in (1, 2, 4, 8, 10) if first * scale >= most)


def short(value: float) -> str:
    """A number in a few characters: 1.2M."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def ago(length: timedelta) -> str:
    """About how long, for a person."""
    for unit in (timedelta(days=1), timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)):
        if length >= 2 * unit:
            return format_duration(length // unit * unit)
    return (
        "0s"
        if length < timedelta(seconds=1)
        else format_duration(length // timedelta(seconds=1) * timedelta(seconds=1))
    )
