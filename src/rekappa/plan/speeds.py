"""How long a job will take, by how long runs like it took.

Alike are runs of the same job in the same mode with the same kind of state, over about as many rows: in a short run the
fixed part of the work counts most, in a long one the rows do. Where nothing alike was measured nothing is predicted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from rekappa.plan.shape import Shape

FAR = 20
"""A run over this many times more, or fewer, rows says nothing."""


@dataclass(frozen=True, slots=True)
class Speed:
    """One measurement: in run `run`, a job in this mode, with this kind of state, read `rows` rows in `seconds`."""

    app: str
    job: str
    mode: str
    state: str
    rows: int
    seconds: float
    run: str

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds


def kind_of_state(shapes: Iterable[Shape]) -> str:
    """What a job's queries hold, and how many there are: what its speed depends on besides rows and mode."""
    looked = list(shapes)
    kinds = sorted({one.kind.value for shape in looked for one in shape.operators if one.kind.stateful})
    held = " + ".join(kinds) or "no state"
    return held if len(looked) == 1 else f"{held}, in {len(looked)} queries"


def predicted(rows: int, known: Sequence[Speed]) -> tuple[timedelta | None, str]:
    """How long this many rows will take, None if that is not known, and why. `known` are runs alike, newest first."""
    if rows == 0:
        return timedelta(), "there is nothing to read"
    if not known:
        return None, "no run of this job in this mode, with this kind of state, has been measured"
    nearest = min(known, key=lambda one: abs(math.log(rows / one.rows)))
    over = f"{nearest.rows:,} rows in run {nearest.run}"
    if max(rows / nearest.rows, nearest.rows / rows) > FAR:
        return None, f"the nearest that was measured is {over}, which says nothing about {rows:,}"
    speed = nearest.rows_per_second
    return timedelta(seconds=round(rows / speed, 1)), f"{speed:,.0f} rows/s, measured over {over}"
