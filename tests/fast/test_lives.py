"""How far back custom state reaches, by what is alive when the window begins."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from rekappa.plan.margins import Margins, derive
from rekappa.plan.shape import Operation, Operator, Shape
from rekappa.planning.lives import LONGEST, with_measured_state
from rekappa.replay.custom.run import Alive
from rekappa.timeline import Window

HOUR = timedelta(hours=1)
START = datetime(2026, 11, 1, tzinfo=UTC)
WINDOW = Window(START, START + 2 * HOUR)
SHAPE = Shape("out", (Operator(Operation.CUSTOM),), event_time="at", delay=timedelta(minutes=10))


def margins(lives: timedelta) -> tuple[Margins, list[timedelta]]:
    """What is found where state lives that long: what is alive depends on events that far back."""
    looked: list[timedelta] = []

    def alive(stretch: Window) -> Alive:
        looked.append(WINDOW.start - stretch.start)
        assert stretch.end == WINDOW.start
        return Alive(min(stretch.length, lives) // timedelta(seconds=1), None)

    return with_measured_state(derive([SHAPE], timedelta()), WINDOW, alive), looked


def test_the_default_is_kept_and_vouched_for_if_nothing_older_is_alive() -> None:
    found, looked = margins(timedelta(minutes=20))
    assert found.before == HOUR
    assert found.vouched
    assert "(1.20 k keys)" in found.before_reason
    assert looked == [HOUR, 2 * HOUR]
    assert not any("--warm-up" in note for note in found.notes)
    assert any("drain of" in note for note in found.notes)


@given(st.integers(1, 23 * 60).map(lambda minutes: timedelta(minutes=minutes)))
def test_the_warm_up_is_as_long_as_state_lives(lives: timedelta) -> None:
    found, _ = margins(lives)
    assert lives <= found.before <= max(HOUR, 2 * lives) or found.before == LONGEST
    assert found.vouched or lives > LONGEST / 2


def test_state_that_never_ends_is_said_to() -> None:
    found, looked = margins(timedelta(days=400))
    assert found.before == LONGEST
    assert looked[-1] == LONGEST
    assert not found.vouched
    assert any("still depends on events more than 12h before" in note for note in found.notes)


@given(st.integers(0, 5), st.none() | st.integers(-60, 600).map(lambda minutes: START + timedelta(minutes=minutes)))
def test_a_silent_key_leaves_a_doubt_unless_a_timer_has_ended_it(endless: int, due: datetime | None) -> None:
    """With the hour that is read, a timer later than an hour after the start may be one of an older key as well."""
    alive = Alive(7, None, endless, due)
    found = with_measured_state(derive([SHAPE], timedelta()), WINDOW, lambda _: alive)
    ended = not endless and (due is None or due <= START + HOUR)
    assert found.vouched == ended
    assert any("Keys without an event in the 1h" in note for note in found.notes) != ended
