"""Charts, drawn here: no script, no style attribute, every text escaped. Colours are the style sheet's.

The plot is SVG that stretches to any width; its scale and its times are text beside it, so that they can be read on a
phone as well. `data-series` has the values, which the page's script shows to whoever points at them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from markupsafe import Markup, escape

from rekappa.timeline import Window, format_duration

WIDTH, HEIGHT = 1000, 120
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
    body, series = [], []
    for number, one in enumerate(shown):
        at = " ".join(f"{_x(moment, window):.1f},{_y(value, top):.1f}" for moment, value in one.points)
        body.append(f'<polyline class="line c{number % COLOURS}" points="{at}"/>')
        places = [round(_x(moment, window) / WIDTH, 4) for moment, _ in one.points]
        series.append({"name": one.name, "at": places, "values": [round(value, 1) for _, value in one.points]})
    whole = _frame(title, top, "".join(body), _times(window), series, window)
    return Markup(f"{whole}{_legend([one.name for one in shown])}")


def bars(
    title: str, window: Window, rows: Mapping[str, Sequence[int]], marks: str = "", dead: Sequence[int] = ()
) -> Markup:
    """Counts over time, stacked by name. `marks` is SVG in the same coordinates; `dead` are ticks along the axis."""
    count = max((len(cells) for cells in rows.values()), default=0)
    sums = [sum(cells[place] for cells in rows.values()) for place in range(count)]
    top, step = rounded(max(sums, default=0)), WIDTH / max(count, 1)
    drawn = []
    for place in range(count):
        bottom = float(HEIGHT)
        for number, cells in enumerate(rows.values()):
            if cells[place]:
                height = max(1.0, HEIGHT * cells[place] / top)
                bottom -= height
                drawn.append(
                    f'<rect class="c{number % COLOURS}" x="{place * step:.2f}" y="{bottom:.2f}" '
                    f'width="{max(step - 0.4, 0.4):.2f}" height="{height:.2f}"/>'
                )
    for place, found in enumerate(dead):
        if found:
            x = (place + 0.5) * WIDTH / len(dead)
            drawn.append(f'<g><title>{found:,} dead letters</title><path class="dead" d="M{x:.1f} {HEIGHT} v-22"/></g>')
    series = [{"name": name, "values": list(cells)} for name, cells in rows.items()]
    series += [{"name": "dead letters", "values": list(dead)}] if any(dead) else []
    whole = _frame(title, top, "".join(drawn) + marks, _times(window), series, window, pick=True)
    return Markup(f"{whole}{_legend(list(rows), dead=any(dead))}")


def grown(title: str, rates: Mapping[str, float], days: int) -> Markup:
    """Amounts that grow evenly with the days, from nothing; empty if none of them does."""
    top = rounded(max(rates.values(), default=0) * days)
    if not any(rates.values()):
        return Markup("")
    body = "".join(
        f'<polyline class="line c{number % COLOURS}" points="0,{HEIGHT} {WIDTH},{_y(each * days, top):.1f}"/>'
        for number, each in enumerate(rates.values())
    )
    below = "".join(f"<span>{round(days * part / 3)} days</span>" for part in range(4))
    return Markup(f"{_frame(title, top, body, below, [])}{_legend(list(rates))}")


def stretch(window: Window, start: datetime, end: datetime, kind: str, title: str) -> str:
    """A part of the chart marked by a colour: the window, what is not complete, an earlier publication."""
    left, right = max(start, window.start), min(end, window.end)
    if left >= right:
        return ""
    low, high = _x(left, window), _x(right, window)
    return (
        f'<g><title>{escape(title)}</title><rect class="{kind}" x="{low:.1f}" y="0" '
        f'width="{max(high - low, 3):.1f}" height="{HEIGHT}"/></g>'
    )


def _frame(
    title: str,
    top: float,
    body: str,
    below: str,
    series: Sequence[Mapping[str, Any]],
    window: Window | None = None,
    *,
    pick: bool = False,
) -> str:
    data = f' data-start="{window.start.isoformat()}" data-end="{window.end.isoformat()}"' if window else ""
    data += f' data-series="{escape(json.dumps(series))}"' if series else ""
    scale = "".join(f"<span>{short(top * share)}</span>" for share in (1.0, 0.5, 0.0))
    rules = "".join(f'<path class="rule" d="M0 {y} H{WIDTH}"/>' for y in (0, HEIGHT / 2, HEIGHT))
    return (
        f'<div class="chart"><div class="scale" aria-hidden="true">{scale}</div>'
        f'<svg class="plot{" pick" if pick else ""}" viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" '
        f'role="img" aria-label="{escape(title)}"{data}>{rules}{body}</svg>'
        f'<div class="times">{below}</div></div>'
    )


def _times(window: Window) -> str:
    """Five times, in UTC; the page's script writes them in the reader's zone."""
    shape, kind = ("%H:%M:%S", "seconds") if window.length < timedelta(minutes=5) else ("%H:%M", "minutes")
    shape, kind = ("%m-%d %H:%M", "days") if window.length > timedelta(hours=20) else (shape, kind)
    moments = [(window.start + window.length * part / 4).astimezone(UTC) for part in range(5)]
    ticks = [
        f'<time class="tick" data-shape="{kind}" datetime="{at.isoformat()}">{at:{shape}}</time>' for at in moments
    ]
    return "".join(ticks) + '<span class="zone">UTC</span>'


def _legend(names: Sequence[str], *, dead: bool = False) -> str:
    items = [
        f'<span class="item"><svg class="dot" viewBox="0 0 10 10" aria-hidden="true"><rect class="c{number % COLOURS}" '
        f'width="10" height="10" rx="3"/></svg>{escape(name)}</span>'
        for number, name in enumerate(names)
    ]
    if dead:
        items.append(
            '<span class="item"><svg class="dot" viewBox="0 0 10 10" aria-hidden="true">'
            '<path class="dead" d="M5 10 v-10"/></svg>dead letters</span>'
        )
    return f'<div class="items">{"".join(items)}</div>'


def _x(moment: datetime, window: Window) -> float:
    return WIDTH * ((moment - window.start) / window.length)


def _y(value: float, top: float) -> float:
    return HEIGHT * (1 - value / top)


def rounded(most: float) -> float:
    """A top of the scale that is easy to read: 1, 2, 4 or 8 times a power of ten, not below."""
    scale = 1.0
    while 0 < most <= 0.8 * scale and scale > 1e-6:
        scale /= 10
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
