"""A plan as a picture for the terminal: what is read when, how much of it, and up to where it is complete.

                 10-31 23:45                    11-01 03:30
    reads        ░░░░█████████████████████████████████▒▒▒▒▒
    impressions  ▂▂▃▅▇█▇▅▃▂▂▂▂▂▃▅▇█▇▅▃▂▂▂▂▂▃▅▇█▇▅▃▂▂????????
    playbacks    ▁▁····▁▁▁▁▁▁▂▂▂▁▁▁▁▁▁▁▁▂▂▂▁▁▁▁▁▁▁▁▂▂??????
    ░ warm-up  █ window  ▒ drain  ▁▄█ rows  · none  ? not complete

Pure string functions: every line is at most `width` characters.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from rekappa.plan.plan import JobPlan, SourcePlan
from rekappa.timeline import Window

_BARS = "▁▂▃▄▅▆▇█"
_LEGEND = ("░ warm-up", "█ window", "▒ drain", "▁▄█ rows", "· none", "? not complete")
_NARROWEST = 24


def picture(job: JobPlan, window: Window, *, regions: Sequence[str] = (), width: int = 80) -> tuple[str, ...]:
    """The lines of the picture. A width below 24 is taken as 24."""
    width = max(width, _NARROWEST)
    longest = max([len("reads"), *(len(source.name) for source in job.sources)])
    label = min(longest, width // 3)
    columns = width - label - 2
    lines = [
        _line("", label, axis(job.reads, columns)),
        _line("reads", label, stretches(job.reads, window, columns)),
        *(_line(source.name, label, bars(source, job.reads, columns, regions)) for source in job.sources),
        *_legend(width),
    ]
    return tuple(line.rstrip() for line in lines)


def axis(reads: Window, columns: int) -> str:
    """The times at both ends, and between them where there is room."""
    marks = [" "] * columns
    shape = "%m-%d %H:%M" if columns >= 24 else "%H:%M"
    size = len(reads.start.strftime(shape))
    places = max(2, min(6, columns // (2 * size)))
    for number in range(places):
        moment = reads.start + reads.length * number / (places - 1)
        middle = round((columns - 1) * number / (places - 1))
        start = min(max(0, middle - size // 2), columns - size)
        marks[start : start + size] = moment.strftime(shape)
    return "".join(marks)


def stretches(reads: Window, window: Window, columns: int) -> str:
    """Warm-up, window and drain. Each that exists has at least one column."""
    warm_up = _columns(window.start - reads.start, reads, columns)
    drain = _columns(reads.end - window.end, reads, columns)
    if warm_up + drain >= columns:
        # A short window between long stretches: the longer one gives up a column for it.
        excess = warm_up + drain - columns + 1
        warm_up, drain = (warm_up - excess, drain) if warm_up >= drain else (warm_up, drain - excess)
    return "░" * warm_up + "█" * (columns - warm_up - drain) + "▒" * drain


def bars(source: SourcePlan, reads: Window, columns: int, regions: Sequence[str] = ()) -> str:
    """How many rows lie where, to the source's own scale; a question mark where the archive is not complete."""
    cells = list(drawn(source.density, columns))
    known = [moment for region, moment in source.complete_until.items() if not regions or region in regions]
    if known:
        complete = min(known)
        if complete < reads.end:
            for column in range(_column(complete, reads, columns), columns):
                cells[column] = "?"
    return "".join(cells)


def drawn(counts: Sequence[int], columns: int) -> str:
    """Counts as bars, to their own scale."""
    rows = _resampled(counts, columns)
    most = max(rows, default=0)
    return "".join(_bar(value / most) if value > 0 else "·" for value in rows)


def _bar(share: float) -> str:
    # Shares are sums of fractions: a hair below a step is that step.
    return _BARS[min(len(_BARS) - 1, int(share * len(_BARS) + 1e-6))]


def _resampled(density: Sequence[int], columns: int) -> list[float]:
    """The same rows over another number of columns."""
    rows = [0.0] * columns
    for place, value in enumerate(density):
        low, high = place * columns / len(density), (place + 1) * columns / len(density)
        for column in range(int(low), min(columns, int(high) + 1)):
            overlap = min(high, column + 1) - max(low, column)
            rows[column] += value * max(overlap, 0.0) / (high - low)
    return rows


def _columns(length: timedelta, reads: Window, columns: int) -> int:
    """How many columns a stretch takes: at least one, if there is any of it."""
    return max(1, round(columns * (length / reads.length))) if length > timedelta() else 0


def _column(moment: datetime, reads: Window, columns: int) -> int:
    """The column in which a moment lies, 0 at least; `columns` if it lies after them all."""
    return min(max(int((moment - reads.start) / reads.length * columns), 0), columns)


def _line(name: str, label: int, drawn: str) -> str:
    shown = name if len(name) <= label else name[: label - 1] + "…"
    return f"{shown:<{label}}  {drawn}"


def _legend(width: int) -> list[str]:
    lines = [""]
    for part in _LEGEND:
        joined = f"{lines[-1]}  {part}" if lines[-1] else part
        if len(joined) <= width:
            lines[-1] = joined
        else:
            lines.append(part)
    return lines
