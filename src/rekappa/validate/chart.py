"""Counts over time as a chart: stacked bars in SVG, drawn here, so that a report loads nothing from elsewhere.

Times are in UTC; `data-at` has each for whoever can show it in the reader's zone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from html import escape

from rekappa.timeline import format_duration
from rekappa.validate.over_time import Counts, Stretches

PALETTE = ("#4c6fd1", "#b98300", "#2f9e6e", "#b25fc4", "#d0503f", "#2a9db5", "#8d6e4f", "#667085")
OTHERS = "other columns"
_LEFT, _WIDTH, _TOP, _HEIGHT, _RIGHT, _BELOW = 56, 860, 10, 150, 12, 34
_FEWEST_PIXELS = 1.5


def over_time(counts: Counts, stretches: Stretches, colors: Mapping[str, str], title: str) -> str:
    """One bar for each stretch, one colour for each name; pointing at a bar tells its counts. Empty without counts."""
    shown = {name: cells for name, cells in counts.items() if any(cells)}
    if not shown:
        return ""
    most = max(sum(cells) for cells in zip(*shown.values(), strict=True))
    top = _round_up(most)
    step = _WIDTH / stretches.count
    bars = "".join(
        _bar(number, {name: cells[number] for name, cells in shown.items()}, stretches, step, top, colors)
        for number in range(stretches.count)
    )
    whole = (_LEFT + _WIDTH + _RIGHT, _TOP + _HEIGHT + _BELOW)
    return (
        f'<div class="scroll"><svg class="chart" viewBox="0 0 {whole[0]} {whole[1]}" role="img" '
        f'aria-label="{escape(title, quote=True)}">'
        f"{_grid(top)}{bars}{_axis(stretches, step)}</svg></div>{_legend(shown, colors)}"
    )


def colored(names: Sequence[str]) -> dict[str, str]:
    """A colour for each name, in their order; where there are more names than colours, grey for the rest."""
    return {name: PALETTE[min(number, len(PALETTE) - 1)] for number, name in enumerate(names)}


def foremost(counts: Counts) -> dict[str, tuple[int, ...]]:
    """The names with the highest counts, as many as there are colours; the rest added up as one."""
    ranked = sorted(counts.items(), key=lambda item: (-sum(item[1]), item[0]))
    if len(ranked) <= len(PALETTE):
        return dict(ranked)
    rest = tuple(sum(cells) for cells in zip(*(cells for _, cells in ranked[len(PALETTE) - 1 :]), strict=True))
    return {**dict(ranked[: len(PALETTE) - 1]), OTHERS: rest}


def _bar(
    number: int, cells: Mapping[str, int], stretches: Stretches, step: float, top: int, colors: Mapping[str, str]
) -> str:
    counted = {name: count for name, count in cells.items() if count}
    if not counted:
        return ""
    x, gap, bottom = _LEFT + number * step, min(2.0, step / 6), float(_TOP + _HEIGHT)
    parts = []
    for name, count in counted.items():
        height = max(_FEWEST_PIXELS, _HEIGHT * count / top)
        bottom -= height
        parts.append(
            f'<rect x="{x + gap / 2:.2f}" y="{bottom:.2f}" width="{step - gap:.2f}" height="{height:.2f}" '
            f'fill="{colors[name]}"/>'
        )
    start = stretches.start + number * stretches.width
    told = "".join(f"\n{name}: {count:,}" for name, count in counted.items())
    title = escape(_between(start, stretches.width) + told)
    return f"<g{_at(start, 'bar')}><title>{title}</title>{''.join(parts)}</g>"


def _at(moment: datetime, shape: str) -> str:
    return f' data-at="{moment.isoformat()}" data-shape="{shape}"'


def _between(start: datetime, width: timedelta) -> str:
    return f"{start:%Y-%m-%d %H:%M:%S} UTC, {format_duration(width)}"


def _grid(top: int) -> str:
    lines = []
    for share in sorted({0, top // 2, top}):
        y = _TOP + _HEIGHT * (1 - share / top)
        lines.append(
            f'<line x1="{_LEFT}" x2="{_LEFT + _WIDTH}" y1="{y:.1f}" y2="{y:.1f}" class="rule"/>'
            f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" class="mark">{share:,}</text>'
        )
    return "".join(lines)


def _axis(stretches: Stretches, step: float) -> str:
    """Some six times below the bars, with the day where it is a new one; the zone stands at the end."""
    every = max(1, -(-stretches.count // 6))
    marks, day = [], None
    for number in range(0, stretches.count, every):
        at = stretches.start + number * stretches.width
        words, shape = (
            (f"{at:%Y-%m-%d}", "date")
            if stretches.width >= timedelta(days=1)
            else (f"{at:%H:%M:%S}", "seconds")
            if stretches.width < timedelta(minutes=1)
            else (f"{at:%H:%M}", "minutes")
        )
        x, y = _LEFT + number * step, _TOP + _HEIGHT
        marks.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{y + 4}" class="rule"/>')
        marks.append(f'<text x="{x:.1f}" y="{y + 16}" class="mark"{_at(at, shape)}>{words}</text>')
        if stretches.width < timedelta(days=1):
            new = f"{at:%Y-%m-%d}" if at.date() != day else ""
            marks.append(f'<text x="{x:.1f}" y="{y + 30}" class="mark"{_at(at, "new day")}>{new}</text>')
        day = at.date()
    end = f'<text x="{_LEFT + _WIDTH}" y="{_TOP + _HEIGHT + 30}" text-anchor="end" class="mark zone">UTC</text>'
    return "".join(marks) + end


def _legend(shown: Counts, colors: Mapping[str, str]) -> str:
    items = (
        f'<span class="item">{dot(colors[name])}{escape(name)}<span class="soft">{sum(cells):,}</span></span>'
        for name, cells in shown.items()
    )
    return f'<div class="items">{"".join(items)}</div>'


def dot(color: str) -> str:
    """A small square of the colour. Drawn: a strict content policy allows no style attribute."""
    drawn = f'<rect width="10" height="10" rx="3" fill="{color}"/>'
    return f'<svg class="dot" viewBox="0 0 10 10" aria-hidden="true">{drawn}</svg>'


def _round_up(most: int) -> int:
    """The next of 2, 4, 6, 8, 10, 12, 16, 20, 40 … that is not below: a scale whose half is a whole number."""
    scale = 1
    while True:
        for first in (2, 4, 6, 8, 10, 12, 16):
            if first * scale >= most:
                return first * scale
        scale *= 10
