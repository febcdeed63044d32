"""How far back custom state reaches: a query does not show it, but a replay of what came before the window does.

Only what is alive when the window begins matters to it. So the stretch before it is replayed, from further and further
back, without output, until a start twice as far back leaves the same state alive. A key that was silent all that time
is seen by neither start: it is known to hold nothing only where state ends by timers, sooner than the stretch is long.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from rekappa.plan.margins import Margins
from rekappa.plan.words import count
from rekappa.replay.custom.run import Alive
from rekappa.timeline import Window, format_duration

LONGEST = timedelta(days=1)
"""As far back as is looked: a longer --warm-up is for the user to ask for."""


def with_measured_state(margins: Margins, output: Window, alive: Callable[[Window], Alive]) -> Margins:
    """The margins with a warm-up that is as long as the state lives; `alive` is the state that is there once a stretch
    of ingestion time, and nothing before it, has been read.

    Where a start `LONGEST` before still changes what is alive, that is the warm-up, and nothing vouches for it. Nor
    where a key that came before it may hold state still.
    """
    before = margins.before
    now = alive(_stretch(margins, before, output))
    while before < LONGEST:
        further = min(2 * before, LONGEST)
        then = alive(_stretch(margins, further, output))
        if then == now:
            why = (
                f"{format_duration(before)}, because the state alive at the window's start ({count(now.keys)} keys) is "
                f"the same when {format_duration(further)} are read"
            )
            return margins.measured(before, why, _of_silent_keys(now, before, output))
        before, now = further, then
    why = f"{format_duration(before)} for custom state"
    note = (
        f"What state is alive at the window's start ({count(now.keys)} keys) still depends on events more than "
        f"{format_duration(LONGEST / 2)} before it: its rows may lack inputs. --warm-up reads further back."
    )
    return margins.measured(before, why, note)


def _of_silent_keys(now: Alive, before: timedelta, output: Window) -> str:
    """The doubt that keys leave which were silent since before the warm-up; none where none can hold state."""
    if now.endless:
        held = f"{count(now.endless)} of {count(now.keys)} keys hold state that no timer ends"
    elif now.due is not None and now.due - output.start > before:
        held = f"timers are set up to {format_duration(now.due - output.start)} after the window's start"
    else:
        return ""
    return (
        f"Keys without an event in the {format_duration(before)} before the window may hold state that is not read "
        f"({held}): rows of such keys may lack inputs. --warm-up reads further back."
    )


def _stretch(margins: Margins, before: timedelta, output: Window) -> Window:
    return Window(output.start - before - margins.ahead, output.start)
